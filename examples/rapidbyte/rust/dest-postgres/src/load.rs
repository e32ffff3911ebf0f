//! Batches into one table: by binary COPY, which goes on over any number of batches, or by INSERT
//! of a few thousand rows at a time, each column an array.

use std::pin::Pin;

use arrow_array::RecordBatch;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::SinkExt;
use serde::Deserialize;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};
use tokio_postgres::{Client, CopyInSink, Statement};

use rapidbyte_guest::postgres::{COPY_HEADER, listed};
use rapidbyte_guest::{Outcome, faults};

use crate::cells::Cells;
use crate::tables::{Target, failed};

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    #[default]
    Copy,
    Insert,
}

/// Rows of one INSERT.
const ROWS: usize = 5000;

enum Way {
    Copy(Pin<Box<CopyInSink<Bytes>>>),
    Insert(Statement),
}

pub struct Load {
    targets: Vec<Target>,
    way: Way,
    pending: BytesMut,
    flush: usize,
}

impl Load {
    /// `flush`: bytes that are gathered before they are sent.
    pub async fn begin(
        client: &Client,
        table: &str,
        targets: Vec<Target>,
        method: Method,
        flush: usize,
    ) -> Outcome<Self> {
        let columns = listed(targets.iter().map(|t| &t.name));
        let mut pending = BytesMut::new();
        let way = match method {
            Method::Copy => {
                let copy = format!("COPY {table} ({columns}) FROM STDIN (FORMAT binary)");
                let sink = client.copy_in(&copy).await.map_err(|e| failed(&e))?;
                pending.put_slice(COPY_HEADER);
                Way::Copy(Box::pin(sink))
            }
            Method::Insert => {
                let arrays = targets.iter().enumerate();
                let arrays: Vec<String> =
                    arrays.map(|(i, t)| format!("${}::{}[]", i + 1, t.sql)).collect();
                let insert = format!(
                    "INSERT INTO {table} ({columns}) SELECT * FROM unnest({})",
                    arrays.join(", ")
                );
                Way::Insert(client.prepare(&insert).await.map_err(|e| failed(&e))?)
            }
        };
        Ok(Self { targets, way, pending, flush })
    }

    pub async fn write(&mut self, client: &Client, batch: &RecordBatch) -> Outcome<()> {
        let cells: Vec<Cells<'_>> =
            self.targets.iter().map(|t| Cells::new(batch.column(t.index), t.form)).collect();
        match &mut self.way {
            Way::Copy(sink) => {
                let pending = &mut self.pending;
                for row in 0..batch.num_rows() {
                    pending.put_i16(cells.len() as i16);
                    for cell in &cells {
                        cell.put(row, pending);
                    }
                    if pending.len() >= self.flush {
                        let ready = pending.split().freeze();
                        pending.reserve(self.flush + self.flush / 8);
                        sink.send(ready).await.map_err(|e| failed(&e))?;
                    }
                }
                Ok(())
            }
            Way::Insert(statement) => insert(client, statement, &cells, batch, self.flush).await,
        }
    }

    /// Everything is with the server, and the server took it.
    pub async fn finish(mut self) -> Outcome<()> {
        if let Way::Copy(mut sink) = self.way {
            self.pending.put_i16(-1);
            sink.send(self.pending.freeze()).await.map_err(|e| failed(&e))?;
            sink.as_mut().finish().await.map_err(|e| failed(&e))?;
        }
        Ok(())
    }
}

async fn insert(
    client: &Client,
    statement: &Statement,
    cells: &[Cells<'_>],
    batch: &RecordBatch,
    most: usize,
) -> Outcome<()> {
    let rows = batch.num_rows();
    if rows == 0 {
        return Ok(());
    }
    let width = batch.get_array_memory_size().div_ceil(rows).max(1);
    let step = (most / width).clamp(1, ROWS);
    for from in (0..rows).step_by(step) {
        let to = (from + step).min(rows);
        let mut arrays = Vec::with_capacity(cells.len());
        for (cell, kind) in cells.iter().zip(statement.params()) {
            arrays.push(array(cell, kind, from..to)?);
        }
        let given: Vec<&(dyn ToSql + Sync)> = arrays.iter().map(|a| a as _).collect();
        client.execute(statement, &given).await.map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Postgres's binary form of an array of one dimension.
fn array(cells: &Cells<'_>, kind: &Type, rows: std::ops::Range<usize>) -> Outcome<Encoded> {
    let Kind::Array(element) = kind.kind() else {
        return Err(faults::internal("INSERT_ENCODE", format!("{kind} is no array")));
    };
    let mut out = BytesMut::with_capacity(20 + rows.len() * 12);
    out.put_i32(1);
    out.put_i32(rows.clone().any(|row| cells.is_null(row)).into());
    out.put_u32(element.oid());
    out.put_i32(rows.len() as i32);
    out.put_i32(1);
    for row in rows {
        cells.put(row, &mut out);
    }
    Ok(Encoded(out))
}

#[derive(Debug)]
struct Encoded(BytesMut);

impl ToSql for Encoded {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    tokio_postgres::types::to_sql_checked!();
}
