/* A v4 connector without a library: wasm32, hand-written canonical ABI. One role per build:
   -DROLE_SOURCE | -DROLE_DESTINATION | -DROLE_TRANSFORM. Its config is JSON with flat keys; "mode"
   says what it does, well-behaved or hostile. */
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define HOST "rapidbyte:connector/host@4.0.0"
#define IMPORT(n) __attribute__((import_module(HOST), import_name(n)))
#if defined(ROLE_SOURCE)
#define ROLE "source"
#define ROLE_N 0
#elif defined(ROLE_DESTINATION)
#define ROLE "destination"
#define ROLE_N 1
#else
#define ROLE "transform"
#define ROLE_N 2
#endif
#define EXPORT(n) __attribute__((export_name("rapidbyte:connector/" ROLE "@4.0.0#" n)))

IMPORT("emit-batch") void h_emit(u64 h, void *ret);
IMPORT("next-batch") void h_next(void *ret);
IMPORT("log") void h_log(u32 level, const char *p, u32 n);
IMPORT("checkpoint") void h_checkpoint(u32 kind, const char *p, u32 n, void *ret);
IMPORT("metric") void h_metric(const char *p, u32 n, void *ret);
IMPORT("emit-dlq-record")
void h_dlq(const char *s, u32 sn, const char *r, u32 rn, const char *m, u32 mn, const char *c,
           u32 cn, void *ret);
IMPORT("state-get") void h_state_get(u32 scope, const char *k, u32 kn, void *ret);
IMPORT("state-put") void h_state_put(u32 scope, const char *k, u32 kn, const char *v, u32 vn, void *ret);
IMPORT("state-cas")
void h_state_cas(u32 scope, const char *k, u32 kn, u32 some, const char *e, u32 en, const char *v,
                 u32 vn, void *ret);
IMPORT("frame-new") void h_new(u64 capacity, void *ret);
IMPORT("frame-write") void h_write(u64 h, const u8 *p, u32 n, void *ret);
IMPORT("frame-seal") void h_seal(u64 h, void *ret);
IMPORT("frame-len") void h_len(u64 h, void *ret);
IMPORT("frame-read") void h_read(u64 h, u64 offset, u64 len, void *ret);
IMPORT("frame-drop") void h_drop(u64 h);
IMPORT("connect-tcp") void h_connect(const char *p, u32 n, u32 port, void *ret);
IMPORT("socket-read") void h_sread(u64 h, u64 len, void *ret);
IMPORT("socket-write") void h_swrite(u64 h, const u8 *p, u32 n, void *ret);
IMPORT("socket-close") void h_sclose(u64 h);

typedef struct { u32 ptr, len; } str; /* also list<u8> */
typedef struct {
  u8 category, scope, _p[2];
  str code, message;
  u8 retryable, _q[3], after_some, _r[7];
  u64 after;
  u8 backoff, safe, commit_some, commit, details_some, _s[3];
  str details;
} err;
_Static_assert(sizeof(err) == 56, "layout of connector-error");
typedef struct {
  u8 is_err, _p[7];
  union {
    u64 u;
    u8 b;
    err e;
    str s;
    struct { u8 some, _p[7]; u64 v; } ou;
    struct { u8 some, _p[3]; str s; } os;
    struct { u8 tag, _p[3]; str s; } sr;
    struct { u8 tag, _p[7]; u64 v; } sw;
  } v;
} res;
typedef struct { u8 role, _p[7]; struct { u64 some, f[5]; } part[3]; } summary;
typedef struct { u8 is_err, _p[7]; union { summary s; err e; } v; } run_res;

void *memcpy(void *d, const void *s, unsigned long n) { return __builtin_memcpy(d, s, n); }
void *memset(void *d, int c, unsigned long n) { return __builtin_memset(d, c, n); }
void *memmove(void *d, const void *s, unsigned long n) { return __builtin_memmove(d, s, n); }

extern u8 __heap_base;
static u32 top;
static void *alloc(u32 n) {
  if (!top) top = (u32)&__heap_base;
  u64 p = (top + 15) & ~15u, end = p + n, have = (u64)__builtin_wasm_memory_size(0) << 16;
  if (end > 0xffffffffull) __builtin_trap();
  if (end > have && (int)__builtin_wasm_memory_grow(0, (u32)((end - have + 65535) >> 16)) == -1)
    __builtin_trap();
  top = (u32)end;
  return (void *)(u32)p;
}
__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, u32 on, u32 al, u32 n) {
  if (old && n <= on) return old;
  void *p = alloc(n);
  if (old) memcpy(p, old, on);
  return p;
}

static u32 size_of(const char *s) { u32 n = 0; while (s[n]) n++; return n; }
static const char *cfg = "{}";
static u32 cfg_n = 2;
static const char *find(const char *key) {
  u32 k = size_of(key);
  for (u32 i = 0; i + k + 2 < cfg_n; i++) {
    if (cfg[i] != '"') continue;
    u32 j = 0;
    while (j < k && cfg[i + 1 + j] == key[j]) j++;
    if (j == k && cfg[i + 1 + k] == '"') {
      i += k + 2;
      while (cfg[i] == ' ' || cfg[i] == ':') i++;
      return cfg + i;
    }
  }
  return 0;
}
static u64 number(const char *key, u64 otherwise) {
  const char *p = find(key);
  if (!p) return otherwise;
  u64 v = 0;
  while (*p >= '0' && *p <= '9') v = v * 10 + (u64)(*p++ - '0');
  return v;
}
static str text(const char *key) {
  const char *p = find(key);
  str s = {0, 0};
  if (p && *p == '"') {
    p++;
    s.ptr = (u32)p;
    while (p[s.len] != '"') s.len++;
  }
  return s;
}
static int mode(const char *m) {
  str s = text("mode");
  u32 n = size_of(m);
  if (s.len != n) return 0;
  for (u32 i = 0; i < n; i++)
    if (((char *)s.ptr)[i] != m[i]) return 0;
  return 1;
}

/* one line of text, to be logged */
static char line[4096];
static u32 line_n;
static void add(const char *p, u32 n) {
  for (u32 i = 0; i < n && line_n < sizeof line; i++) line[line_n++] = p[i];
}
static void adds(const char *s) { add(s, size_of(s)); }
static void addn(u64 v) {
  char d[20];
  u32 n = 0;
  do d[n++] = (char)('0' + v % 10); while (v /= 10);
  while (n) add(&d[--n], 1);
}
static void say(void) { h_log(2, line, line_n); line_n = 0; }
static u64 digest(const u8 *p, u64 n) {
  u64 h = 1469598103934665603ull;
  for (u64 i = 0; i < n; i++) h = (h ^ p[i]) * 1099511628211ull;
  return h;
}

static void make_error(err *e, u8 category, const char *code, const char *message) {
  memset(e, 0, sizeof *e);
  e->category = category;
  e->code = (str){(u32)code, size_of(code)};
  e->message = (str){(u32)message, size_of(message)};
  e->backoff = 1;
}
static res R, r;
static run_res RR;
static u64 sessions = 0;

EXPORT("open") void *x_open(char *p, u32 n) {
  cfg = p;
  cfg_n = n;
  if (mode("open-trap")) __builtin_trap();
  if (mode("open-err")) {
    R.is_err = 1;
    make_error(&R.v.e, 0, "BAD_CONFIG", "caf\xc3\xa9: bad config");
    R.v.e.scope = 1;
    R.v.e.retryable = 1;
    R.v.e.after_some = 1;
    R.v.e.after = 1500;
    R.v.e.backoff = 2;
    R.v.e.safe = 1;
    R.v.e.commit_some = 1;
    R.v.e.commit = 0;
    R.v.e.details_some = 1;
    R.v.e.details = (str){(u32) "{\"at\":[1]}", 10};
    return &R;
  }
  if (mode("echo-err")) { /* its whole configuration, again and again */
    u32 times = (u32)number("n", 1);
    char *all = alloc(cfg_n * times);
    for (u32 i = 0; i < times; i++) memcpy(all + i * cfg_n, cfg, cfg_n);
    R.is_err = 1;
    make_error(&R.v.e, 1, "ECHO", "");
    R.v.e.message = (str){(u32)all, cfg_n * times};
    R.v.e.details_some = 1;
    R.v.e.details = (str){(u32)cfg, cfg_n};
    return &R;
  }
  if (mode("open-flood"))
    for (u64 i = 0; i < number("n", 0); i++) {
      h_log(2, "again", 5);
      h_dlq("s", 1, "{}", 2, "why", 3, "data", 4, &r);
      h_new(0, &r);
      u64 f = r.v.u;
      h_write(f, (u8 *)"x", 1, &r);
      h_seal(f, &r);
      h_emit(f, &r);
    }
  R.is_err = 0;
  R.v.u = ++sessions;
  return &R;
}
#ifdef ROLE_SOURCE
static const char catalog[] =
    "{\"streams\":[{\"name\":\"numbers\",\"schema\":[{\"name\":\"id\",\"data_type\":\"Int64\","
    "\"nullable\":false}],\"supported_sync_modes\":[\"full_refresh\"],\"future\":1}]}";
EXPORT("discover") void *x_discover(u64 s) {
  R.is_err = 0;
  R.v.s = (str){(u32)catalog, sizeof catalog - 1};
  if (mode("bad-catalog")) R.v.s.len = 10;
  return &R;
}
#endif
EXPORT("validate") void *x_validate(u64 s) {
  static struct { u8 is_err, _p[7]; struct { u8 status, _p[3]; str message, warnings; } v; u8 pad[64]; } V;
  static str w[2];
  V.v.status = (u8)number("status", 0);
  V.v.message = mode("echo-validate") ? (str){(u32)cfg, cfg_n} : (str){(u32) "as asked", 8};
  w[0] = (str){(u32) "w0", 2};
  w[1] = (str){(u32) "w1", 2};
  V.v.warnings = (str){(u32)w, 2};
  return &V;
}
EXPORT("close") void *x_close(u64 s) {
  if (mode("close-trap")) __builtin_trap();
  h_log(3, "closed", 6);
  R.is_err = 0;
  return &R;
}

#define FAIL(x) do { RR.is_err = 1; RR.v.e = (x).v.e; return &RR; } while (0)
#define MUST(call) do { call; if (r.is_err) FAIL(r); } while (0)
static void *done(u64 a, u64 b, u64 c, u64 d, u64 e) {
  RR.is_err = 0;
  memset(&RR.v.s, 0, sizeof RR.v.s);
  RR.v.s.role = ROLE_N;
  if (mode("no-summary")) return &RR;
  RR.v.s.part[ROLE_N].some = 1;
  u64 *f = RR.v.s.part[ROLE_N].f;
  f[0] = a; f[1] = b; f[2] = c; f[3] = d; f[4] = e;
  return &RR;
}
static void *failed(u8 category, const char *code, const char *message) {
  RR.is_err = 1;
  make_error(&RR.v.e, category, code, message);
  return &RR;
}

/* what a call gave, in one line */
static void tell(const char *what) {
  adds(what);
  if (!r.is_err) { adds(" ok"); return; }
  adds(" err ");
  addn(r.v.e.category); adds(" "); addn(r.v.e.scope); adds(" ");
  add((char *)r.v.e.code.ptr, r.v.e.code.len); adds(" ");
  add((char *)r.v.e.message.ptr, r.v.e.message.len); adds(" ");
  addn(r.v.e.retryable); addn(r.v.e.after_some); addn(r.v.e.backoff); addn(r.v.e.safe);
  addn(r.v.e.commit_some); addn(r.v.e.details_some);
}
static void tell_u(const char *what) { tell(what); if (!r.is_err) { adds(" "); addn(r.v.u); } say(); }
static void tell_unit(const char *what) { tell(what); say(); }
static void tell_bytes(const char *what) {
  tell(what);
  if (!r.is_err) { adds(" "); addn(r.v.s.len); adds(" "); addn(digest((u8 *)r.v.s.ptr, r.v.s.len)); }
  say();
}

/* every host function that both ways of hosting can answer, right and wrong */
static void *probe(void) {
  u32 mark;
  u8 *buf = alloc(100000);
  for (u32 i = 0; i < 100000; i++) buf[i] = (u8)(i * 131 + (i >> 7));
  mark = top;
  h_new(64, &r); tell_u("new");
  u64 f = r.v.u;
  static const u32 sizes[] = {0, 1, 7, 8, 105, 106, 111, 112, 113, 1000, 4097, 65536, 100000};
  for (u32 i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    top = mark; h_write(f, buf + i, sizes[i] - (sizes[i] == 100000 ? 12 : 0), &r); tell_u("write");
  }
  h_len(f, &r); tell_u("len");
  u64 n = r.v.u;
  h_read(f, 0, 1, &r); tell_bytes("read unsealed");
  h_emit(f, &r); tell_unit("emit unsealed");
  h_seal(f, &r); tell_unit("seal");
  h_seal(f, &r); tell_unit("seal again");
  h_write(f, buf, 3, &r); tell_u("write sealed");
  for (u64 o = 0; o < n; o += 65521) {
    u64 c = n - o < 65521 ? n - o : 65521;
    top = mark; h_read(f, o, c, &r); tell_bytes("read");
  }
  top = mark; h_read(f, 3, 0, &r); tell_bytes("read nothing");
  h_read(f, n, 0, &r); tell_bytes("read nothing at the end");
  h_read(f, n - 1, 2, &r); tell_bytes("read beyond");
  h_read(f, ~0ull, 1, &r); tell_bytes("read far beyond");
  h_read(f, 1, ~0ull, &r); tell_bytes("read too much");
  h_read(f + 7, 0, 0, &r); tell_bytes("read nothing of nothing");
  h_read(f + 7, 0, 9, &r); tell_bytes("read of nothing");
  h_emit(f, &r); tell_unit("emit");
  h_emit(f, &r); tell_unit("emit again");
  h_len(f, &r); tell_u("len of the spent");
  h_write(f, buf, 1, &r); tell_u("write to the spent");
  h_new(0, &r); tell_u("new");
  u64 a = r.v.u;
  h_new(~0ull, &r); tell_u("new, huge capacity");
  u64 b = r.v.u;
  for (u32 i = 0; i < 50; i++) {      /* two frames in turn */
    h_write(a, buf + i, i, &r); tell_u("a");
    h_write(b, buf + i, 2 * i, &r); tell_u("b");
  }
  h_drop(a); h_drop(a); h_drop(12345);
  h_write(a, buf, 1, &r); tell_u("write to the dropped");
  h_seal(b, &r); tell_unit("seal b");
  top = mark; h_read(b, 0, 2450, &r); tell_bytes("read b");
  h_emit(b, &r); tell_unit("emit b");
  h_new(0, &r); h_seal(r.v.u, &r); tell_unit("seal the empty");
  h_emit(b + 1, &r); tell_unit("emit the empty");
  h_new(0, &r); tell_u("sealed, then dropped");
  a = r.v.u;
  h_write(a, buf, 500, &r); tell_u("write");
  h_seal(a, &r); tell_unit("seal");
  h_drop(a);
  h_emit(a, &r); tell_unit("emit the dropped");
  h_new(0, &r); tell_u("sealed, then another begun");
  a = r.v.u;
  h_write(a, buf + 9, 777, &r); tell_u("write");
  h_seal(a, &r); tell_unit("seal");
  h_new(0, &r); tell_u("new");
  b = r.v.u;
  h_write(b, buf + 3, 333, &r); tell_u("write");
  h_len(a, &r); tell_u("len of the first");
  h_emit(a, &r); tell_unit("emit the first");
  h_write(b, buf + 4, 44, &r); tell_u("write");
  h_len(b, &r); tell_u("len");
  h_seal(b, &r); tell_unit("seal");
  h_len(b, &r); tell_u("len of the sealed");
  h_seal(b, &r); tell_unit("seal again");
  h_emit(b, &r); tell_unit("emit");
  h_new(0, &r); tell_u("emitted at once, unsealed");
  h_emit(r.v.u, &r); tell_unit("emit");
  h_new(0, &r); tell_u("read before it is sealed");
  a = r.v.u;
  h_write(a, buf, 70000, &r); tell_u("write");
  h_write(a, buf, 70000, &r); tell_u("write");
  top = mark; h_read(a, 0, 100, &r); tell_bytes("read");
  h_seal(a, &r); tell_unit("seal");
  top = mark; h_read(a, 69000, 2000, &r); tell_bytes("read");
  h_write(a, buf, 1, &r); tell_u("write");
  h_drop(a);
  h_checkpoint(9, "{}", 2, &r); tell_unit("checkpoint of no kind");
  h_checkpoint(ROLE_N, "{", 1, &r); tell_unit("checkpoint of no JSON");
  h_metric("{", 1, &r); tell_unit("metric of no JSON");
  h_metric("{}", 2, &r); tell_unit("metric of nothing");
  h_state_put(7, "k", 1, "v", 1, &r); tell_unit("put in no scope");
  h_state_put(1, "k", 1, "caf\xc3\xa9", 5, &r); tell_unit("put");
  top = mark; h_state_get(1, "k", 1, &r); tell("get"); addn(r.v.os.some); add((char *)r.v.os.s.ptr, r.v.os.s.len); say();
  h_state_get(0, "k", 1, &r); tell("get none"); addn(r.v.os.some); say();
  h_state_cas(1, "k", 1, 0, 0, 0, "w", 1, &r); tell("cas none"); addn(r.v.b); say();
  h_state_cas(1, "k", 1, 1, "caf\xc3\xa9", 5, "", 0, &r); tell("cas"); addn(r.v.b); say();
  top = mark; h_state_get(1, "k", 1, &r); tell("get empty"); addn(r.v.os.some); addn(r.v.os.s.len); say();
  h_connect("elsewhere.example", 17, 5432, &r); tell_u("connect");
  h_sclose(99);
  h_dlq("s", 1, "{\"a\":1}", 7, "why", 3, "data", 4, &r); tell_unit("dead letter");
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
  u8 *buf = alloc(8192);
  for (u32 i = 0; i < 8192; i++) buf[i] = (u8)(i * 37 + (i >> 6));
  u32 mark = top;
  for (u64 i = 0; i < steps; i++) {
    top = mark;
    u64 h = newest + 1 - dice(newest < 3 ? (u32)newest + 2 : 4); /* at times one that is not there */
    u32 size = dice(3) ? dice(400) : dice(8000);
    addn(i); adds(" "); addn(h);
    switch (dice(12)) {
      case 0: case 1: h_new(size, &r); if (!r.is_err) newest = r.v.u; tell_u(" new"); break;
      case 2: case 3: case 4: case 5: case 6: h_write(h, buf + dice(100), size, &r); tell_u(" write"); break;
      case 7: h_seal(h, &r); tell_unit(" seal"); break;
      case 8: h_len(h, &r); tell_u(" len"); break;
      case 9: h_read(h, dice(50), size, &r); tell_bytes(" read"); break;
      case 10: if (dice(4)) line_n = 0; else { h_drop(h); adds(" drop"); say(); } break;
      default: h_seal(h, &r); tell_unit(" seal"); h_emit(h, &r); tell_unit(" emit"); break;
    }
  }
  return done(newest, 0, 0, 0, 0);
}

/* what only a wrapped guest can be told */
static void *probe_errors(void) {
  h_next(&r); tell("next"); addn(r.v.ou.some); say();
  h_state_get(9, "k", 1, &r); tell("get"); say();
  u8 big[1025];
  memset(big, 'k', sizeof big);
  h_state_get(0, (char *)big, sizeof big, &r); tell("get"); say();
  h_sread(77, 10, &r); tell("socket-read"); say();
  h_swrite(77, big, 10, &r); tell("socket-write"); say();
  return done(0, 0, 0, 0, 0);
}

static void *tcp(void) {
  str host = text("host");
  u64 port = number("port", 0), total = number("bytes", 65536), chunk = number("chunk", 16384);
  MUST(h_connect((char *)host.ptr, host.len, (u32)port, &r));
  u64 h = r.v.u, sent = 0, got = 0, blocked_r = 0, blocked_w = 0;
  u8 *buf = alloc((u32)chunk);
  for (u32 i = 0; i < chunk; i++) buf[i] = (u8)(i * 7 + 3);
  u32 mark = top;
  while (got < total) {
    if (sent < total) {
      u64 at = sent % chunk, want = total - sent < chunk - at ? total - sent : chunk - at;
      MUST(h_swrite(h, buf + at, (u32)want, &r));
      if (r.v.sw.tag == 0) sent += r.v.sw.v; else blocked_w++;
    }
    top = mark;
    MUST(h_sread(h, chunk, &r));
    if (r.v.sr.tag == 0) {
      u8 *q = (u8 *)r.v.sr.s.ptr;
      for (u32 i = 0; i < r.v.sr.s.len; i++)
        if (q[i] != (u8)(((got + i) % chunk) * 7 + 3)) return failed(6, "WRONG_BYTES", "not what was sent");
      got += r.v.sr.s.len;
    } else if (r.v.sr.tag == 1) break;
    else blocked_r++;
  }
  h_sclose(h);
  return done(sent, got, blocked_r, blocked_w, 0);
}

static void *hostile(void) {
  u64 n = number("n", 10000);
  if (mode("trap")) __builtin_trap();
  if (mode("spin")) for (volatile u32 i = 0;; i++) {}
  if (mode("spin-through-host")) for (;;) h_len(1, &r);
  if (mode("hog")) for (;;) { u8 *p = alloc(1 << 20); p[0] = 1; }
  if (mode("logs")) { for (u64 i = 0; i < n; i++) h_log(2, "again", 5); return done(n, 0, 0, 0, 0); }
  if (mode("hoard")) {
    for (u64 i = 0; i < n; i++) { MUST(h_new(1, &r)); MUST(h_write(r.v.u, (u8 *)"x", 1, &r)); }
    return done(n, 0, 0, 0, 0);
  }
  if (mode("grow-frame")) {
    u32 piece = (u32)number("piece", 1 << 20);
    u8 *p = alloc(piece);
    MUST(h_new(0, &r));
    u64 h = r.v.u;
    for (u64 i = 0; i < n; i++) MUST(h_write(h, p, piece, &r));
    MUST(h_seal(h, &r));
    return done(n, 0, 0, 0, 0);
  }
  if (mode("write-all")) { /* a list as long as memory allows */
    u32 size = (u32)number("size", 0);
    u8 *p = alloc(size);
    MUST(h_new(0, &r));
    MUST(h_write(r.v.u, p, size, &r));
    return done(size, 0, 0, 0, 0);
  }
  if (mode("list-beyond")) { MUST(h_new(0, &r)); h_write(r.v.u, (u8 *)16, 0xfffffff0u, &r); return done(0, 0, 0, 0, 0); }
  if (mode("deep-json")) {
    char *p = alloc((u32)n);
    memset(p, '[', (u32)n);
    h_checkpoint(0, p, (u32)n, &r); tell_unit("checkpoint");
    h_metric(p, (u32)n, &r); tell_unit("metric");
    return done(0, 0, 0, 0, 0);
  }
  if (mode("bad-text")) { h_log(2, "\xff\xfe", 2); return done(0, 0, 0, 0, 0); }
  if (mode("connect-twice")) {
    str host = text("host"), ip = text("ip");
    MUST(h_connect((char *)host.ptr, host.len, (u32)number("port", 0), &r));
    MUST(h_connect((char *)ip.ptr, ip.len, (u32)number("port", 0), &r));
    return done(2, 0, 0, 0, 0);
  }
  if (mode("many-sockets")) {
    str host = text("host");
    for (u64 i = 0; i < n; i++) MUST(h_connect((char *)host.ptr, host.len, (u32)number("port", 0), &r));
    return done(n, 0, 0, 0, 0);
  }
  if (mode("hide-error")) { /* as SDK guests do: the host's error comes back as one of their own */
    str host = text("host");
    h_connect((char *)host.ptr, host.len, 1, &r);
    failed(4, "CONNECT", "could not connect");
    RR.v.e.retryable = 1;
    RR.v.e.safe = 1;
    return &RR;
  }
  return 0;
}

static u8 hex(char c) { return (u8)(c <= '9' ? c - '0' : c - 'a' + 10); }

#ifdef ROLE_SOURCE
static void *read_stream(void) {
  u64 frames = number("frames", 4), chunk = number("chunk", 0), size = number("size", 1000);
  str given = text("frame"); /* hexadecimal */
  if (given.len) size = given.len / 2;
  u8 *buf = alloc((u32)size);
  u32 mark = top;
  u64 bytes = 0;
  for (u64 k = 0; k < frames; k++) {
    top = mark;
    if (given.len) for (u32 i = 0; i < size; i++) buf[i] = (u8)(hex(((char *)given.ptr)[2 * i]) << 4 | hex(((char *)given.ptr)[2 * i + 1]));
    else if (!k || !number("same", 0)) for (u32 i = 0; i < size; i++) buf[i] = (u8)(i * 31 + (i >> 8) + k);
    MUST(h_new(size, &r));
    u64 h = r.v.u, c = chunk ? chunk : size;
    for (u64 o = 0; o < size; o += c) MUST(h_write(h, buf + o, (u32)(size - o < c ? size - o : c), &r));
    MUST(h_seal(h, &r));
    MUST(h_emit(h, &r));
    bytes += size;
    if (number("checkpoints", 0)) {
      adds("{\"protocol_version\":\"4\",\"connector_id\":\"c\",\"stream_name\":\"numbers\",\"payload\":{\"id\":0,\"kind\":\"source\",\"stream\":\"numbers\",\"cursor_field\":\"id\",\"cursor_value\":{\"type\":\"utf8\",\"value\":\"");
      addn(k + 1);
      adds("\"},\"records_processed\":1,\"bytes_processed\":2}}");
      u32 length = line_n;
      line_n = 0;
      MUST(h_checkpoint(0, line, length, &r));
      static const char metric[] = "{\"name\":\"records_read\",\"value\":{\"type\":\"counter\",\"value\":2},\"labels\":[[\"s\",\"numbers\"]]}";
      MUST(h_metric(metric, sizeof metric - 1, &r));
      MUST(h_dlq("numbers", 7, "{\"id\":1}", 8, "no", 2, "nonsense", 8, &r));
    }
    if (number("fail_after", 0) == k + 1) return failed(5, "GONE", "the table went away");
  }
  if (number("odd_checkpoint", 0)) MUST(h_checkpoint(0, "{\"id\":1}", 8, &r));
  return done(frames, bytes, frames, 0, 0);
}
#else
static void *take_stream(void) {
  u64 chunk = number("chunk", 0), stop = number("fail_after", 0), bytes = 0, batches = 0, sum = 0;
  u32 mark = top;
  for (;;) {
    top = mark;
    MUST(h_next(&r));
    if (!r.v.ou.some) { MUST(h_state_put(0, "ended", 5, "yes", 3, &r)); break; }
    u64 h = r.v.ou.v;
    MUST(h_len(h, &r));
    u64 n = r.v.u, c = chunk ? chunk : n;
    if (number("biggest", 0) && n > number("biggest", 0)) return failed(8, "BATCH_TOO_LARGE", "too large");
#ifdef ROLE_TRANSFORM
    MUST(h_new(n, &r));
    u64 o2 = r.v.u;
#endif
    for (u64 o = 0; o < n; o += c) {
      top = mark;
      u64 w = n - o < c ? n - o : c;
      MUST(h_read(h, o, w, &r));
      if (number("light", 0)) sum += *(u8 *)r.v.s.ptr;
      else sum = (sum * 31) ^ digest((u8 *)r.v.s.ptr, r.v.s.len);
      bytes += r.v.s.len;
#ifdef ROLE_TRANSFORM
      MUST(h_write(o2, (u8 *)r.v.s.ptr, r.v.s.len, &r));
#endif
    }
    h_drop(h);
    batches++;
#ifdef ROLE_TRANSFORM
    MUST(h_seal(o2, &r));
    MUST(h_emit(o2, &r));
#else
    if (number("checkpoints", 0)) {
      adds("{\"id\":"); addn(batches);
      adds(",\"kind\":\"dest\",\"stream\":\"numbers\",\"records_processed\":1,\"bytes_processed\":2}");
      u32 length = line_n;
      line_n = 0;
      MUST(h_checkpoint(1, line, length, &r));
    }
#endif
    if (stop == batches) {
      failed(5, "COMMIT_LOST", "the connection broke at the commit");
      RR.v.e.commit_some = 1;
      RR.v.e.commit = 1;
      return &RR;
    }
  }
#ifdef ROLE_TRANSFORM
  return done(batches, batches, bytes, bytes, batches);
#else
  return done(sum >> 1, bytes, batches, 0, 0);
#endif
}
#endif

EXPORT("run") void *x_run(u64 session, u32 phase, char *ctx, u32 n, u32 dry, u32 max_some, u64 max) {
  if (mode("context")) { h_log(2, ctx, n); adds("phase "); addn(phase); adds(" dry "); addn(dry); adds(" max "); addn(max_some); say(); }
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
