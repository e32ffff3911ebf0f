/* A v4 connector on the C SDK of examples/rapidbyte. Its config is JSON with flat keys; "mode" says
   what it does, well-behaved or hostile. */
#include "rapidbyte.h"

static u64 number(const char *key, u64 otherwise) { return rb_number(rb_config, key, otherwise); }
static rb_text text(const char *key) { return rb_string(rb_config, key); }
static int mode(const char *m) { return rb_is(text("mode"), m); }
static void say(void) { rb_say(RB_LOG_INFO); }
static u64 digest(const u8 *p, u64 n) {
  u64 h = 1469598103934665603ull;
  for (u64 i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211ull;
  return h;
}

static rb_result R, r;
static u64 sessions = 0;

static void poll_peer(void) { /* until the host has had enough */
  rb_text host = text("host");
  host_connect_tcp(host.ptr, host.len, (u32)number("port", 0), &r);
  u64 h = r.v.u;
  u32 mark = rb_mark();
  while (!r.is_err) { rb_release(mark); host_socket_read(h, 10, &r); }
  if (mode("polls-on")) for (;;) { rb_release(mark); host_socket_read(h, 10, &r); }
}

RB_EXPORT("open") void *x_open(char *p, u32 n) {
  rb_config = (rb_text){p, n};
  if (mode("open-trap")) __builtin_trap();
  if (mode("open-err")) {
    R.is_err = 1;
    rb_make_error(&R.v.e, 0, "BAD_CONFIG", "caf\xc3\xa9: bad config");
    R.v.e.scope = 1;
    R.v.e.retryable = 1;
    R.v.e.after_some = 1;
    R.v.e.after = 1500;
    R.v.e.backoff = 2;
    R.v.e.safe = 1;
    R.v.e.commit_some = 1;
    R.v.e.commit = 0;
    R.v.e.details_some = 1;
    R.v.e.details = (rb_text){"{\"at\":[1]}", 10};
    return &R;
  }
  if (mode("echo-err")) { /* its whole configuration, again and again */
    u32 times = (u32)number("n", 1);
    char *all = rb_alloc(rb_config.len * times);
    for (u32 i = 0; i < times; i++) memcpy(all + i * rb_config.len, rb_config.ptr, rb_config.len);
    R.is_err = 1;
    rb_make_error(&R.v.e, 1, "ECHO", "");
    R.v.e.message = (rb_text){all, rb_config.len * times};
    R.v.e.details_some = 1;
    R.v.e.details = rb_config;
    return &R;
  }
  if (mode("open-flood"))
    for (u64 i = 0; i < number("n", 0); i++) {
      host_log(2, "again", 5);
      host_emit_dlq_record("s", 1, "{}", 2, "why", 3, "data", 4, &r);
      host_frame_new(0, &r);
      u64 f = r.v.u;
      host_frame_write(f, (u8 *)"x", 1, &r);
      host_frame_seal(f, &r);
      host_emit_batch(f, &r);
    }
  R.is_err = 0;
  R.v.u = ++sessions;
  return &R;
}
#ifdef ROLE_SOURCE
static const char catalog[] =
    "{\"streams\":[{\"name\":\"numbers\",\"schema\":[{\"name\":\"id\",\"data_type\":\"Int64\","
    "\"nullable\":false}],\"supported_sync_modes\":[\"full_refresh\"],\"future\":1}]}";
RB_EXPORT("discover") void *x_discover(u64 s) {
  if (mode("polls") || mode("polls-on")) poll_peer();
  R.is_err = 0;
  R.v.s = (rb_text){catalog, sizeof catalog - 1};
  if (mode("bad-catalog")) R.v.s.len = 10;
  return &R;
}
#endif
RB_EXPORT("validate") void *x_validate(u64 s) {
  static struct { u8 is_err, _p[7]; struct { u8 status, _p[3]; rb_text message, warnings; } v; u8 pad[64]; } V;
  static rb_text w[2];
  if (mode("polls") || mode("polls-on")) poll_peer();
  V.v.status = (u8)number("status", 0);
  V.v.message = mode("echo-validate") ? rb_config : (rb_text){"as asked", 8};
  w[0] = (rb_text){"w0", 2};
  w[1] = (rb_text){"w1", 2};
  V.v.warnings = (rb_text){(char *)w, 2};
  return &V;
}
RB_EXPORT("close") void *x_close(u64 s) {
  if (mode("close-trap")) __builtin_trap();
  if (mode("close-puts")) host_state_put(1, "closed", 6, "yes", 3, &r);
  host_log(3, "closed", 6);
  R.is_err = 0;
  return &R;
}

#define MUST RB_MUST
static void *done(u64 a, u64 b, u64 c, u64 d, u64 e) {
  rb_done(a, b, c, d, e);
  if (mode("no-summary")) rb_answer.v.s.part[RB_ROLE_NUMBER].some = 0;
  return &rb_answer;
}
static void *failed(u8 category, const char *code, const char *message) {
  rb_failed(category, code, message);
  rb_answer.v.e.scope = rb_answer.v.e.retryable = rb_answer.v.e.safe = 0;
  return &rb_answer;
}

/* what a call gave, in one line */
static void tell(const char *what) {
  rb_add(what);
  if (!r.is_err) { rb_add(" ok"); return; }
  rb_add(" err ");
  rb_add_number(r.v.e.category); rb_add(" "); rb_add_number(r.v.e.scope); rb_add(" ");
  rb_add_text(r.v.e.code); rb_add(" ");
  rb_add_text(r.v.e.message); rb_add(" ");
  rb_add_number(r.v.e.retryable); rb_add_number(r.v.e.after_some); rb_add_number(r.v.e.backoff); rb_add_number(r.v.e.safe);
  rb_add_number(r.v.e.commit_some); rb_add_number(r.v.e.details_some);
}
static void tell_u(const char *what) { tell(what); if (!r.is_err) { rb_add(" "); rb_add_number(r.v.u); } say(); }
static void tell_unit(const char *what) { tell(what); say(); }
static void tell_bytes(const char *what) {
  tell(what);
  if (!r.is_err) { rb_add(" "); rb_add_number(r.v.s.len); rb_add(" "); rb_add_number(digest((u8 *)r.v.s.ptr, r.v.s.len)); }
  say();
}

/* every host function that both ways of hosting can answer, right and wrong */
static void *probe(void) {
  u32 mark;
  u8 *buf = rb_alloc(100000);
  for (u32 i = 0; i < 100000; i++) buf[i] = (u8)(i * 131 + (i >> 7));
  mark = rb_mark();
  host_frame_new(64, &r); tell_u("new");
  u64 f = r.v.u;
  static const u32 sizes[] = {0, 1, 7, 8, 105, 106, 111, 112, 113, 1000, 4097, 65536, 100000};
  for (u32 i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    rb_release(mark); host_frame_write(f, buf + i, sizes[i] - (sizes[i] == 100000 ? 12 : 0), &r); tell_u("write");
  }
  host_frame_len(f, &r); tell_u("len");
  u64 n = r.v.u;
  host_frame_read(f, 0, 1, &r); tell_bytes("read unsealed");
  host_emit_batch(f, &r); tell_unit("emit unsealed");
  host_frame_seal(f, &r); tell_unit("seal");
  host_frame_seal(f, &r); tell_unit("seal again");
  host_frame_write(f, buf, 3, &r); tell_u("write sealed");
  for (u64 o = 0; o < n; o += 65521) {
    u64 c = n - o < 65521 ? n - o : 65521;
    rb_release(mark); host_frame_read(f, o, c, &r); tell_bytes("read");
  }
  rb_release(mark); host_frame_read(f, 3, 0, &r); tell_bytes("read nothing");
  host_frame_read(f, n, 0, &r); tell_bytes("read nothing at the end");
  host_frame_read(f, n - 1, 2, &r); tell_bytes("read beyond");
  host_frame_read(f, ~0ull, 1, &r); tell_bytes("read far beyond");
  host_frame_read(f, 1, ~0ull, &r); tell_bytes("read too much");
  host_frame_read(f + 7, 0, 0, &r); tell_bytes("read nothing of nothing");
  host_frame_read(f + 7, 0, 9, &r); tell_bytes("read of nothing");
  host_emit_batch(f, &r); tell_unit("emit");
  host_emit_batch(f, &r); tell_unit("emit again");
  host_frame_len(f, &r); tell_u("len of the spent");
  host_frame_write(f, buf, 1, &r); tell_u("write to the spent");
  host_frame_new(0, &r); tell_u("new");
  u64 a = r.v.u;
  host_frame_new(~0ull, &r); tell_u("new, huge capacity");
  u64 b = r.v.u;
  for (u32 i = 0; i < 50; i++) {      /* two frames in turn */
    host_frame_write(a, buf + i, i, &r); tell_u("a");
    host_frame_write(b, buf + i, 2 * i, &r); tell_u("b");
  }
  host_frame_drop(a); host_frame_drop(a); host_frame_drop(12345);
  host_frame_write(a, buf, 1, &r); tell_u("write to the dropped");
  host_frame_seal(b, &r); tell_unit("seal b");
  rb_release(mark); host_frame_read(b, 0, 2450, &r); tell_bytes("read b");
  host_emit_batch(b, &r); tell_unit("emit b");
  host_frame_new(0, &r); host_frame_seal(r.v.u, &r); tell_unit("seal the empty");
  host_emit_batch(b + 1, &r); tell_unit("emit the empty");
  host_frame_new(0, &r); tell_u("sealed, then dropped");
  a = r.v.u;
  host_frame_write(a, buf, 500, &r); tell_u("write");
  host_frame_seal(a, &r); tell_unit("seal");
  host_frame_drop(a);
  host_emit_batch(a, &r); tell_unit("emit the dropped");
  host_frame_new(0, &r); tell_u("sealed, then another begun");
  a = r.v.u;
  host_frame_write(a, buf + 9, 777, &r); tell_u("write");
  host_frame_seal(a, &r); tell_unit("seal");
  host_frame_new(0, &r); tell_u("new");
  b = r.v.u;
  host_frame_write(b, buf + 3, 333, &r); tell_u("write");
  host_frame_len(a, &r); tell_u("len of the first");
  host_emit_batch(a, &r); tell_unit("emit the first");
  host_frame_write(b, buf + 4, 44, &r); tell_u("write");
  host_frame_len(b, &r); tell_u("len");
  host_frame_seal(b, &r); tell_unit("seal");
  host_frame_len(b, &r); tell_u("len of the sealed");
  host_frame_seal(b, &r); tell_unit("seal again");
  host_emit_batch(b, &r); tell_unit("emit");
  host_frame_new(0, &r); tell_u("emitted at once, unsealed");
  host_emit_batch(r.v.u, &r); tell_unit("emit");
  host_frame_new(0, &r); tell_u("read before it is sealed");
  a = r.v.u;
  host_frame_write(a, buf, 70000, &r); tell_u("write");
  host_frame_write(a, buf, 70000, &r); tell_u("write");
  rb_release(mark); host_frame_read(a, 0, 100, &r); tell_bytes("read");
  host_frame_seal(a, &r); tell_unit("seal");
  rb_release(mark); host_frame_read(a, 69000, 2000, &r); tell_bytes("read");
  host_frame_write(a, buf, 1, &r); tell_u("write");
  host_frame_drop(a);
  host_checkpoint(9, "{}", 2, &r); tell_unit("checkpoint of no kind");
  host_checkpoint(RB_ROLE_NUMBER, "{", 1, &r); tell_unit("checkpoint of no JSON");
  host_metric("{", 1, &r); tell_unit("metric of no JSON");
  host_metric("{}", 2, &r); tell_unit("metric of nothing");
  host_state_put(7, "k", 1, "v", 1, &r); tell_unit("put in no scope");
  host_state_put(1, "k", 1, "caf\xc3\xa9", 5, &r); tell_unit("put");
  rb_release(mark); host_state_get(1, "k", 1, &r); tell("get"); rb_add_number(r.v.os.some); rb_add_text(r.v.os.s); say();
  host_state_get(0, "k", 1, &r); tell("get none"); rb_add_number(r.v.os.some); say();
  host_state_cas(1, "k", 1, 0, 0, 0, "w", 1, &r); tell("cas none"); rb_add_number(r.v.b); say();
  host_state_cas(1, "k", 1, 1, "caf\xc3\xa9", 5, "", 0, &r); tell("cas"); rb_add_number(r.v.b); say();
  rb_release(mark); host_state_get(1, "k", 1, &r); tell("get empty"); rb_add_number(r.v.os.some); rb_add_number(r.v.os.s.len); say();
  host_connect_tcp("elsewhere.example", 17, 5432, &r); tell_u("connect");
  host_socket_close(99);
  host_emit_dlq_record("s", 1, "{\"a\":1}", 7, "why", 3, "data", 4, &r); tell_unit("dead letter");
  return done(1, 2, 3, 4, 5);
}

/* frame calls in any order, right and wrong, from a seed */
static u32 dice_state;
static u32 dice(u32 n) {
  dice_state = dice_state * 1664525u + 1013904223u;
  return (dice_state >> 8) % n;
}
static void *random_frames(void) {
  dice_state = (u32)number("seed", 1);
  u64 steps = number("steps", 100), newest = 0;
  u8 *buf = rb_alloc(8192);
  for (u32 i = 0; i < 8192; i++) buf[i] = (u8)(i * 37 + (i >> 6));
  u32 mark = rb_mark();
  for (u64 i = 0; i < steps; i++) {
    rb_release(mark);
    u64 h = newest + 1 - dice(newest < 3 ? (u32)newest + 2 : 4); /* at times one that is not there */
    u32 size = dice(3) ? dice(400) : dice(8000);
    rb_add_number(i); rb_add(" "); rb_add_number(h);
    switch (dice(12)) {
      case 0: case 1: host_frame_new(size, &r); if (!r.is_err) newest = r.v.u; tell_u(" new"); break;
      case 2: case 3: case 4: case 5: case 6: host_frame_write(h, buf + dice(100), size, &r); tell_u(" write"); break;
      case 7: host_frame_seal(h, &r); tell_unit(" seal"); break;
      case 8: host_frame_len(h, &r); tell_u(" len"); break;
      case 9: host_frame_read(h, dice(50), size, &r); tell_bytes(" read"); break;
      case 10: if (dice(4)) rb_take(); else { host_frame_drop(h); rb_add(" drop"); say(); } break;
      default: host_frame_seal(h, &r); tell_unit(" seal"); host_emit_batch(h, &r); tell_unit(" emit"); break;
    }
  }
  return done(newest, 0, 0, 0, 0);
}

/* what only a wrapped guest can be told */
static void *probe_errors(void) {
  host_next_batch(&r); tell("next"); rb_add_number(r.v.ou.some); say();
  host_state_get(9, "k", 1, &r); tell("get"); say();
  u8 big[1025];
  memset(big, 'k', sizeof big);
  host_state_get(0, big, sizeof big, &r); tell("get"); say();
  host_socket_read(77, 10, &r); tell("socket-read"); say();
  host_socket_write(77, big, 10, &r); tell("socket-write"); say();
  return done(0, 0, 0, 0, 0);
}

static void *tcp(void) {
  rb_text host = text("host");
  u64 port = number("port", 0), total = number("bytes", 65536), chunk = number("chunk", 16384);
  MUST(host_connect_tcp(host.ptr, host.len, (u32)port, &r));
  u64 h = r.v.u, sent = 0, got = 0, blocked_r = 0, blocked_w = 0;
  u8 *buf = rb_alloc((u32)chunk);
  for (u32 i = 0; i < chunk; i++) buf[i] = (u8)(i * 7 + 3);
  u32 mark = rb_mark();
  while (got < total) {
    if (sent < total) {
      u64 at = sent % chunk, want = total - sent < chunk - at ? total - sent : chunk - at;
      MUST(host_socket_write(h, buf + at, (u32)want, &r));
      if (r.v.sw.tag == 0) sent += r.v.sw.v; else blocked_w++;
    }
    rb_release(mark);
    MUST(host_socket_read(h, chunk, &r));
    if (r.v.sr.tag == 0) {
      u8 *q = (u8 *)r.v.sr.s.ptr;
      for (u32 i = 0; i < r.v.sr.s.len; i++)
        if (q[i] != (u8)(((got + i) % chunk) * 7 + 3)) return failed(6, "WRONG_BYTES", "not what was sent");
      got += r.v.sr.s.len;
    } else if (r.v.sr.tag == 1) break;
    else blocked_r++;
  }
  host_socket_close(h);
  return done(sent, got, blocked_r, blocked_w, 0);
}

static void *hostile(void) {
  u64 n = number("n", 10000);
  if (mode("trap")) __builtin_trap();
  if (mode("spin")) for (volatile u32 i = 0;; i++) {}
  if (mode("spin-through-host")) for (;;) host_frame_len(1, &r);
  if (mode("hog")) for (;;) { u8 *p = rb_alloc(1 << 20); p[0] = 1; }
  if (mode("logs")) { for (u64 i = 0; i < n; i++) host_log(2, "again", 5); return done(n, 0, 0, 0, 0); }
  if (mode("hoard")) {
    for (u64 i = 0; i < n; i++) { MUST(host_frame_new(1, &r)); MUST(host_frame_write(r.v.u, (u8 *)"x", 1, &r)); }
    return done(n, 0, 0, 0, 0);
  }
  if (mode("grow-frame")) {
    u32 piece = (u32)number("piece", 1 << 20);
    u8 *p = rb_alloc(piece);
    MUST(host_frame_new(0, &r));
    u64 h = r.v.u;
    for (u64 i = 0; i < n; i++) MUST(host_frame_write(h, p, piece, &r));
    MUST(host_frame_seal(h, &r));
    return done(n, 0, 0, 0, 0);
  }
  if (mode("write-all")) { /* a list as long as memory allows */
    u32 size = (u32)number("size", 0);
    u8 *p = rb_alloc(size);
    MUST(host_frame_new(0, &r));
    MUST(host_frame_write(r.v.u, p, size, &r));
    return done(size, 0, 0, 0, 0);
  }
  if (mode("list-beyond")) { MUST(host_frame_new(0, &r)); host_frame_write(r.v.u, (u8 *)16, 0xfffffff0u, &r); return done(0, 0, 0, 0, 0); }
  if (mode("deep-json")) {
    char *p = rb_alloc((u32)n);
    memset(p, '[', (u32)n);
    host_checkpoint(0, p, (u32)n, &r); tell_unit("checkpoint");
    host_metric(p, (u32)n, &r); tell_unit("metric");
    return done(0, 0, 0, 0, 0);
  }
  if (mode("bad-text")) { host_log(2, "\xff\xfe", 2); return done(0, 0, 0, 0, 0); }
  if (mode("connect-twice")) {
    rb_text host = text("host"), ip = text("ip");
    MUST(host_connect_tcp(host.ptr, host.len, (u32)number("port", 0), &r));
    MUST(host_connect_tcp(ip.ptr, ip.len, (u32)number("port", 0), &r));
    return done(2, 0, 0, 0, 0);
  }
  if (mode("nul-host")) { /* one host to a pattern, another to a resolver that cuts */
    MUST(host_connect_tcp("127.0.0.1\0.corp.test", 20, (u32)number("port", 0), &r));
    return done(1, 0, 0, 0, 0);
  }
  if (mode("second-host")) { /* the first one was optional */
    rb_text denied = text("denied"), host = text("host");
    host_connect_tcp(denied.ptr, denied.len, 1, &r);
    MUST(host_connect_tcp(host.ptr, host.len, (u32)number("port", 0), &r));
    failed(5, "GONE", "the table went away");
    rb_answer.v.e.retryable = rb_answer.v.e.safe = 1;
    return &rb_answer;
  }
  if (mode("levels")) {
    for (u64 i = 0; i < n; i++) host_log(3, "again", 5);
    host_log(1, "a warning", 9);
    host_log(0, "an error", 8);
    return done(0, 0, 0, 0, 0);
  }
  if (mode("many-sockets")) {
    rb_text host = text("host");
    for (u64 i = 0; i < n; i++) MUST(host_connect_tcp(host.ptr, host.len, (u32)number("port", 0), &r));
    return done(n, 0, 0, 0, 0);
  }
  if (mode("hide-error")) { /* as SDK guests do: the host's error comes back as one of their own */
    rb_text host = text("host");
    host_connect_tcp(host.ptr, host.len, 1, &r);
    failed(4, "CONNECT", "could not connect");
    rb_answer.v.e.retryable = 1;
    rb_answer.v.e.safe = 1;
    return &rb_answer;
  }
  return 0;
}

static u8 hex(char c) { return (u8)(c <= '9' ? c - '0' : c - 'a' + 10); }

#ifdef ROLE_SOURCE
static void *read_stream(void) {
  u64 frames = number("frames", 4), chunk = number("chunk", 0), size = number("size", 1000);
  rb_text given = text("frame"); /* hexadecimal */
  if (given.len) size = given.len / 2;
  u8 *buf = rb_alloc((u32)size);
  u32 mark = rb_mark();
  u64 bytes = 0;
  for (u64 k = 0; k < frames; k++) {
    rb_release(mark);
    if (given.len) for (u32 i = 0; i < size; i++) buf[i] = (u8)(hex((given.ptr)[2 * i]) << 4 | hex((given.ptr)[2 * i + 1]));
    else if (!k || !number("same", 0)) for (u32 i = 0; i < size; i++) buf[i] = (u8)(i * 31 + (i >> 8) + k);
    MUST(host_frame_new(size, &r));
    u64 h = r.v.u, c = chunk ? chunk : size;
    for (u64 o = 0; o < size; o += c) MUST(host_frame_write(h, buf + o, (u32)(size - o < c ? size - o : c), &r));
    MUST(host_frame_seal(h, &r));
    MUST(host_emit_batch(h, &r));
    bytes += size;
    if (number("checkpoints", 0)) {
      rb_add("{\"protocol_version\":\"4\",\"connector_id\":\"c\",\"stream_name\":\"numbers\",\"payload\":{\"id\":0,\"kind\":\"source\",\"stream\":\"numbers\",\"cursor_field\":\"id\",\"cursor_value\":{\"type\":\"utf8\",\"value\":\"");
      rb_add_number(k + 1);
      rb_add("\"},\"records_processed\":1,\"bytes_processed\":2}}");
      rb_text mark_text = rb_take();
      MUST(host_checkpoint(0, mark_text.ptr, mark_text.len, &r));
      static const char metric[] = "{\"name\":\"records_read\",\"value\":{\"type\":\"counter\",\"value\":2},\"labels\":[[\"s\",\"numbers\"]]}";
      MUST(host_metric(metric, sizeof metric - 1, &r));
      MUST(host_emit_dlq_record("numbers", 7, "{\"id\":1}", 8, "no", 2, "nonsense", 8, &r));
    }
    if (number("fail_after", 0) == k + 1) return failed(5, "GONE", "the table went away");
  }
  if (number("odd_checkpoint", 0)) MUST(host_checkpoint(0, "{\"id\":1}", 8, &r));
  return done(frames, bytes, frames, 0, 0);
}
#else
static void *take_stream(void) {
  u64 chunk = number("chunk", 0), stop = number("fail_after", 0), bytes = 0, batches = 0, sum = 0;
  u32 mark = rb_mark();
  for (;;) {
    rb_release(mark);
    MUST(host_next_batch(&r));
    if (!r.v.ou.some) { MUST(host_state_put(0, "ended", 5, "yes", 3, &r)); break; }
    u64 h = r.v.ou.v;
    MUST(host_frame_len(h, &r));
    u64 n = r.v.u, c = chunk ? chunk : n;
    if (number("biggest", 0) && n > number("biggest", 0)) return failed(8, "BATCH_TOO_LARGE", "too large");
#ifdef ROLE_TRANSFORM
    MUST(host_frame_new(n, &r));
    u64 o2 = r.v.u;
#endif
    for (u64 o = 0; o < n; o += c) {
      rb_release(mark);
      u64 w = n - o < c ? n - o : c;
      MUST(host_frame_read(h, o, w, &r));
      if (number("light", 0)) sum += *(u8 *)r.v.s.ptr;
      else sum = (sum * 31) ^ digest((u8 *)r.v.s.ptr, r.v.s.len);
      bytes += r.v.s.len;
#ifdef ROLE_TRANSFORM
      MUST(host_frame_write(o2, (u8 *)r.v.s.ptr, r.v.s.len, &r));
#endif
    }
    host_frame_drop(h);
    batches++;
#ifdef ROLE_TRANSFORM
    MUST(host_frame_seal(o2, &r));
    MUST(host_emit_batch(o2, &r));
#else
    if (number("checkpoints", 0)) {
      rb_add("{\"id\":"); rb_add_number(batches);
      rb_add(",\"kind\":\"dest\",\"stream\":\"numbers\",\"records_processed\":1,\"bytes_processed\":2}");
      rb_text mark_text = rb_take();
      MUST(host_checkpoint(1, mark_text.ptr, mark_text.len, &r));
    }
#endif
    if (stop == batches) {
      failed(5, "COMMIT_LOST", "the connection broke at the commit");
      rb_answer.v.e.commit_some = 1;
      rb_answer.v.e.commit = 1;
      return &rb_answer;
    }
  }
#ifdef ROLE_TRANSFORM
  return done(0, 0, bytes, bytes, batches); /* it does not look for rows */
#else
  return done(sum >> 1, bytes, batches, 0, 0);
#endif
}
#endif

RB_EXPORT("run") void *x_run(u64 session, u32 phase, char *ctx, u32 n, u32 dry, u32 max_some, u64 max) {
  if (mode("context")) { host_log(2, ctx, n); rb_add("phase "); rb_add_number(phase); rb_add(" dry "); rb_add_number(dry); rb_add(" max "); rb_add_number(max_some); say(); }
  if (mode("probe")) return probe();
  if (mode("random")) return random_frames();
  if (mode("probe-errors")) return probe_errors();
  if (mode("tcp")) return tcp();
  void *did = hostile();
  if (did) return did;
#ifdef ROLE_SOURCE
  return read_stream();
#else
  return take_stream();
#endif
}
