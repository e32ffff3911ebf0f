/* A v4 destination that tells a TCP peer (config: host, port) everything and does what it answers.
   One connection a run, made when its first frame is there; of a run without one the peer hears
   nothing. A message is a letter, a length (4 bytes, little endian) and that many
   bytes: B the context, F a frame, E the end, X the error that came in place of it. The peer answers
   each with a letter: k go on | c a checkpoint of everything so far | d, D a dead letter, then k or c |
   f fail as the config says (category, retryable, safe, after_ms, commit; code OBEYED) | t trap |
   s spin | w end well at once. Each frame counts in its stream's key "frames" and, by swapping, in the
   pipeline's key "total". */
#include "arrow.h"

static rb_result r;
static u64 rows, bytes, frames, checkpoints, peer;

RB_EXPORT("open") void *x_open(char *p, u32 n) {
  rb_config = (rb_text){p, n};
  return rb_opened(1);
}
RB_EXPORT("validate") void *x_validate(u64 s) { return rb_valid(RB_SUCCESS, "as asked"); }
RB_EXPORT("close") void *x_close(u64 s) { return rb_closed(); }

static int sent(const char *data, u32 size) {
  while (size) {
    host_socket_write(peer, data, size, &r);
    if (r.is_err) return 0;
    if (r.v.sw.tag == 1) continue;
    data += r.v.sw.v;
    size -= (u32)r.v.sw.v;
  }
  return 1;
}
/* The peer's letter; 0: the call failed, 1: it hung up. */
static char said(char kind, rb_text what) {
  char head[5] = {kind, (char)what.len, (char)(what.len >> 8), (char)(what.len >> 16),
                  (char)(what.len >> 24)};
  if (!sent(head, 5) || !sent(what.ptr, what.len)) return 0;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    host_socket_read(peer, 1, &r);
    if (r.is_err) return 0;
    if (r.v.sr.tag == 0) return r.v.sr.s.ptr[0];
    if (r.v.sr.tag == 1) return 1;
  }
}
static void *failed(void) {
  rb_failed((u8)rb_number(rb_config, "category", RB_TRANSIENT_DB), "OBEYED", "the peer wants it");
  rb_error *e = &rb_answer.v.e;
  e->retryable = (u8)rb_flag(rb_config, "retryable", 1);
  e->safe = (u8)rb_flag(rb_config, "safe", 1);
  u64 after = rb_number(rb_config, "after_ms", 0), commit = rb_number(rb_config, "commit", 0);
  e->after_some = after > 0;
  e->after = after;
  e->commit_some = commit > 0;
  e->commit = (u8)(commit - 1);
  e->backoff = 0;
  return &rb_answer;
}
static rb_text number(u64 value) {
  static char digits[24];
  u32 at = sizeof digits;
  do digits[--at] = (char)('0' + value % 10); while (value /= 10);
  return (rb_text){digits + at, (u32)sizeof digits - at};
}
static u64 number_in(rb_text text) {
  u64 value = 0;
  for (u32 i = 0; i < text.len; i++) value = value * 10 + (u64)(text.ptr[i] - '0');
  return value;
}
static void *counted(void) {
  host_state_get(RB_STREAM, "frames", 6, &r);
  if (r.is_err) return rb_passed_on(&r);
  rb_text next = number(r.v.os.some ? number_in(r.v.os.s) + 1 : 1);
  RB_MUST(host_state_put(RB_STREAM, "frames", 6, next.ptr, next.len, &r));
  for (;;) {
    host_state_get(RB_PIPELINE, "total", 5, &r);
    if (r.is_err) return rb_passed_on(&r);
    u32 some = r.v.os.some;
    rb_text old = r.v.os.s, more = number(some ? number_in(old) + 1 : 1);
    host_state_cas(RB_PIPELINE, "total", 5, some, old.ptr, old.len, more.ptr, more.len, &r);
    if (r.is_err) return rb_passed_on(&r);
    if (r.v.b) return 0;
  }
}
/* 0: go on. */
static void *done(rb_text stream, char letter) {
  switch (letter) {
    case 0: return rb_passed_on(&r);
    case 1: return rb_failed(RB_TRANSIENT_NETWORK, "HUNG_UP", "the peer hung up");
    case 'd':
    case 'D':
      rb_add("{\"frame\":"); rb_add_number(frames); rb_add("}");
      rb_text record = rb_take();
      RB_MUST(host_emit_dlq_record(stream.ptr, stream.len, record.ptr, record.len, "not liked", 9,
                                   "data", 4, &r));
      if (letter == 'd') return 0; /* fall through */
    case 'c':
      RB_MUST(rb_destination_checkpoint(++checkpoints, stream, rows, bytes, &r));
      return 0;
    case 'f': return failed();
    case 't': __builtin_trap();
    case 's': for (volatile u32 i = 0;; i++) {}
    case 'w': return rb_done(rows, bytes, frames, checkpoints, 0);
    default: return 0;
  }
}

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *text, u32 n, u32 dry, u32 some, u64 most) {
  rb_text context = {text, n}, stream = rb_string(context, "stream_name");
  void *answer = 0;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    host_next_batch(&r);
    if (!peer) {
      if (!r.is_err && !r.v.ou.some) return rb_done(0, 0, 0, 0, 0);
      rb_result first = r;
      rb_text host = rb_string(rb_config, "host");
      host_connect_tcp(host.ptr, host.len, (u32)rb_number(rb_config, "port", 0), &r);
      if (r.is_err) return rb_passed_on(&r);
      peer = r.v.u;
      if ((answer = done(stream, said('B', context)))) break;
      r = first;
    }
    if (r.is_err) {
      rb_result why = r;
      said('X', why.v.e.message);
      return rb_passed_on(&why);
    }
    if (!r.v.ou.some) {
      answer = done(stream, said('E', (rb_text){0, 0}));
      break;
    }
    u64 frame = r.v.ou.v;
    RB_MUST(host_frame_len(frame, &r));
    RB_MUST(host_frame_read(frame, 0, r.v.u, &r));
    host_frame_drop(frame);
    rb_text data = r.v.s;
    frames++;
    bytes += data.len;
    rb_stream batches = {(const u8 *)data.ptr, (const u8 *)data.ptr + data.len, 0, 0, 0};
    while (rb_next_columns(&batches) == 1) rows += batches.rows;
    if ((answer = counted())) return answer;
    if ((answer = done(stream, said('F', data)))) break;
  }
  host_socket_close(peer);
  return answer ? answer : rb_done(rows, bytes, frames, checkpoints, 0);
}
