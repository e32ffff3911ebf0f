/* What rapidbyte.h declares, without a C library. */
#include "rapidbyte.h"

void *memcpy(void *to, const void *from, unsigned long n) { return __builtin_memcpy(to, from, n); }
void *memset(void *at, int c, unsigned long n) { return __builtin_memset(at, c, n); }
void *memmove(void *to, const void *from, unsigned long n) { return __builtin_memmove(to, from, n); }

/* -- memory */

extern u8 __heap_base;
static u32 top;

static void *taken(u32 n) { /* 0: there is no more */
  if (!top) top = (u32)&__heap_base;
  u64 p = ((u64)top + 15) & ~15ull, end = p + n;
  u64 have = (u64)__builtin_wasm_memory_size(0) << 16;
  if (end > 0xffffffffull) return 0;
  if (end > have && (int)__builtin_wasm_memory_grow(0, (u32)((end - have + 65535) >> 16)) == -1)
    return 0;
  top = (u32)end;
  return (void *)(u32)p;
}

void *rb_alloc(u32 n) {
  void *p = taken(n);
  if (!p) { /* the host tells this end from any other by these words */
    host_log(RB_LOG_ERROR, "out of memory", 13);
    __builtin_trap();
  }
  return p;
}

u32 rb_mark(void) { return top; }
void rb_release(u32 mark) { top = mark; }

/* The host puts strings and lists that it hands over here. */
__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *old, u32 on, u32 al, u32 n) {
  if (old && n <= on) return old;
  void *p = taken(n);
  if (!p) __builtin_trap(); /* no call is allowed here */
  if (old) memcpy(p, old, on);
  return p;
}

/* -- text */

u32 rb_length(const char *s) { u32 n = 0; while (s[n]) n++; return n; }
rb_text rb_of(const char *s) { return (rb_text){s, rb_length(s)}; }
int rb_is(rb_text text, const char *s) {
  u32 i = 0;
  while (i < text.len && s[i] && text.ptr[i] == s[i]) i++;
  return i == text.len && !s[i];
}

static char line[RB_LINE];
static u32 line_n;

void rb_add_text(rb_text text) {
  for (u32 i = 0; i < text.len && line_n < sizeof line; i++) line[line_n++] = text.ptr[i];
}
void rb_add(const char *s) { rb_add_text(rb_of(s)); }
void rb_add_number(u64 v) {
  char digits[20];
  u32 n = sizeof digits;
  do digits[--n] = (char)('0' + v % 10); while (v /= 10);
  rb_add_text((rb_text){digits + n, sizeof digits - n});
}
void rb_add_signed(i64 v) {
  if (v < 0) rb_add("-");
  rb_add_number(v < 0 ? 0 - (u64)v : (u64)v);
}
rb_text rb_take(void) { rb_text t = {line, line_n}; line_n = 0; return t; }
void rb_say(u32 level) { rb_text t = rb_take(); host_log(level, t.ptr, t.len); }

/* -- JSON */

rb_text rb_config = {"{}", 2};

const char *rb_find(rb_text json, const char *key) {
  u32 k = rb_length(key);
  for (u32 i = 0; i + k + 2 < json.len; i++) {
    const char *p = json.ptr + i;
    if (p[0] != '"' || p[k + 1] != '"') continue;
    u32 j = 0;
    while (j < k && p[1 + j] == key[j]) j++;
    if (j < k) continue;
    const char *end = json.ptr + json.len;
    for (p += k + 2; p < end && *p == ' ';) p++;
    if (p == end || *p != ':') continue;
    for (p++; p < end && *p == ' ';) p++;
    return p < end ? p : 0;
  }
  return 0;
}

u64 rb_number(rb_text json, const char *key, u64 otherwise) {
  const char *p = rb_find(json, key);
  if (!p || *p < '0' || *p > '9') return otherwise;
  u64 v = 0;
  while (p < json.ptr + json.len && *p >= '0' && *p <= '9') v = v * 10 + (u64)(*p++ - '0');
  return v;
}
/* Also of a number in quotes, as v4 sends a cursor's last value. */
i64 rb_signed(rb_text json, const char *key, i64 otherwise) {
  const char *p = rb_find(json, key), *end = json.ptr + json.len;
  if (!p) return otherwise;
  if (*p == '"') p++;
  int minus = *p == '-';
  p += minus;
  if (*p < '0' || *p > '9') return otherwise;
  u64 v = 0;
  while (p < end && *p >= '0' && *p <= '9') v = v * 10 + (u64)(*p++ - '0');
  return (i64)(minus ? 0 - v : v);
}
int rb_flag(rb_text json, const char *key, int otherwise) {
  const char *p = rb_find(json, key);
  return p ? *p == 't' : otherwise;
}
rb_text rb_string(rb_text json, const char *key) {
  const char *p = rb_find(json, key), *end = json.ptr + json.len;
  rb_text s = {0, 0};
  if (!p || *p != '"') return s;
  for (s.ptr = ++p; p < end && *p != '"'; p++, s.len++)
    if (*p == '\\') p++, s.len++;
  return s;
}

int rb_listed(rb_text json, const char *key, const char *word) {
  const char *p = rb_find(json, key), *end = json.ptr + json.len;
  if (!p || *p != '[') return 1;
  while (++p < end && *p != ']') {
    if (*p != '"') continue;
    rb_text s = {++p, 0};
    while (p < end && *p != '"') p++, s.len++;
    if (rb_is(s, word)) return 1;
  }
  return 0;
}

/* -- answers */

static rb_result answer; /* of all but run and validate */
rb_run_result rb_answer;

void rb_make_error(rb_error *e, u8 category, const char *code, const char *message) {
  memset(e, 0, sizeof *e);
  e->category = category;
  e->scope = category == RB_DATA ? 2 : category == RB_FRAME ? 1 : 0;
  e->code = rb_of(code);
  e->message = rb_of(message);
  e->retryable = e->safe = category >= RB_RATE_LIMIT && category <= RB_TRANSIENT_DB;
  e->backoff = category == RB_RATE_LIMIT ? 2 : 1;
}

void *rb_opened(u64 session) { answer.is_err = 0; answer.v.u = session; return &answer; }
void *rb_refused(u8 category, const char *code, const char *message) {
  answer.is_err = 1;
  rb_make_error(&answer.v.e, category, code, message);
  return &answer;
}
void *rb_catalog(const char *json, u32 n) {
  answer.is_err = 0;
  answer.v.s = (rb_text){json, n};
  return &answer;
}
void *rb_valid(u8 status, const char *message) {
  static struct { u8 is_err, _p[7]; struct { u8 status, _p[3]; rb_text message, warnings; } v; u8 rest[48]; } a;
  a.v.status = status;
  a.v.message = rb_of(message);
  return &a;
}
void *rb_closed(void) { answer.is_err = 0; return &answer; }

void *rb_done(u64 a, u64 b, u64 c, u64 d, u64 e) {
  rb_answer.is_err = 0;
  memset(&rb_answer.v.s, 0, sizeof rb_answer.v.s);
  rb_answer.v.s.role = RB_ROLE_NUMBER;
  rb_answer.v.s.part[RB_ROLE_NUMBER].some = 1;
  u64 *f = rb_answer.v.s.part[RB_ROLE_NUMBER].f;
  f[0] = a; f[1] = b; f[2] = c; f[3] = d; f[4] = e;
  return &rb_answer;
}
void *rb_failed(u8 category, const char *code, const char *message) {
  rb_answer.is_err = 1;
  rb_make_error(&rb_answer.v.e, category, code, message);
  return &rb_answer;
}
void *rb_passed_on(const rb_result *r) {
  rb_answer.is_err = 1;
  rb_answer.v.e = r->v.e;
  return &rb_answer;
}

/* -- progress */

static void checkpoint(u32 kind, const char *name, u64 id, rb_text stream, u64 rows, u64 bytes) {
  rb_take();
  rb_add("{\"id\":"); rb_add_number(id);
  rb_add(",\"kind\":\""); rb_add(name);
  rb_add("\",\"stream\":\""); rb_add_text(stream);
  rb_add("\",\"records_processed\":"); rb_add_number(rows);
  rb_add(",\"bytes_processed\":"); rb_add_number(bytes);
}
static void tell(u32 kind, rb_result *r) {
  rb_add("}");
  rb_text t = rb_take();
  host_checkpoint(kind, t.ptr, t.len, r);
}
void rb_source_checkpoint(rb_text stream, rb_text field, i64 value, u64 rows, u64 bytes, rb_result *r) {
  checkpoint(0, "source", 0, stream, rows, bytes);
  rb_add(",\"cursor_field\":\""); rb_add_text(field);
  rb_add("\",\"cursor_value\":{\"type\":\"int64\",\"value\":"); rb_add_signed(value);
  rb_add("}");
  tell(0, r);
}
void rb_destination_checkpoint(u64 id, rb_text stream, u64 rows, u64 bytes, rb_result *r) {
  checkpoint(1, "dest", id, stream, rows, bytes);
  tell(1, r);
}
void rb_count(const char *metric, u64 by, rb_result *r) {
  rb_take();
  rb_add("{\"name\":\""); rb_add(metric);
  rb_add("\",\"value\":{\"type\":\"counter\",\"value\":"); rb_add_number(by);
  rb_add("}}");
  rb_text t = rb_take();
  host_metric(t.ptr, t.len, r);
}
