/* Arrow IPC streams without a library: one record batch out, any number in. A frame is one complete
   stream. Types are those of the protocol that have a plain layout. */
#ifndef RAPIDBYTE_ARROW_H
#define RAPIDBYTE_ARROW_H
#include "rapidbyte.h"

typedef enum { RB_BOOL, RB_INT16, RB_INT32, RB_INT64, RB_FLOAT32, RB_FLOAT64, RB_UTF8, RB_BINARY,
               RB_DATE32, RB_TIMESTAMP_MICROS, RB_DECIMAL128, RB_OTHER } rb_type;

/* values: as Arrow lays them out (bool: bits, from the lowest; utf8 and binary: all bytes, with
   rows + 1 offsets). validity: bits, 0 where there are no nulls. */
typedef struct {
  rb_text name;
  rb_type type;
  const void *values;
  const u32 *offsets;
  const u8 *validity;
  u64 nulls;
  u32 precision, scale; /* of a decimal: 16 bytes each */
} rb_column;

/* Emits one batch as one frame. bytes: its size. 0: an error is in r. */
int rb_emit_columns(const rb_column *columns, u32 count, u64 rows, u64 *bytes, rb_result *r);

/* A stream being read; columns point into its bytes. */
typedef struct {
  const u8 *at, *end;
  u32 count;
  rb_column *columns;
  u64 rows;
} rb_stream;

/* 1: columns and rows are of the next batch; 0: the end; -1: this is no Arrow stream. Begin with
   {bytes, bytes + length}. A column of RB_OTHER has no values, nor has any column after it. */
int rb_next_columns(rb_stream *stream);

#endif
