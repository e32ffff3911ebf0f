/* A v4 source that never looks at what its host answers. For each letter of "how" it makes a frame of
   the config's "frame" (in hexadecimal), and counts it as emitted:
   g  a good one, u  one that it does not seal, t  one that it seals at last, when its emit was
   refused, d  one that it does not seal, and drops; c  is a checkpoint. */
#include "rapidbyte.h"

static rb_result r;

static u8 half(char c) { return (u8)(c <= '9' ? c - '0' : c - 'a' + 10); }

RB_EXPORT("open") void *x_open(char *config, u32 n) {
  rb_config = (rb_text){config, n};
  return rb_opened(1);
}
RB_EXPORT("discover") void *x_discover(u64 session) { return rb_catalog("{\"streams\":[]}", 14); }
RB_EXPORT("validate") void *x_validate(u64 session) { return rb_valid(RB_SUCCESS, "fine"); }
RB_EXPORT("close") void *x_close(u64 session) { return rb_closed(); }

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *text, u32 n, u32 dry, u32 some, u64 most) {
  rb_text how = rb_string(rb_config, "how"), hex = rb_string(rb_config, "frame");
  u32 size = hex.len / 2;
  char *data = rb_alloc(size + 1);
  for (u32 i = 0; i < size; i++) data[i] = (char)(half(hex.ptr[2 * i]) << 4 | half(hex.ptr[2 * i + 1]));
  for (u32 i = 0; i < how.len; i++) {
    if (how.ptr[i] == 'c') {
      rb_source_checkpoint(rb_string((rb_text){text, n}, "stream_name"), rb_of("id"), 1, 1, 1, &r);
      continue;
    }
    host_frame_new(size, &r);
    u64 frame = r.v.u;
    host_frame_write(frame, data, size, &r);
    if (how.ptr[i] == 'g') host_frame_seal(frame, &r);
    host_emit_batch(frame, &r);
    if (how.ptr[i] == 'd') host_frame_drop(frame);
    if (how.ptr[i] != 't') continue;
    host_frame_seal(frame, &r);
    host_emit_batch(frame, &r);
  }
  return rb_done(how.len, (u64)size * how.len, how.len, 0, 0);
}
