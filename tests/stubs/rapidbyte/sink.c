/* A v4 destination that says in its log all that it is given: "begin CONTEXT", "take STREAM HEX",
   "commit STREAM", "rollback STREAM WHY"; what it commits has a key "committed". Config, flat: "every": frames to a checkpoint (0: none);
   "fail": a stream whose run fails after "after" frames; "early": one whose run ends well after its
   first frame; "letters": a dead letter a frame; "odd": checkpoints that are none, or another's;
   "loose": its checkpoints say that they are a source's; "held": a stream that takes frames and
   never ends. */
#include "rapidbyte.h"

static rb_result r;
static char line[16384];

RB_EXPORT("open") void *x_open(char *p, u32 n) {
  rb_config = (rb_text){p, n};
  return rb_opened(1);
}
RB_EXPORT("validate") void *x_validate(u64 s) { return rb_valid(RB_SUCCESS, "as asked"); }
RB_EXPORT("close") void *x_close(u64 s) { return rb_closed(); }

static int same(rb_text a, rb_text b) {
  if (a.len != b.len || !a.len) return 0;
  for (u32 i = 0; i < a.len; i++)
    if (a.ptr[i] != b.ptr[i]) return 0;
  return 1;
}

static u32 put(u32 at, rb_text text) {
  memcpy(line + at, text.ptr, text.len);
  return at + text.len;
}

static void take(rb_text stream, rb_text data) {
  static const char digits[] = "0123456789abcdef";
  u32 at = put(put(put(0, rb_of("take ")), stream), rb_of(" "));
  for (u32 i = 0; i < data.len && at + 2 < sizeof line; i++) {
    line[at++] = digits[(u8)data.ptr[i] >> 4];
    line[at++] = digits[(u8)data.ptr[i] & 15];
  }
  host_log(RB_LOG_INFO, line, at);
}

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *text, u32 n, u32 dry, u32 some, u64 most) {
  rb_text context = {text, n}, stream = rb_string(context, "stream_name");
  u64 every = rb_number(rb_config, "every", 0), frames = 0, marks = 0;
  u32 at = put(put(0, rb_of("begin ")), context);
  host_log(RB_LOG_INFO, line, at);
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    host_next_batch(&r);
    if (r.is_err) {
      rb_result why = r;
      at = put(put(put(0, rb_of("rollback ")), stream), rb_of(" "));
      host_log(RB_LOG_INFO, line, put(at, why.v.e.message));
      return rb_passed_on(&why);
    }
    if (!r.v.ou.some) break;
    u64 frame = r.v.ou.v;
    RB_MUST(host_frame_len(frame, &r));
    RB_MUST(host_frame_read(frame, 0, r.v.u, &r));
    take(stream, r.v.s);
    host_frame_drop(frame);
    frames++;
    if (rb_number(rb_config, "letters", 0))
      RB_MUST(host_emit_dlq_record(stream.ptr, stream.len, "{\"id\":1}", 8, "too blue", 8, "data", 4, &r));
    if (rb_number(rb_config, "odd", 0)) {
      RB_MUST(host_checkpoint(1, "{\"id\":1}", 8, &r));
      RB_MUST(rb_destination_checkpoint(1, rb_of("elsewhere"), 1, 1, &r));
    }
    if (every && frames % every == 0) {
      if (rb_number(rb_config, "loose", 0)) {
        rb_add("{\"id\":1,\"kind\":\"source\",\"stream\":\"");
        rb_add_text(stream);
        rb_add("\",\"records_processed\":1,\"bytes_processed\":1}");
        rb_text bare = rb_take();
        RB_MUST(host_checkpoint(1, bare.ptr, bare.len, &r));
      } else
        RB_MUST(rb_destination_checkpoint(++marks, stream, frames, 1, &r));
    }
    if (same(stream, rb_string(rb_config, "fail")) && frames >= rb_number(rb_config, "after", 1)) {
      rb_failed(RB_TRANSIENT_DB, "LOST", "the table went away");
      rb_answer.v.e.retryable = rb_answer.v.e.safe = 1;
      return &rb_answer;
    }
    if (same(stream, rb_string(rb_config, "early"))) break;
    if (same(stream, rb_string(rb_config, "held")))
      for (volatile u32 i = 0;; i++) {}
  }
  RB_MUST(host_state_put(RB_STREAM, "committed", 9, "yes", 3, &r));
  host_log(RB_LOG_INFO, line, put(put(0, rb_of("commit ")), stream));
  RB_MUST(rb_count("records_written", frames, &r));
  return rb_done(frames, 0, frames, marks, 0);
}
