/* A destination that counts rows and bytes and keeps nothing; or fails as it is told to. Config:
   checkpoint_frames (a checkpoint after so many frames; 0: at the end), fail_after (frames),
   fail_category, fail_retryable, fail_commit_state. */
#include "arrow.h"

static const char *const categories[RB_CATEGORIES] = {
  "config", "auth", "permission", "rate_limit", "transient_network", "transient_db", "data",
  "schema", "internal", "frame"};
static const char *const commit_states[] = {
  "before_commit", "after_commit_unknown", "after_commit_confirmed"};

static int place_in(const char *const *words, u32 count, rb_text word) {
  for (u32 i = 0; i < count; i++)
    if (rb_is(word, words[i])) return (int)i;
  return -1;
}

RB_EXPORT("open") void *destination_open(char *config, u32 n) {
  rb_config = (rb_text){config, n};
  return rb_opened(1);
}
RB_EXPORT("validate") void *destination_validate(u64 session) {
  return rb_valid(RB_WARNING, "it counts what it gets and keeps nothing");
}
RB_EXPORT("close") void *destination_close(u64 session) { return rb_closed(); }

static void *fail(void) {
  int category = place_in(categories, RB_CATEGORIES, rb_string(rb_config, "fail_category"));
  int commit = place_in(commit_states, 3, rb_string(rb_config, "fail_commit_state"));
  rb_failed((u8)(category < 0 ? RB_INTERNAL : category), "AS_ASKED", "it was configured to fail here");
  rb_error *e = &rb_answer.v.e;
  e->retryable = e->safe = (u8)rb_flag(rb_config, "fail_retryable", e->retryable);
  if (commit >= 0) {
    e->commit_some = 1;
    e->commit = (u8)commit;
    if (commit != RB_BEFORE_COMMIT) e->safe = 0;
  }
  return &rb_answer;
}

RB_EXPORT("run") void *destination_run(u64 session, u32 phase, char *text, u32 n, u32 dry_run,
                                       u32 some, u64 most) {
  rb_result r;
  rb_text context = {text, n}, stream = rb_string(context, "stream_name");
  u64 every = rb_number(rb_config, "checkpoint_frames", 1), stop = rb_number(rb_config, "fail_after", 0);
  u64 rows = 0, bytes = 0, frames = 0, checkpoints = 0, covered = 0;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    RB_MUST(host_next_batch(&r));
    if (!r.v.ou.some) break;
    u64 frame = r.v.ou.v;
    RB_MUST(host_frame_len(frame, &r));
    RB_MUST(host_frame_read(frame, 0, r.v.u, &r));
    host_frame_drop(frame);
    rb_stream batches = {(u8 *)r.v.s.ptr, (u8 *)r.v.s.ptr + r.v.s.len};
    bytes += r.v.s.len;
    int more;
    while ((more = rb_next_columns(&batches)) == 1) rows += batches.rows;
    if (more < 0) return rb_failed(RB_FRAME, "NO_ARROW", "a frame is no Arrow stream");
    frames++;
    if (every && frames % every == 0) {
      RB_MUST(rb_destination_checkpoint(++checkpoints, stream, rows, bytes, &r));
      covered = frames;
    }
    if (stop && frames >= stop) return fail();
  }
  if (covered < frames) RB_MUST(rb_destination_checkpoint(++checkpoints, stream, rows, bytes, &r));
  RB_MUST(rb_count("records_written", rows, &r));
  rb_add_number(rows); rb_add(" rows, "); rb_add_number(bytes); rb_add(" bytes");
  rb_say(RB_LOG_INFO);
  return rb_done(rows, bytes, frames, checkpoints, 0);
}
