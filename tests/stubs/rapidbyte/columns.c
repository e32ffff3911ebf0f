/* A transform that reads each batch into columns and writes them again: the C SDK's reader and writer
   in one. */
#include "arrow.h"

RB_EXPORT("open") void *x_open(char *config, u32 n) { return rb_opened(1); }
RB_EXPORT("validate") void *x_validate(u64 session) { return rb_valid(RB_SUCCESS, ""); }
RB_EXPORT("close") void *x_close(u64 session) { return rb_closed(); }
RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *context, u32 n, u32 dry, u32 some, u64 most) {
  rb_result r;
  u64 rows = 0, size, bytes = 0, batches = 0;
  for (;;) {
    RB_MUST(host_next_batch(&r));
    if (!r.v.ou.some) return rb_done(rows, rows, bytes, bytes, batches);
    u64 frame = r.v.ou.v;
    RB_MUST(host_frame_len(frame, &r));
    RB_MUST(host_frame_read(frame, 0, r.v.u, &r));
    host_frame_drop(frame);
    rb_stream stream = {(u8 *)r.v.s.ptr, (u8 *)r.v.s.ptr + r.v.s.len};
    int more;
    while ((more = rb_next_columns(&stream)) == 1) {
      for (u32 i = 0; i < stream.count; i++)
        if (!stream.columns[i].values) return rb_failed(RB_SCHEMA, "TYPE", "a column is not readable");
      if (!rb_emit_columns(stream.columns, stream.count, stream.rows, &size, &r)) return rb_passed_on(&r);
      rows += stream.rows;
      bytes += size;
      batches++;
    }
    if (more < 0) return rb_failed(RB_FRAME, "NO_ARROW", "no Arrow stream");
  }
}
