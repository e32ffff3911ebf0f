/* A transform that counts rows and hands each frame on, byte for byte. */
#include "arrow.h"

RB_EXPORT("open") void *transform_open(char *config, u32 n) { return rb_opened(1); }
RB_EXPORT("validate") void *transform_validate(u64 session) {
  return rb_valid(RB_SUCCESS, "it hands frames on");
}
RB_EXPORT("close") void *transform_close(u64 session) { return rb_closed(); }

RB_EXPORT("run") void *transform_run(u64 session, u32 phase, char *context, u32 n, u32 dry_run,
                                     u32 some, u64 most) {
  rb_result r;
  u64 rows = 0, bytes = 0, frames = 0;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    RB_MUST(host_next_batch(&r));
    if (!r.v.ou.some) break;
    u64 from = r.v.ou.v;
    RB_MUST(host_frame_len(from, &r));
    RB_MUST(host_frame_read(from, 0, r.v.u, &r));
    rb_text data = r.v.s;
    host_frame_drop(from);
    rb_stream batches = {(u8 *)data.ptr, (u8 *)data.ptr + data.len};
    int more;
    while ((more = rb_next_columns(&batches)) == 1) rows += batches.rows;
    if (more < 0) return rb_failed(RB_FRAME, "NO_ARROW", "a frame is no Arrow stream");
    RB_MUST(host_frame_new(data.len, &r));
    u64 to = r.v.u;
    RB_MUST(host_frame_write(to, data.ptr, data.len, &r));
    RB_MUST(host_frame_seal(to, &r));
    RB_MUST(host_emit_batch(to, &r));
    bytes += data.len;
    frames++;
  }
  return rb_done(rows, rows, bytes, bytes, frames);
}
