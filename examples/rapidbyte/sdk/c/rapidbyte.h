/* Rapidbyte v4 for connectors written in C: the host's functions as the canonical ABI lays them out
   on wasm32, and the little that every connector needs beside them. Arrow columns: arrow.h.

   One role per build: -DROLE_SOURCE, -DROLE_DESTINATION or -DROLE_TRANSFORM. No C library. Memory is
   taken and never given back, except to a mark (rb_mark, rb_release): what the host hands over lies
   there too, so a loop over frames releases to its mark each time. */
#ifndef RAPIDBYTE_H
#define RAPIDBYTE_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#if defined(ROLE_SOURCE)
#define RB_ROLE "source"
#define RB_ROLE_NUMBER 0
#elif defined(ROLE_DESTINATION)
#define RB_ROLE "destination"
#define RB_ROLE_NUMBER 1
#else
#define RB_ROLE "transform"
#define RB_ROLE_NUMBER 2
#endif
/* Before each of the five functions that the host calls; their results are pointers to what
   rb_opened, rb_catalog, rb_valid, rb_done, rb_failed and rb_closed give. */
#define RB_EXPORT(n) __attribute__((export_name("rapidbyte:connector/" RB_ROLE "@4.0.0#" n)))
#define RB_IMPORT(n) \
  __attribute__((import_module("rapidbyte:connector/host@4.0.0"), import_name(n)))

/* -- what crosses */

typedef struct { const char *ptr; u32 len; } rb_text; /* a string; also list<u8> */

enum rb_category { RB_CONFIG, RB_AUTH, RB_PERMISSION, RB_RATE_LIMIT, RB_TRANSIENT_NETWORK,
                   RB_TRANSIENT_DB, RB_DATA, RB_SCHEMA, RB_INTERNAL, RB_FRAME, RB_CATEGORIES };
enum rb_commit { RB_BEFORE_COMMIT, RB_AFTER_COMMIT_UNKNOWN, RB_AFTER_COMMIT_CONFIRMED };
enum rb_status { RB_SUCCESS, RB_FAILED, RB_WARNING };
enum rb_scope { RB_PIPELINE, RB_STREAM, RB_INSTANCE };
enum rb_level { RB_LOG_ERROR, RB_LOG_WARN, RB_LOG_INFO, RB_LOG_DEBUG, RB_LOG_TRACE };

typedef struct {
  u8 category, scope, _p[2];
  rb_text code, message;
  u8 retryable, _q[3], after_some, _r[7];
  u64 after;
  u8 backoff, safe, commit_some, commit, details_some, _s[3];
  rb_text details;
} rb_error;
_Static_assert(sizeof(rb_error) == 56, "layout of connector-error");

/* What a host function gave: is_err says which. The names are of what an ok carries. */
typedef struct {
  u8 is_err, _p[7];
  union {
    u64 u;                                                /* a number or a handle */
    u8 b;                                                 /* state-cas */
    rb_error e;
    rb_text s;                                            /* frame-read */
    struct { u8 some, _p[7]; u64 v; } ou;                 /* next-batch */
    struct { u8 some, _p[3]; rb_text s; } os;             /* state-get */
    struct { u8 tag, _p[3]; rb_text s; } sr;              /* socket-read: 0 data, 1 eof, 2 would-block */
    struct { u8 tag, _p[7]; u64 v; } sw;                  /* socket-write: 0 written, 1 would-block */
  } v;
} rb_result;

typedef struct { u8 role, _p[7]; struct { u64 some, f[5]; } part[3]; } rb_summary;
typedef struct { u8 is_err, _p[7]; union { rb_summary s; rb_error e; } v; } rb_run_result;

/* -- the host's nineteen functions, by their WIT names */

RB_IMPORT("emit-batch") void host_emit_batch(u64 frame, rb_result *ret);
RB_IMPORT("next-batch") void host_next_batch(rb_result *ret);
RB_IMPORT("log") void host_log(u32 level, const char *p, u32 n);
RB_IMPORT("checkpoint") void host_checkpoint(u32 kind, const char *p, u32 n, rb_result *ret);
RB_IMPORT("metric") void host_metric(const char *p, u32 n, rb_result *ret);
RB_IMPORT("emit-dlq-record")
void host_emit_dlq_record(const char *stream, u32 sn, const char *record, u32 rn,
                          const char *message, u32 mn, const char *category, u32 cn,
                          rb_result *ret);
RB_IMPORT("state-get") void host_state_get(u32 scope, const char *k, u32 kn, rb_result *ret);
RB_IMPORT("state-put")
void host_state_put(u32 scope, const char *k, u32 kn, const char *v, u32 vn, rb_result *ret);
RB_IMPORT("state-cas")
void host_state_cas(u32 scope, const char *k, u32 kn, u32 some, const char *expected, u32 en,
                    const char *v, u32 vn, rb_result *ret);
RB_IMPORT("frame-new") void host_frame_new(u64 capacity, rb_result *ret);
RB_IMPORT("frame-write") void host_frame_write(u64 frame, const void *p, u32 n, rb_result *ret);
RB_IMPORT("frame-seal") void host_frame_seal(u64 frame, rb_result *ret);
RB_IMPORT("frame-len") void host_frame_len(u64 frame, rb_result *ret);
RB_IMPORT("frame-read") void host_frame_read(u64 frame, u64 offset, u64 len, rb_result *ret);
RB_IMPORT("frame-drop") void host_frame_drop(u64 frame);
RB_IMPORT("connect-tcp") void host_connect_tcp(const char *p, u32 n, u32 port, rb_result *ret);
RB_IMPORT("socket-read") void host_socket_read(u64 socket, u64 len, rb_result *ret);
RB_IMPORT("socket-write") void host_socket_write(u64 socket, const void *p, u32 n, rb_result *ret);
RB_IMPORT("socket-close") void host_socket_close(u64 socket);

/* -- memory and text */

void *memcpy(void *to, const void *from, unsigned long n);
void *memset(void *at, int c, unsigned long n);
void *memmove(void *to, const void *from, unsigned long n);

void *rb_alloc(u32 n); /* traps where memory is at its limit */
u32 rb_mark(void);
void rb_release(u32 mark);
u32 rb_length(const char *s);
rb_text rb_of(const char *s);
int rb_is(rb_text text, const char *s);

/* One line of text, as long as RB_LINE; rb_take gives it and begins the next. */
#define RB_LINE 4096
void rb_add(const char *s);
void rb_add_text(rb_text text);
void rb_add_number(u64 v);
void rb_add_signed(i64 v);
rb_text rb_take(void);
void rb_say(u32 level); /* logs the line */

/* -- JSON: the first key of that name wherever it stands; enough for flat documents */

extern rb_text rb_config; /* what open got */
const char *rb_find(rb_text json, const char *key); /* where its value begins; 0: nowhere */
u64 rb_number(rb_text json, const char *key, u64 otherwise);
i64 rb_signed(rb_text json, const char *key, i64 otherwise);
int rb_flag(rb_text json, const char *key, int otherwise);
rb_text rb_string(rb_text json, const char *key); /* escapes stay as they are */
int rb_listed(rb_text json, const char *key, const char *word); /* in a list of strings; 1: no list */

/* -- what the five functions return */

void rb_make_error(rb_error *e, u8 category, const char *code, const char *message);
void *rb_opened(u64 session);
void *rb_refused(u8 category, const char *code, const char *message); /* of open */
void *rb_catalog(const char *json, u32 n);
void *rb_valid(u8 status, const char *message);
void *rb_closed(void);
/* The five counts of the role's summary, in the WIT's order. */
void *rb_done(u64 a, u64 b, u64 c, u64 d, u64 e);
/* An error of run. What may be changed in it lies in rb_answer.v.e. transient ones are retryable. */
void *rb_failed(u8 category, const char *code, const char *message);
void *rb_passed_on(const rb_result *r); /* the host's own error, unchanged */
extern rb_run_result rb_answer;

/* In run: RB_MUST(host_frame_seal(frame, &r)) ends it where the call gave an error. */
#define RB_MUST(call) do { call; if (r.is_err) return rb_passed_on(&r); } while (0)

/* -- progress */

/* A source's: everything up to this cursor was emitted before. Not where there is no cursor. */
void rb_source_checkpoint(rb_text stream, rb_text field, i64 value, u64 rows, u64 bytes, rb_result *r);
/* A destination's: everything taken so far is durable. id: 1, 2, 3, ... */
void rb_destination_checkpoint(u64 id, rb_text stream, u64 rows, u64 bytes, rb_result *r);
void rb_count(const char *metric, u64 by, rb_result *r);

#endif
