/* A source of rows that it makes up, with no library but the SDK: full refresh, or incremental by id
   with a checkpoint after each frame. Config: rows, batch_rows, start. */
#include "arrow.h"

#define MOST_ROWS (1u << 20) /* in a frame */

static const char catalog[] =
    "{\"streams\":[{\"name\":\"numbers\",\"schema\":["
    "{\"name\":\"id\",\"data_type\":\"Int64\",\"nullable\":false},"
    "{\"name\":\"name\",\"data_type\":\"Utf8\",\"nullable\":true},"
    "{\"name\":\"amount\",\"data_type\":\"Float64\",\"nullable\":true},"
    "{\"name\":\"at\",\"data_type\":\"TimestampMicros\",\"nullable\":true},"
    "{\"name\":\"day\",\"data_type\":\"Date32\",\"nullable\":true},"
    "{\"name\":\"ok\",\"data_type\":\"Boolean\",\"nullable\":true}],"
    "\"supported_sync_modes\":[\"full_refresh\",\"incremental\"],"
    "\"source_defined_cursor\":\"id\",\"source_defined_primary_key\":[\"id\"]}]}";

static const char *const names[] = {"id", "name", "amount", "at", "day", "ok"};

static u64 batch_rows(void) { return rb_number(rb_config, "batch_rows", 25000); }

RB_EXPORT("open") void *source_open(char *config, u32 n) {
  rb_config = (rb_text){config, n};
  if (!batch_rows() || batch_rows() > MOST_ROWS)
    return rb_refused(RB_CONFIG, "BATCH_ROWS", "batch_rows must be 1 to 1048576");
  return rb_opened(1);
}
RB_EXPORT("discover") void *source_discover(u64 session) {
  return rb_catalog(catalog, sizeof catalog - 1);
}
RB_EXPORT("validate") void *source_validate(u64 session) {
  return rb_valid(RB_SUCCESS, "rows are made up: nothing can be wrong with them");
}
RB_EXPORT("close") void *source_close(u64 session) { return rb_closed(); }

/* What the columns of one frame lie in, filled again for each. */
static struct { i64 *id, *at; double *amount; int *day; u32 *ends; char *names; u8 *ok, *named; } room;

static void make_room(u64 rows) {
  room.id = rb_alloc((u32)rows * 8);
  room.at = rb_alloc((u32)rows * 8);
  room.amount = rb_alloc((u32)rows * 8);
  room.day = rb_alloc((u32)rows * 4);
  room.ends = rb_alloc((u32)rows * 4 + 4);
  room.names = rb_alloc((u32)rows * 21);
  room.ok = rb_alloc((u32)rows / 8 + 1);
  room.named = rb_alloc((u32)rows / 8 + 1);
}

/* Rows whose id is first, first + step, ...; every tenth has no name. Gives how many have none. */
static u64 fill(i64 first, u64 step, u64 rows) {
  u64 nameless = 0;
  u32 end = 0;
  memset(room.ok, 0, rows / 8 + 1);
  memset(room.named, 0, rows / 8 + 1);
  for (u64 i = 0; i < rows; i++) {
    i64 id = first + (i64)(i * step);
    room.id[i] = id;
    room.amount[i] = (double)id * 0.5;
    room.at[i] = 1700000000000000ll + id * 1000000;
    room.day[i] = 19675 + (int)(id / 86400 % 10000);
    if (id % 2 == 0) room.ok[i / 8] |= (u8)(1 << i % 8);
    room.ends[i] = end;
    if (id % 10 == 3) { nameless++; continue; }
    room.named[i / 8] |= (u8)(1 << i % 8);
    char digits[20];
    u32 n = sizeof digits;
    u64 v = id < 0 ? 0 - (u64)id : (u64)id;
    do digits[--n] = (char)('0' + v % 10); while (v /= 10);
    room.names[end++] = 'N';
    while (n < sizeof digits) room.names[end++] = digits[n++];
  }
  room.ends[rows] = end;
  return nameless;
}

RB_EXPORT("run") void *source_run(u64 session, u32 phase, char *text, u32 n, u32 dry_run,
                                  u32 some, u64 most) {
  rb_result r;
  rb_text context = {text, n}, stream = rb_string(context, "stream_name"), cursor = {0, 0};
  if (!rb_is(stream, "numbers")) return rb_failed(RB_CONFIG, "NO_SUCH_STREAM", "only numbers is here");
  u64 rows = rb_number(rb_config, "rows", 100000), cap = rb_number(context, "max_records", rows);
  u64 shards = rb_number(context, "partition_count", 1), shard = rb_number(context, "partition_index", 0);
  i64 next = rb_signed(rb_config, "start", 1), end = next + (i64)rows;
  if (rb_is(rb_string(context, "sync_mode"), "incremental")) {
    cursor = rb_string(context, "cursor_field");
    if (!rb_is(cursor, "id")) return rb_failed(RB_CONFIG, "NO_SUCH_CURSOR", "the cursor must be id");
    const char *last = rb_find(context, "last_value");
    if (last) {
      rb_text value = {last, (u32)(context.ptr + context.len - last)};
      i64 after = rb_signed(value, "value", next - 1) + 1;
      if (after > next) next = after;
    }
  }
  next += (i64)shard;

  u64 done = 0, bytes = 0, frames = 0, checkpoints = 0;
  u64 most_rows = batch_rows(), selected = 0;
  for (u32 i = 0; i < sizeof names / sizeof *names; i++)
    selected += (u64)rb_listed(context, "selected_columns", names[i]);
  if (!selected) return rb_failed(RB_CONFIG, "NO_COLUMNS", "none of the selected columns is here");
  make_room(most_rows);
  u32 mark = rb_mark();
  while (next < end && done < cap) {
    rb_release(mark);
    u64 left = ((u64)(end - next) + shards - 1) / shards, size = 0;
    u64 count = left < most_rows ? left : most_rows;
    if (count > cap - done) count = cap - done;
    u64 nameless = fill(next, shards, count);
    rb_column columns[] = {
      {rb_of(names[0]), RB_INT64, room.id},
      {rb_of(names[1]), RB_UTF8, room.names, room.ends, room.named, nameless},
      {rb_of(names[2]), RB_FLOAT64, room.amount},
      {rb_of(names[3]), RB_TIMESTAMP_MICROS, room.at},
      {rb_of(names[4]), RB_DATE32, room.day},
      {rb_of(names[5]), RB_BOOL, room.ok},
    };
    u32 wanted = 0;
    for (u32 i = 0; i < sizeof names / sizeof *names; i++)
      if (rb_listed(context, "selected_columns", names[i])) columns[wanted++] = columns[i];
    if (!rb_emit_columns(columns, wanted, count, &size, &r)) return rb_passed_on(&r);
    done += count;
    bytes += size;
    frames++;
    i64 last = next + (i64)((count - 1) * shards);
    next = last + (i64)shards;
    if (cursor.len) {
      RB_MUST(rb_source_checkpoint(stream, cursor, last, done, bytes, &r));
      checkpoints++;
    }
  }
  RB_MUST(rb_count("records_read", done, &r));
  return rb_done(done, bytes, frames, checkpoints, 0);
}
