/* A v4 source that does what it is told. Of its config, the key with a stream's name holds that
   stream's script: words with one space between. What may be any text (frames, JSON) stands in
   hexadecimal under a key of its own, which the script names.

   frame KEY | at N (a checkpoint: seq is N) | raw KIND KEY (a checkpoint as it is) | dead KEY N |
   log LEVEL KEY | tell KEY (logs a value of the config) | metric KEY | context (logs it) |
   fail CATEGORY CODE RETRYABLE SAFE AFTER COMMIT (-1: none; KEY message) | put SCOPE KEY VALUE |
   get SCOPE KEY (logs it) | tries N (asks host:port how often it was asked; beyond N the next
   command is left out) | skipped N (in its summary) | wait (until host:port hangs up) | spin | hog | trap | dial KEY (a host) */
#include "rapidbyte.h"

static rb_result r;
static rb_text script;
static u64 frames, bytes, checkpoints, skipped;

static rb_text word(void) {
  rb_text found = {script.ptr, 0};
  while (found.len < script.len && script.ptr[found.len] != ' ') found.len++;
  u32 used = found.len < script.len ? found.len + 1 : found.len;
  script.ptr += used;
  script.len -= used;
  return found;
}
static i64 number(void) {
  rb_text digits = word();
  i64 value = 0;
  int minus = digits.len && digits.ptr[0] == '-';
  for (u32 i = (u32)minus; i < digits.len; i++) value = value * 10 + (digits.ptr[i] - '0');
  return minus ? -value : value;
}
static const char *name(rb_text text) { /* for rb_find, which takes a C string */
  char *copy = rb_alloc(text.len + 1);
  memcpy(copy, text.ptr, text.len);
  copy[text.len] = 0;
  return copy;
}
static u8 half(char c) { return (u8)(c <= '9' ? c - '0' : c - 'a' + 10); }
static rb_text unhex(rb_text key) {
  rb_text given = rb_string(rb_config, name(key));
  char *out = rb_alloc(given.len / 2 + 1);
  for (u32 i = 0; i < given.len / 2; i++)
    out[i] = (char)(half(given.ptr[2 * i]) << 4 | half(given.ptr[2 * i + 1]));
  return (rb_text){out, given.len / 2};
}

RB_EXPORT("open") void *x_open(char *config, u32 n) {
  rb_config = (rb_text){config, n};
  if (rb_flag(rb_config, "refuse", 0)) return rb_refused(RB_AUTH, "NO_ENTRY", "the door is shut");
  if (rb_flag(rb_config, "spin", 0)) for (volatile u32 i = 0;; i++) {}
  return rb_opened(1);
}
RB_EXPORT("discover") void *x_discover(u64 session) {
  rb_text catalog = unhex(rb_of("catalog"));
  return rb_catalog(catalog.ptr, catalog.len);
}
RB_EXPORT("validate") void *x_validate(u64 session) {
  return rb_valid((u8)rb_number(rb_config, "status", 0), "as asked");
}
RB_EXPORT("close") void *x_close(u64 session) { return rb_closed(); }

/* Of the server at host:port: 0 it hung up, else 1 more than the byte that it gave. */
static int asked(u32 *gave) {
  rb_text host = rb_string(rb_config, "host");
  host_connect_tcp(host.ptr, host.len, (u32)rb_number(rb_config, "port", 0), &r);
  if (r.is_err) return 0;
  u64 socket = r.v.u;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    host_socket_read(socket, 1, &r);
    if (r.is_err) return 0;
    if (r.v.sr.tag == 2) continue;
    *gave = r.v.sr.tag == 1 ? 0 : 1 + (u8)r.v.sr.s.ptr[0];
    host_socket_close(socket);
    return 1;
  }
}

static void *step(rb_text stream, rb_text context) {
  rb_text op = word();
  if (rb_is(op, "frame")) {
    u32 mark = rb_mark();
    rb_text data = unhex(word());
    RB_MUST(host_frame_new(data.len, &r));
    u64 frame = r.v.u;
    RB_MUST(host_frame_write(frame, data.ptr, data.len, &r));
    RB_MUST(host_frame_seal(frame, &r));
    RB_MUST(host_emit_batch(frame, &r));
    frames++;
    bytes += data.len;
    rb_release(mark);
  } else if (rb_is(op, "at")) {
    RB_MUST(rb_source_checkpoint(stream, rb_of("seq"), number(), frames, bytes, &r));
    checkpoints++;
  } else if (rb_is(op, "raw")) {
    u32 kind = (u32)number();
    rb_text document = unhex(word());
    RB_MUST(host_checkpoint(kind, document.ptr, document.len, &r));
  } else if (rb_is(op, "dead")) {
    rb_text record = unhex(word());
    for (i64 n = number(); n > 0; n--)
      RB_MUST(host_emit_dlq_record(stream.ptr, stream.len, record.ptr, record.len, "bad name", 8,
                                   "data", 4, &r));
  } else if (rb_is(op, "log")) {
    u32 level = (u32)number();
    rb_text said = unhex(word());
    host_log(level, said.ptr, said.len);
  } else if (rb_is(op, "tell")) {
    rb_text said = rb_string(rb_config, name(word()));
    host_log(RB_LOG_INFO, said.ptr, said.len);
  } else if (rb_is(op, "metric")) {
    rb_text told = unhex(word());
    RB_MUST(host_metric(told.ptr, told.len, &r));
  } else if (rb_is(op, "context")) {
    host_log(RB_LOG_INFO, context.ptr, context.len);
  } else if (rb_is(op, "put")) {
    u32 scope = (u32)number();
    rb_text key = word(), value = word();
    RB_MUST(host_state_put(scope, key.ptr, key.len, value.ptr, value.len, &r));
  } else if (rb_is(op, "get")) {
    u32 scope = (u32)number();
    rb_text key = word();
    RB_MUST(host_state_get(scope, key.ptr, key.len, &r));
    rb_add("got ");
    if (r.v.os.some) rb_add_text(r.v.os.s); else rb_add("nothing");
    rb_say(RB_LOG_INFO);
  } else if (rb_is(op, "tries")) {
    u32 count = 0;
    u64 most = (u64)number();
    if (!asked(&count)) return rb_passed_on(&r);
    if (count - 1 > most) {
      while (script.len && !rb_is(word(), ";")) {}
      return 0;
    }
  } else if (rb_is(op, "wait")) {
    u32 gave = 1;
    while (gave) if (!asked(&gave)) return rb_passed_on(&r);
  } else if (rb_is(op, "dial")) {
    rb_text host = rb_string(rb_config, name(word()));
    RB_MUST(host_connect_tcp(host.ptr, host.len, 9, &r));
  } else if (rb_is(op, "fail")) {
    u8 category = (u8)number();
    const char *code = name(word());
    rb_text message = rb_string(rb_config, "message");
    rb_failed(category, code, "as asked");
    rb_error *e = &rb_answer.v.e;
    if (message.len) e->message = message;
    e->retryable = (u8)number();
    e->safe = (u8)number();
    i64 after = number(), commit = number();
    e->after_some = after >= 0;
    e->after = after >= 0 ? (u64)after : 0;
    e->commit_some = commit >= 0;
    e->commit = commit >= 0 ? (u8)commit : 0;
    e->backoff = 0;
    return &rb_answer;
  } else if (rb_is(op, "skipped")) {
    skipped = (u64)number();
  } else if (rb_is(op, "spin")) {
    for (volatile u32 i = 0;; i++) {}
  } else if (rb_is(op, "hog")) {
    for (;;) { u8 *p = rb_alloc(1 << 20); p[0] = 1; }
  } else if (rb_is(op, "trap")) {
    __builtin_trap();
  } else if (!rb_is(op, ";") && op.len) {
    return rb_failed(RB_INTERNAL, "NO_SUCH_COMMAND", name(op));
  }
  return 0;
}

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *text, u32 n, u32 dry, u32 some, u64 most) {
  rb_text context = {text, n}, stream = rb_string(context, "stream_name");
  script = rb_string(rb_config, name(stream));
  while (script.len) {
    void *answer = step(stream, context);
    if (answer) return answer;
  }
  return rb_done(frames, bytes, frames, checkpoints, skipped);
}
