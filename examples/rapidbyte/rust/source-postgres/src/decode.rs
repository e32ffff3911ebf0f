//! Binary COPY data into Arrow columns.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, PrimitiveBuilder};
use arrow_array::types::{
    Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use rapidbyte_guest::postgres::{COPY_HEADER, EPOCH_DAYS, EPOCH_MICROS};
use rapidbyte_guest::{ConnectorError, Outcome, faults};

use crate::catalog::{Column, Kind};

enum Builder {
    Bool(BooleanBuilder),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    Date(PrimitiveBuilder<Date32Type>),
    Binary(BinaryBuilder),
    /// Checked for UTF-8 all at once, when it is finished.
    Text(BinaryBuilder),
}

fn fixed<const N: usize>(value: &[u8]) -> Outcome<[u8; N]> {
    value
        .try_into()
        .map_err(|_| broken(&format!("a value of {} bytes instead of {N}", value.len())))
}

fn broken(what: &str) -> ConnectorError {
    faults::data("COPY_DECODE", format!("the server's COPY data: {what}"))
}

/// Infinity keeps its own number, which no other value has.
fn micros(since_2000: i64) -> Outcome<i64> {
    match since_2000 {
        i64::MIN | i64::MAX => Ok(since_2000),
        _ => since_2000.checked_add(EPOCH_MICROS).ok_or_else(|| broken("a time beyond all times")),
    }
}

fn days(since_2000: i32) -> Outcome<i32> {
    match since_2000 {
        i32::MIN | i32::MAX => Ok(since_2000),
        _ => since_2000.checked_add(EPOCH_DAYS).ok_or_else(|| broken("a date beyond all dates")),
    }
}

impl Builder {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(BooleanBuilder::new()),
            Kind::Int16 => Self::Int16(PrimitiveBuilder::new()),
            Kind::Int32 => Self::Int32(PrimitiveBuilder::new()),
            Kind::Int64 => Self::Int64(PrimitiveBuilder::new()),
            Kind::Float32 => Self::Float32(PrimitiveBuilder::new()),
            Kind::Float64 => Self::Float64(PrimitiveBuilder::new()),
            Kind::Timestamp => Self::Timestamp(PrimitiveBuilder::new()),
            Kind::Date => Self::Date(PrimitiveBuilder::new()),
            Kind::Binary => Self::Binary(BinaryBuilder::new()),
            Kind::Text => Self::Text(BinaryBuilder::new()),
        }
    }

    fn push(&mut self, value: &[u8]) -> Outcome<()> {
        match self {
            Self::Bool(b) => b.append_value(fixed::<1>(value)?[0] != 0),
            Self::Int16(b) => b.append_value(i16::from_be_bytes(fixed(value)?)),
            Self::Int32(b) => b.append_value(i32::from_be_bytes(fixed(value)?)),
            Self::Int64(b) => b.append_value(i64::from_be_bytes(fixed(value)?)),
            Self::Float32(b) => b.append_value(f32::from_be_bytes(fixed(value)?)),
            Self::Float64(b) => b.append_value(f64::from_be_bytes(fixed(value)?)),
            Self::Timestamp(b) => b.append_value(micros(i64::from_be_bytes(fixed(value)?))?),
            Self::Date(b) => b.append_value(days(i32::from_be_bytes(fixed(value)?))?),
            Self::Binary(b) | Self::Text(b) => b.append_value(value),
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Bool(b) => b.append_null(),
            Self::Int16(b) => b.append_null(),
            Self::Int32(b) => b.append_null(),
            Self::Int64(b) => b.append_null(),
            Self::Float32(b) => b.append_null(),
            Self::Float64(b) => b.append_null(),
            Self::Timestamp(b) => b.append_null(),
            Self::Date(b) => b.append_null(),
            Self::Binary(b) | Self::Text(b) => b.append_null(),
        }
    }

    fn finish(&mut self) -> Outcome<ArrayRef> {
        Ok(match self {
            Self::Bool(b) => Arc::new(b.finish()),
            Self::Int16(b) => Arc::new(b.finish()),
            Self::Int32(b) => Arc::new(b.finish()),
            Self::Int64(b) => Arc::new(b.finish()),
            Self::Float32(b) => Arc::new(b.finish()),
            Self::Float64(b) => Arc::new(b.finish()),
            Self::Timestamp(b) => Arc::new(b.finish()),
            Self::Date(b) => Arc::new(b.finish()),
            Self::Binary(b) => Arc::new(b.finish()),
            Self::Text(b) => Arc::new(
                StringArray::try_from_binary(b.finish()).map_err(|e| broken(&e.to_string()))?,
            ),
        })
    }
}

fn arrow_type(kind: Kind) -> DataType {
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Int16 => DataType::Int16,
        Kind::Int32 => DataType::Int32,
        Kind::Int64 => DataType::Int64,
        Kind::Float32 => DataType::Float32,
        Kind::Float64 => DataType::Float64,
        Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        Kind::Date => DataType::Date32,
        Kind::Binary => DataType::Binary,
        Kind::Text => DataType::Utf8,
    }
}

/// Takes the data of one COPY as it comes. A message holds one row as a rule, and the protocol
/// does not promise it: what is left of one waits for the next.
pub struct Decoder {
    schema: SchemaRef,
    builders: Vec<Builder>,
    /// The column whose last value is kept, in its binary form.
    watched: Option<usize>,
    last: Option<Vec<u8>>,
    rest: Vec<u8>,
    begun: bool,
    ended: bool,
    rows: usize,
    /// Of the rows that are not taken yet.
    pub bytes: usize,
}

impl Decoder {
    pub fn new(columns: &[Column], watched: Option<usize>) -> Self {
        let fields = columns.iter().map(|c| Field::new(&c.name, arrow_type(c.kind), c.nullable));
        Self {
            schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
            builders: columns.iter().map(|c| Builder::new(c.kind)).collect(),
            watched,
            last: None,
            rest: Vec::new(),
            begun: false,
            ended: false,
            rows: 0,
            bytes: 0,
        }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    pub fn feed(&mut self, piece: &[u8]) -> Outcome<()> {
        if self.rest.is_empty() {
            let used = self.take(piece)?;
            self.rest.extend_from_slice(&piece[used..]);
        } else {
            let mut held = std::mem::take(&mut self.rest);
            held.extend_from_slice(piece);
            let used = self.take(&held)?;
            held.drain(..used);
            self.rest = held;
        }
        Ok(())
    }

    /// The rows so far, as a batch; the decoder goes on with the next one.
    pub fn batch(&mut self) -> Outcome<RecordBatch> {
        let columns = self.builders.iter_mut().map(Builder::finish).collect::<Outcome<Vec<_>>>()?;
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|e| broken(&e.to_string()))
    }

    pub fn finish(&self) -> Outcome<()> {
        if self.ended { Ok(()) } else { Err(broken("it ends before its end")) }
    }

    fn take(&mut self, data: &[u8]) -> Outcome<usize> {
        let mut at = 0;
        if !self.begun {
            if data.len() < COPY_HEADER.len() {
                return Ok(0);
            }
            if &data[..11] != b"PGCOPY\n\xff\r\n\0" {
                return Err(broken("it does not begin as binary COPY data"));
            }
            self.begun = true;
            at = COPY_HEADER.len();
        }
        while let Some(length) = self.whole_row(&data[at..])? {
            self.row(&data[at..at + length])?;
            at += length;
        }
        Ok(at)
    }

    /// The length of the row at the start of the data, where all of it is there.
    fn whole_row(&self, data: &[u8]) -> Outcome<Option<usize>> {
        if data.len() < 2 {
            return Ok(None);
        }
        let fields = i16::from_be_bytes([data[0], data[1]]);
        let mut at = 2;
        for _ in 0..fields.max(0) {
            let Some(length) = data.get(at..at + 4) else {
                return Ok(None);
            };
            let length = i32::from_be_bytes(fixed(length)?);
            at += 4 + length.max(0) as usize;
        }
        Ok((at <= data.len()).then_some(at))
    }

    fn row(&mut self, row: &[u8]) -> Outcome<()> {
        let fields = i16::from_be_bytes([row[0], row[1]]);
        if fields == -1 {
            self.ended = true;
            return Ok(());
        }
        if fields as usize != self.builders.len() {
            let said = format!("{fields} fields instead of {}", self.builders.len());
            return Err(broken(&said));
        }
        let mut at = 2;
        for (index, builder) in self.builders.iter_mut().enumerate() {
            let length = i32::from_be_bytes(fixed(&row[at..at + 4])?);
            at += 4;
            if length < 0 {
                builder.push_null();
                continue;
            }
            let value = &row[at..at + length as usize];
            builder.push(value)?;
            if self.watched == Some(index) {
                let last = self.last.get_or_insert_default();
                last.clear();
                last.extend_from_slice(value);
            }
            at += length as usize;
        }
        self.rows += 1;
        self.bytes += row.len();
        Ok(())
    }
}
