/* A transform that hands frames on, and does besides what its flat config says:
   hold N            a frame comes out when N more were taken, the rest at the end
   checkpoint_every N, stream "s"   a transform checkpoint after every N frames that it has handed on
   bad_checkpoint 1  one that is none, at its begin
   dead 1            for each frame a dead letter, and not the frame
   lose N            rows of each frame that it does not count as read; it hands on no frame
   mute 1            its summary counts frames only
   fail_at N, retryable 1, fail_key 1   at its N-th frame; with fail_key only the first time, by a key
   trap_at N         likewise, and dies
   count_key 1       counts frames in a key of the stream's
   need_key 1        fails without that key */
#include "arrow.h"

static u64 number(const char *key) { return rb_number(rb_config, key, 0); }
static rb_result r;
static u64 held[4096], first = 0, last = 0, out = 0, frames = 0;

RB_EXPORT("open") void *x_open(char *config, u32 n) { rb_config = (rb_text){config, n}; return rb_opened(1); }
RB_EXPORT("validate") void *x_validate(u64 session) {
  return number("invalid") ? rb_valid(RB_FAILED, "it was told to fail") : rb_valid(RB_SUCCESS, "fine");
}
RB_EXPORT("close") void *x_close(u64 session) { return rb_closed(); }

static void *mark(void) {
  rb_add("{\"id\":"); rb_add_number(out);
  rb_add(",\"kind\":\"transform\",\"stream\":\""); rb_add_text(rb_string(rb_config, "stream"));
  rb_add("\",\"records_processed\":"); rb_add_number(out); rb_add(",\"bytes_processed\":0}");
  rb_text text = rb_take();
  RB_MUST(host_checkpoint(2, text.ptr, text.len, &r));
  return 0;
}

static u64 rows_of(rb_text data) {
  rb_stream batches = {(const u8 *)data.ptr, (const u8 *)data.ptr + data.len, 0, 0, 0};
  u64 rows = 0;
  while (rb_next_columns(&batches) == 1) rows += batches.rows;
  return rows;
}

static void *hand_on(void) {
  RB_MUST(host_emit_batch(held[first++ % 4096], &r));
  out++;
  return 0;
}

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *context, u32 n, u32 dry, u32 some, u64 most) {
  u32 begin = rb_mark();
  u64 rows = 0;
  void *failed;
  if (number("need_key") && !dry) {
    RB_MUST(host_state_get(1, "frames", 6, &r));
    if (!r.v.os.some) return rb_failed(RB_CONFIG, "NO_KEY", "its key is not there");
  }
  if (number("bad_checkpoint")) RB_MUST(host_checkpoint(2, "{\"id\":1}", 8, &r));
  for (;;) {
    rb_release(begin);
    RB_MUST(host_next_batch(&r));
    if (!r.v.ou.some) break;
    u64 from = r.v.ou.v;
    frames++;
    if (number("count_key")) {
      rb_add_number(frames);
      rb_text text = rb_take();
      RB_MUST(host_state_put(1, "frames", 6, text.ptr, text.len, &r));
    }
    if (number("trap_at") == frames && !dry) __builtin_trap();
    if (number("fail_at") == frames && !dry) {
      RB_MUST(host_state_get(1, "failed", 6, &r));
      if (!number("fail_key") || !r.v.os.some) {
        RB_MUST(host_state_put(1, "failed", 6, "yes", 3, &r));
        rb_failed(RB_DATA, "NO_MORE", "it was told to fail");
        rb_answer.v.e.retryable = rb_answer.v.e.safe = number("retryable");
        rb_answer.v.e.after_some = 1;
        rb_answer.v.e.after = 10;
        return &rb_answer;
      }
    }
    RB_MUST(host_frame_len(from, &r));
    u64 size = r.v.u;
    RB_MUST(host_frame_read(from, 0, size, &r));
    rb_text data = r.v.s;
    host_frame_drop(from);
    u64 more = rows_of(data), lose = number("lose");
    rows += more - (more < lose ? more : lose);
    if (number("dead")) {
      RB_MUST(host_emit_dlq_record("s", 1, "{\"id\":7}", 8, "not liked", 9, "data", 4, &r));
      continue;
    }
    if (lose) continue;
    RB_MUST(host_frame_new(size, &r));
    u64 to = r.v.u;
    RB_MUST(host_frame_write(to, (u8 *)data.ptr, data.len, &r));
    RB_MUST(host_frame_seal(to, &r));
    held[last++ % 4096] = to;
    if (last - first > number("hold") && (failed = hand_on())) return failed;
    if (number("checkpoint_every") && frames % number("checkpoint_every") == 0 && (failed = mark())) return failed;
  }
  while (first < last) if ((failed = hand_on())) return failed;
  if (number("mute")) return rb_done(0, 0, 0, 0, frames);
  return rb_done(rows, number("dead") || number("lose") ? 0 : rows, 0, 0, frames);
}
