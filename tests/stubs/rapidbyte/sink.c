/* A v4 destination that says in its log all that it is given: "begin CONTEXT", "take STREAM HEX",
   "commit STREAM", "rollback STREAM WHY"; what it commits has a key "committed". Of a run without a
   frame it says only "opened CONTEXT", with a checkpoint. Config, flat: "every": frames to a
   checkpoint (0: none); "fail": a stream whose run fails after "after" frames; "early": one whose
   run ends well after its first frame; "letters": dead letters a frame, each of a
   record of its own, unless "repeats" of them each are of one, with "reasons" for
   another reason; "odd": checkpoints that are
   none, or another's; "loose": its checkpoints say that they are a source's; "held": a stream that
   takes frames and never ends; "unopened": a stream whose empty run fails; "kept": an empty
   run has a dead letter, as of a record that an earlier run kept. "watermark": as v4's own
   Postgres destination it keeps with each checkpoint how many rows of the run are committed, skips
   as many of the next run ("skip STREAM"), and forgets it where a run ends well ("forgets", any text:
   never, but for an empty run). "lose": rows of each
   frame that it does not write; "own_up": its summary counts them as failed; "mute": it counts
   nothing at all; "bytes": it counts only those. */
#include "arrow.h"

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

static u64 rows_of(rb_text data) {
  rb_stream batches = {(const u8 *)data.ptr, (const u8 *)data.ptr + data.len, 0, 0, 0};
  u64 rows = 0;
  while (rb_next_columns(&batches) == 1) rows += batches.rows;
  return rows;
}

static void *keep_watermark(u64 rows) {
  rb_add_number(rows);
  rb_text digits = rb_take();
  RB_MUST(host_state_put(RB_STREAM, "watermark", 9, digits.ptr, digits.len, &r));
  return 0;
}

static u64 watermark(void) {
  u64 rows = 0;
  host_state_get(RB_STREAM, "watermark", 9, &r);
  if (r.is_err || !r.v.os.some) return 0;
  for (u32 i = 0; i < r.v.os.s.len; i++) rows = rows * 10 + (u64)(r.v.os.s.ptr[i] - '0');
  return rows;
}

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *text, u32 n, u32 dry, u32 some, u64 most) {
  rb_text context = {text, n}, stream = rb_string(context, "stream_name");
  u64 every = rb_number(rb_config, "every", 0), lose = rb_number(rb_config, "lose", 0), frames = 0, marks = 0;
  u64 keeps = rb_number(rb_config, "watermark", 0), skip = keeps ? watermark() : 0;
  u64 seen = 0, rows = 0, lost = 0, size = 0, letters = 0;
  void *failed;
  u32 at, mark = rb_mark();
  for (;;) {
    rb_release(mark);
    host_next_batch(&r);
    if (!frames && (r.is_err || r.v.ou.some)) {
      at = put(put(0, rb_of("begin ")), context);
      host_log(RB_LOG_INFO, line, at);
    }
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
    rb_text data = r.v.s;
    u64 more = rows_of(data);
    host_frame_drop(frame);
    frames++;
    if (seen < skip) {
      seen += more;
      host_log(RB_LOG_INFO, line, put(put(0, rb_of("skip ")), stream));
      continue;
    }
    take(stream, data);
    size += more > lose ? data.len : 0;
    lost += more < lose ? more : lose;
    rows += more - (more < lose ? more : lose);
    for (u64 i = 0; i < rb_number(rb_config, "letters", 0); i++) {
      rb_add("{\"id\":");
      u64 repeats = rb_number(rb_config, "repeats", 1), again = letters % repeats;
      rb_add_number(letters++ / repeats + 1);
      rb_add("}");
      rb_text record = rb_take();
      rb_text why = rb_of(again && rb_number(rb_config, "reasons", 0) ? "too red" : "too blue");
      RB_MUST(host_emit_dlq_record(stream.ptr, stream.len, record.ptr, record.len, why.ptr, why.len, "data", 4, &r));
    }
    if (rb_number(rb_config, "odd", 0)) {
      RB_MUST(host_checkpoint(1, "{\"id\":1}", 8, &r));
      RB_MUST(rb_destination_checkpoint(1, rb_of("elsewhere"), 1, 1, &r));
    }
    if (every && frames % every == 0) {
      if (keeps && (failed = keep_watermark(rows))) return failed;
      if (rb_number(rb_config, "loose", 0)) {
        rb_add("{\"id\":1,\"kind\":\"source\",\"stream\":\"");
        rb_add_text(stream);
        rb_add("\",\"records_processed\":1,\"bytes_processed\":1}");
        rb_text bare = rb_take();
        RB_MUST(host_checkpoint(1, bare.ptr, bare.len, &r));
      } else
        RB_MUST(rb_destination_checkpoint(++marks, stream, rows, 1, &r));
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
  if (!frames && same(stream, rb_string(rb_config, "unopened"))) {
    rb_failed(RB_TRANSIENT_DB, "LOST", "the table cannot be opened");
    rb_answer.v.e.retryable = rb_answer.v.e.safe = 1;
    return &rb_answer;
  }
  if (keeps && (failed = keep_watermark(rb_string(rb_config, "forgets").len ? rows : 0))) return failed;
  if (!frames) {
    host_log(RB_LOG_INFO, line, put(put(0, rb_of("opened ")), context));
    if (rb_number(rb_config, "kept", 0))
      RB_MUST(host_emit_dlq_record(stream.ptr, stream.len, "{\"id\":1}", 8, "too old", 7, "data", 4, &r));
    RB_MUST(rb_destination_checkpoint(++marks, stream, 0, 0, &r));
    return rb_done(0, 0, 0, marks, 0);
  }
  RB_MUST(host_state_put(RB_STREAM, "committed", 9, "yes", 3, &r));
  host_log(RB_LOG_INFO, line, put(put(0, rb_of("commit ")), stream));
  RB_MUST(rb_count("records_written", rows, &r));
  if (rb_number(rb_config, "mute", 0)) return rb_done(0, 0, 0, 0, 0);
  if (rb_number(rb_config, "bytes", 0)) return rb_done(0, size, 0, marks, 0);
  if (keeps || lose) RB_MUST(rb_destination_checkpoint(++marks, stream, rows, 1, &r));
  if (!rows && !lost) return rb_done(0, 0, 0, 0, 0);
  return rb_done(rows, size, rows ? frames : 0, marks, rb_number(rb_config, "own_up", 0) ? lost : 0);
}
