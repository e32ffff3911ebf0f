//! Arrow values in Postgres's binary form: a length and its bytes, as COPY rows and arrays have it.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{
    Array, BinaryArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int16Array,
    Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};
use bytes::{BufMut, BytesMut};

use rapidbyte_guest::postgres::{EPOCH_DAYS, EPOCH_MICROS};

/// The type of a new column; none: it is not taken.
pub fn column_type(arrow: &DataType) -> Option<&'static str> {
    Some(match arrow {
        DataType::Boolean => "boolean",
        DataType::Int16 => "smallint",
        DataType::Int32 => "integer",
        DataType::Int64 => "bigint",
        DataType::Float32 => "real",
        DataType::Float64 => "double precision",
        DataType::Utf8 | DataType::Null => "text",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "timestamptz",
        DataType::Date32 => "date",
        DataType::Binary => "bytea",
        _ => return None,
    })
}

/// How one Arrow type is written for one Postgres type.
#[derive(Clone, Copy)]
pub enum Form {
    Bool,
    /// As an integer of so many bytes, of which the Arrow type has no more.
    Integer(u8),
    Float32,
    Float64,
    Text,
    /// A version number, and text.
    Jsonb,
    Timestamp,
    Date,
    Binary,
    Null,
}

/// `udt`: Postgres's own name of the type. None: such a column cannot take such values.
pub fn form(arrow: &DataType, udt: &str) -> Option<Form> {
    let width = match udt {
        "int2" => 2,
        "int4" => 4,
        "int8" => 8,
        _ => 0,
    };
    Some(match (arrow, udt) {
        (DataType::Null, _) => Form::Null,
        (DataType::Boolean, "bool") => Form::Bool,
        (DataType::Int16, _) if width >= 2 => Form::Integer(width),
        (DataType::Int32, _) if width >= 4 => Form::Integer(width),
        (DataType::Int64, _) if width >= 8 => Form::Integer(width),
        (DataType::Float32, "float4") => Form::Float32,
        (DataType::Float32 | DataType::Float64, "float8") => Form::Float64,
        (DataType::Utf8, "text" | "varchar" | "bpchar" | "json" | "name") => Form::Text,
        (DataType::Utf8, "jsonb") => Form::Jsonb,
        (DataType::Timestamp(TimeUnit::Microsecond, _), "timestamp" | "timestamptz") => {
            Form::Timestamp
        }
        (DataType::Date32, "date") => Form::Date,
        (DataType::Binary, "bytea") => Form::Binary,
        _ => return None,
    })
}

enum Values<'a> {
    Bool(&'a BooleanArray),
    Int16(&'a Int16Array),
    Int32(&'a Int32Array),
    Int64(&'a Int64Array),
    Float32(&'a Float32Array),
    Float64(&'a Float64Array),
    Text(&'a StringArray),
    Timestamp(&'a TimestampMicrosecondArray),
    Date(&'a Date32Array),
    Binary(&'a BinaryArray),
    Null,
}

/// One column of a batch, ready to be written row by row.
pub struct Cells<'a> {
    values: Values<'a>,
    nulls: Option<&'a NullBuffer>,
    form: Form,
}

fn integer(value: i64, width: u8, out: &mut BytesMut) {
    out.put_i32(width.into());
    match width {
        2 => out.put_i16(value as i16),
        4 => out.put_i32(value as i32),
        _ => out.put_i64(value),
    }
}

fn bytes(value: &[u8], out: &mut BytesMut) {
    out.put_i32(value.len() as i32);
    out.put_slice(value);
}

impl<'a> Cells<'a> {
    /// `form` is one that [`form`] gave for the array's type.
    pub fn new(array: &'a dyn Array, form: Form) -> Self {
        let values = match array.data_type() {
            DataType::Boolean => Values::Bool(array.as_boolean()),
            DataType::Int16 => Values::Int16(array.as_primitive::<Int16Type>()),
            DataType::Int32 => Values::Int32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>()),
            DataType::Float32 => Values::Float32(array.as_primitive::<Float32Type>()),
            DataType::Float64 => Values::Float64(array.as_primitive::<Float64Type>()),
            DataType::Utf8 => Values::Text(array.as_string()),
            DataType::Timestamp(..) => {
                Values::Timestamp(array.as_primitive::<TimestampMicrosecondType>())
            }
            DataType::Date32 => Values::Date(array.as_primitive::<Date32Type>()),
            DataType::Binary => Values::Binary(array.as_binary()),
            _ => Values::Null,
        };
        let nulls = array.nulls().filter(|n| n.null_count() > 0);
        Self { values, nulls, form }
    }

    pub fn put(&self, row: usize, out: &mut BytesMut) {
        if self.is_null(row) {
            out.put_i32(-1);
            return;
        }
        match (&self.values, self.form) {
            (Values::Bool(a), _) => {
                out.put_i32(1);
                out.put_u8(a.value(row).into());
            }
            (Values::Int16(a), Form::Integer(w)) => integer(a.value(row).into(), w, out),
            (Values::Int32(a), Form::Integer(w)) => integer(a.value(row).into(), w, out),
            (Values::Int64(a), Form::Integer(w)) => integer(a.value(row), w, out),
            (Values::Float32(a), Form::Float64) => {
                out.put_i32(8);
                out.put_f64(a.value(row).into());
            }
            (Values::Float32(a), _) => {
                out.put_i32(4);
                out.put_f32(a.value(row));
            }
            (Values::Float64(a), _) => {
                out.put_i32(8);
                out.put_f64(a.value(row));
            }
            (Values::Text(a), Form::Jsonb) => {
                let text = a.value(row).as_bytes();
                out.put_i32(text.len() as i32 + 1);
                out.put_u8(1);
                out.put_slice(text);
            }
            (Values::Text(a), _) => bytes(a.value(row).as_bytes(), out),
            (Values::Binary(a), _) => bytes(a.value(row), out),
            (Values::Timestamp(a), _) => {
                out.put_i32(8);
                out.put_i64(match a.value(row) {
                    infinite @ (i64::MIN | i64::MAX) => infinite,
                    micros => micros.saturating_sub(EPOCH_MICROS),
                });
            }
            (Values::Date(a), _) => {
                out.put_i32(4);
                out.put_i32(match a.value(row) {
                    infinite @ (i32::MIN | i32::MAX) => infinite,
                    days => days.saturating_sub(EPOCH_DAYS),
                });
            }
            (Values::Null | Values::Int16(_) | Values::Int32(_) | Values::Int64(_), _) => {
                out.put_i32(-1);
            }
        }
    }

    pub fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.is_some_and(|n| n.is_null(row))
    }
}
