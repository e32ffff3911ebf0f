/* Arrow IPC: encapsulated messages whose metadata are flatbuffers, made by hand from their end to
   their beginning. Sources: Arrow's Message.fbs and Schema.fbs; the flatbuffers' binary format. */
#include "arrow.h"

/* -- flatbuffers, writing: fb is where the next byte goes before; offsets count from the end */

static u8 *fb, *fb_end;
static u32 fb_size(void) { return (u32)(fb_end - fb); }
static void fb_begin(u32 room) { fb = (u8 *)rb_alloc(room) + room; fb_end = fb; }
static void fb_pad(u32 align, u32 extra) { while ((fb_size() + extra) % align) *--fb = 0; }
static void fb_put(const void *p, u32 n) { fb -= n; memcpy(fb, p, n); }
static void fb_scalar(u64 v, u32 n) { fb_pad(n, 0); fb_put(&v, n); }
static void fb_offset(u32 target) { fb_pad(4, 0); fb_scalar(fb_size() + 4 - target, 4); }
static u32 fb_string(rb_text s) {
  fb_pad(4, s.len + 1);
  *--fb = 0;
  fb_put(s.ptr, s.len);
  fb_scalar(s.len, 4);
  return fb_size();
}
static u32 fb_structs(const u64 *p, u32 count) { /* each of two u64 */
  fb_pad(8, 16 * count);
  fb_put(p, 16 * count);
  fb_scalar(count, 4);
  return fb_size();
}
static u32 fb_offsets(const u32 *targets, u32 count) {
  fb_pad(4, 4 * count);
  for (u32 i = count; i--;) fb_offset(targets[i]);
  fb_scalar(count, 4);
  return fb_size();
}
/* A field of a table: of so many bytes; 0: an offset; slot: its place in the table's type. */
typedef struct { u32 slot, bytes; u64 v; } fb_field;
static u32 fb_table(const fb_field *fields, u32 count) {
  u32 start = fb_size(), slots = 0, place[8];
  for (u32 i = 0; i < 8; i++) place[i] = 0;
  for (u32 i = 0; i < count; i++) {
    if (fields[i].bytes) fb_scalar(fields[i].v, fields[i].bytes);
    else fb_offset((u32)fields[i].v);
    place[fields[i].slot] = fb_size();
    if (fields[i].slot >= slots) slots = fields[i].slot + 1;
  }
  fb_pad(4, 0);
  fb_scalar(0, 4);
  u32 table = fb_size();
  for (u32 i = slots; i--;) fb_scalar(place[i] ? table - place[i] : 0, 2);
  fb_scalar(table - start, 2);
  fb_scalar(4 + 2 * slots, 2);
  u32 distance = fb_size() - table;
  memcpy(fb_end - table, &distance, 4);
  return table;
}

/* -- types: the union's tag, and the fields of its table */

static const struct { u8 tag, n; fb_field f[2]; } kinds[] = {
  [RB_BOOL] = {6, 0},
  [RB_INT16] = {2, 2, {{1, 1, 1}, {0, 4, 16}}},
  [RB_INT32] = {2, 2, {{1, 1, 1}, {0, 4, 32}}},
  [RB_INT64] = {2, 2, {{1, 1, 1}, {0, 4, 64}}},
  [RB_FLOAT32] = {3, 1, {{0, 2, 1}}},
  [RB_FLOAT64] = {3, 1, {{0, 2, 2}}},
  [RB_UTF8] = {5, 0},
  [RB_BINARY] = {4, 0},
  [RB_DATE32] = {8, 1, {{0, 2, 0}}},
  [RB_TIMESTAMP_MICROS] = {10, 1, {{0, 2, 2}}},
  [RB_DECIMAL128] = {7, 0},
};
static u64 width(rb_type type) {
  switch (type) {
    case RB_INT16: return 2;
    case RB_INT32: case RB_FLOAT32: case RB_DATE32: return 4;
    case RB_DECIMAL128: return 16;
    default: return 8;
  }
}
static u32 type_table(const rb_column *c) {
  fb_field f[] = {{0, 4, c->precision}, {1, 4, c->scale}, {2, 4, 128}};
  return c->type == RB_DECIMAL128 ? fb_table(f, 3) : fb_table(kinds[c->type].f, kinds[c->type].n);
}

static u32 schema(const rb_column *columns, u32 count) {
  u32 *fields = rb_alloc(4 * count + 4);
  for (u32 i = 0; i < count; i++) {
    u32 name = fb_string(columns[i].name), type = type_table(&columns[i]);
    u32 children = fb_offsets(0, 0);
    fb_field f[] = {{1, 1, 1}, {2, 1, kinds[columns[i].type].tag}, {0, 0, name}, {3, 0, type}, {5, 0, children}};
    fields[i] = fb_table(f, 5);
  }
  fb_field f[] = {{1, 0, fb_offsets(fields, count)}};
  return fb_table(f, 1);
}

/* The whole message before its body, in place: marker, length, metadata to a multiple of 8. */
static rb_text message(u8 tag, u32 header, u64 body) {
  fb_field f[] = {{1, 1, tag}, {0, 2, 4}, {2, 0, header}, {3, 8, body}};
  u32 root = fb_table(f, 4);
  fb_pad(8, 4);
  fb_offset(root);
  u32 n = fb_size(), marker = 0xffffffff;
  fb_put(&n, 4);
  fb_put(&marker, 4);
  return (rb_text){(char *)fb, n + 8};
}

static u64 padded(u64 n) { return (n + 7) & ~7ull; }

typedef struct { const void *p; u64 n; } piece;

static u32 pieces_of(const rb_column *c, u64 rows, piece *out) {
  u32 n = 0;
  out[n++] = (piece){c->validity, c->nulls ? (rows + 7) / 8 : 0};
  if (c->offsets) {
    out[n++] = (piece){c->offsets, 4 * (rows + 1)};
    out[n++] = (piece){c->values, c->offsets[rows]};
  } else
    out[n++] = (piece){c->values, c->type == RB_BOOL ? (rows + 7) / 8 : rows * width(c->type)};
  return n;
}

int rb_emit_columns(const rb_column *columns, u32 count, u64 rows, u64 *bytes, rb_result *r) {
  static const u8 zeros[8];
  static const u32 end[2] = {0xffffffff, 0};
  u32 mark = rb_mark(), names = 0, n = 0;
  for (u32 i = 0; i < count; i++) names += columns[i].name.len;
  piece *pieces = rb_alloc(3 * count * sizeof *pieces);
  u64 *places = rb_alloc(3 * count * 16), *nodes = rb_alloc(count * 16), body = 0;
  for (u32 i = 0; i < count; i++) {
    n += pieces_of(&columns[i], rows, pieces + n);
    nodes[2 * i] = rows;
    nodes[2 * i + 1] = columns[i].nulls;
  }
  for (u32 i = 0; i < n; i++) {
    places[2 * i] = body;
    places[2 * i + 1] = pieces[i].n;
    body += padded(pieces[i].n);
  }
  fb_begin(512 + 128 * count + names);
  rb_text first = message(1, schema(columns, count), 0);
  fb_begin(512 + 80 * count);
  u32 buffers = fb_structs(places, n), counts = fb_structs(nodes, count);
  fb_field f[] = {{0, 8, rows}, {1, 0, counts}, {2, 0, buffers}};
  rb_text second = message(3, fb_table(f, 3), body);

  *bytes = first.len + second.len + body + sizeof end;
  host_frame_new(*bytes, r);
  if (r->is_err) return 0;
  u64 frame = r->v.u;
  host_frame_write(frame, first.ptr, first.len, r);
  if (!r->is_err) host_frame_write(frame, second.ptr, second.len, r);
  for (u32 i = 0; i < n && !r->is_err; i++) {
    if (!pieces[i].n) continue;
    host_frame_write(frame, pieces[i].p, (u32)pieces[i].n, r);
    u32 pad = (u32)(padded(pieces[i].n) - pieces[i].n);
    if (pad && !r->is_err) host_frame_write(frame, zeros, pad, r);
  }
  if (!r->is_err) host_frame_write(frame, end, sizeof end, r);
  if (!r->is_err) host_frame_seal(frame, r);
  if (!r->is_err) host_emit_batch(frame, r);
  else host_frame_drop(frame);
  if (!r->is_err) rb_release(mark); /* an error's text lies there */
  return !r->is_err;
}

/* -- flatbuffers, reading */

static u32 u32_at(const u8 *p) { u32 v; memcpy(&v, p, 4); return v; }
static u64 u64_at(const u8 *p) { u64 v; memcpy(&v, p, 8); return v; }
static u32 u16_at(const u8 *p) { return p[0] | (u32)p[1] << 8; }
static const u8 *slot(const u8 *table, u32 number) { /* 0: absent */
  const u8 *v = table - (int)u32_at(table);
  u32 at = 4 + 2 * number < u16_at(v) ? u16_at(v + 4 + 2 * number) : 0;
  return at ? table + at : 0;
}
static const u8 *follow(const u8 *p) { return p ? p + u32_at(p) : 0; }
static u32 byte_of(const u8 *table, u32 n, u32 otherwise) { const u8 *p = slot(table, n); return p ? *p : otherwise; }
static u32 short_of(const u8 *table, u32 n, u32 otherwise) { const u8 *p = slot(table, n); return p ? u16_at(p) : otherwise; }

static u32 int_of(const u8 *table, u32 n, u32 otherwise) { const u8 *p = slot(table, n); return p ? u32_at(p) : otherwise; }

static rb_type type_of(const u8 *field) {
  const u8 *t = follow(slot(field, 3)), *bits;
  switch (byte_of(field, 2, 0)) {
    case 2:
      bits = slot(t, 0);
      if (!byte_of(t, 1, 0) || !bits) return RB_OTHER;
      return *bits == 16 ? RB_INT16 : *bits == 32 ? RB_INT32 : *bits == 64 ? RB_INT64 : RB_OTHER;
    case 3: return short_of(t, 0, 0) == 1 ? RB_FLOAT32 : short_of(t, 0, 0) == 2 ? RB_FLOAT64 : RB_OTHER;
    case 4: return RB_BINARY;
    case 5: return RB_UTF8;
    case 6: return RB_BOOL;
    case 7: return int_of(t, 2, 128) == 128 ? RB_DECIMAL128 : RB_OTHER;
    case 8: return short_of(t, 0, 1) == 0 ? RB_DATE32 : RB_OTHER;
    case 10: return short_of(t, 0, 0) == 2 ? RB_TIMESTAMP_MICROS : RB_OTHER;
    default: return RB_OTHER;
  }
}
static void read_schema(rb_stream *s, const u8 *header) {
  const u8 *fields = follow(slot(header, 1));
  s->count = fields ? u32_at(fields) : 0;
  s->columns = rb_alloc(s->count * sizeof *s->columns + 1);
  for (u32 i = 0; i < s->count; i++) {
    const u8 *field = follow(fields + 4 + 4 * i), *name = follow(slot(field, 0));
    s->columns[i] = (rb_column){
      .name = name ? (rb_text){(char *)name + 4, u32_at(name)} : (rb_text){"", 0}, .type = type_of(field)};
    if (s->columns[i].type != RB_DECIMAL128) continue;
    s->columns[i].precision = int_of(follow(slot(field, 3)), 0, 0);
    s->columns[i].scale = int_of(follow(slot(field, 3)), 1, 0);
  }
}
static void read_batch(rb_stream *s, const u8 *header, const u8 *body) {
  const u8 *nodes = follow(slot(header, 1)), *buffers = follow(slot(header, 2)), *rows = slot(header, 0);
  s->rows = rows ? u64_at(rows) : 0;
  u32 next = 0, known = 1;
  for (u32 i = 0; i < s->count; i++) {
    rb_column *c = &s->columns[i];
    if (c->type == RB_OTHER) known = 0; /* how many buffers it has is not known here */
    c->values = 0;
    if (!known) continue;
    c->nulls = u64_at(nodes + 4 + 16 * i + 8);
    c->validity = c->nulls ? body + u64_at(buffers + 4 + 16 * next) : 0;
    next++;
    if (c->type == RB_UTF8 || c->type == RB_BINARY) c->offsets = (u32 *)(body + u64_at(buffers + 4 + 16 * next++));
    c->values = body + u64_at(buffers + 4 + 16 * next++);
  }
}

int rb_next_columns(rb_stream *s) {
  while (s->end - s->at >= 8) {
    if (u32_at(s->at) != 0xffffffff) return -1;
    u32 n = u32_at(s->at + 4);
    const u8 *meta = s->at + 8;
    if (!n) return 0;
    if (n > (u64)(s->end - meta)) return -1;
    const u8 *root = follow(meta), *size = slot(root, 3), *header = follow(slot(root, 2));
    u64 body = size ? u64_at(size) : 0;
    if (!header || body > (u64)(s->end - meta - n)) return -1;
    s->at = meta + n + body;
    switch (byte_of(root, 1, 0)) {
      case 1: read_schema(s, header); break;
      case 3: read_batch(s, header, meta + n); return 1;
      default: return -1;
    }
  }
  return s->at == s->end ? 0 : -1;
}
