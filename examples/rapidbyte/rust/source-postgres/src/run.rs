//! One stream read: the query, its rows as frames, and the cursor at the end.

use std::time::Instant;

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio_postgres::Client;
use tokio_postgres::types::{Format, IsNull, ToSql, Type};

use rapidbyte_guest::documents::StreamContext;
use rapidbyte_guest::postgres::{Server, literal, name, qualified};
use rapidbyte_guest::told::{self, Mark, Teller};
use rapidbyte_guest::types::ReadSummary;
use rapidbyte_guest::{Outcome, faults, frames};

use crate::catalog::{self, Column};
use crate::decode::Decoder;

const CONNECTOR: &str = env!("CARGO_PKG_NAME");
/// COPY bytes of a frame, where the largest batch that the next stage takes is not smaller.
const FRAME: u64 = 2 << 20;

struct Reading {
    columns: Vec<Column>,
    /// Index of the cursor's column.
    cursor: Option<usize>,
    query: String,
}

pub async fn read(server: &Server, context: &StreamContext) -> Outcome<ReadSummary> {
    let teller = Teller { connector: CONNECTOR, stream: context.stream_name.clone() };
    let began = Instant::now();
    let client = server.connect().await?;
    teller.seconds("source_connect_secs", began.elapsed().as_secs_f64());

    let reading = plan(&client, server, context).await?;
    told::debug(&reading.query);
    let began = Instant::now();
    let copy = format!("COPY ({}) TO STDOUT (FORMAT binary)", reading.query);
    let rows = client.copy_out(&copy).await.map_err(|e| faults::postgres("READ_FAILED", &e))?;
    teller.seconds("source_query_secs", began.elapsed().as_secs_f64());

    let began = Instant::now();
    let mut decoder = Decoder::new(&reading.columns, reading.cursor);
    let mut summary = ReadSummary {
        records_read: 0,
        bytes_read: 0,
        batches_emitted: 0,
        checkpoint_count: 0,
        records_skipped: 0,
    };
    let frame = (context.limits.max_batch_bytes / 2).clamp(1, FRAME) as usize;
    let mut encoding = 0.0;
    {
        let mut rows = std::pin::pin!(rows);
        let next = |e| faults::postgres("READ_FAILED", &e);
        while let Some(piece) = rows.try_next().await.map_err(next)? {
            let piece: Bytes = piece;
            decoder.feed(&piece)?;
            if decoder.bytes >= frame {
                encoding += emit(&mut decoder, &mut summary)?;
            }
        }
    }
    decoder.finish()?;
    if decoder.rows() > 0 {
        encoding += emit(&mut decoder, &mut summary)?;
    }
    let whole = began.elapsed().as_secs_f64();
    teller.seconds("source_fetch_secs", (whole - encoding).max(0.0));
    teller.seconds("source_arrow_encode_secs", encoding);
    teller.counter("records_read", summary.records_read);
    teller.counter("bytes_read", summary.bytes_read);

    if let (Some(index), Some(last)) = (reading.cursor, decoder.last()) {
        let column = &reading.columns[index];
        let value = spelled(&client, server, context.table(), column, last).await?;
        teller.checkpoint(Mark {
            id: 0,
            kind: "source",
            cursor: Some((column.name.clone(), value)),
            records: summary.records_read,
            bytes: summary.bytes_read,
        })?;
        summary.checkpoint_count = 1;
    }
    told::info(&format!("{} rows of {}", summary.records_read, context.stream_name));
    Ok(summary)
}

/// Seconds that it took, waiting for the next stage included.
fn emit(decoder: &mut Decoder, summary: &mut ReadSummary) -> Outcome<f64> {
    let began = Instant::now();
    let batch = decoder.batch()?;
    summary.bytes_read += frames::emit(&batch)?;
    summary.records_read += batch.num_rows() as u64;
    summary.batches_emitted += 1;
    Ok(began.elapsed().as_secs_f64())
}

async fn plan(client: &Client, server: &Server, context: &StreamContext) -> Outcome<Reading> {
    let table = context.table();
    let all = catalog::columns(client, &server.schema, table).await?;
    let cursor_field = match (context.sync_mode.as_str(), &context.cursor_info) {
        ("full_refresh", _) => None,
        ("incremental", Some(info)) => Some(info),
        ("incremental", None) => {
            return Err(faults::config("NO_CURSOR", "incremental, and no cursor_field is given"));
        }
        (mode, _) => {
            let said = format!("sync mode {mode} is not supported");
            return Err(faults::config("SYNC_MODE", said));
        }
    };
    let mut conditions = Vec::new();
    if let (Some(count), Some(index)) = (context.partition_count, context.partition_index)
        && count > 0
    {
        conditions.push(shard(&all, count, index));
    }
    let columns = selected(all, context, cursor_field.map(|c| c.cursor_field.as_str()))?;
    let mut cursor = None;
    let mut order = String::new();
    if let Some(info) = cursor_field {
        let index = columns.iter().position(|c| c.name == info.cursor_field);
        let index = index.ok_or_else(|| missing(&info.cursor_field))?;
        let quoted = name(&info.cursor_field);
        if let Some(value) = info.last_value.as_ref().and_then(|v| v.text()) {
            conditions.push(format!("t.{quoted} > {}", literal(&value)));
        }
        // What has no cursor value comes first, so that the last row has the largest one. Without
        // the alias a column that is read as text would be sorted as text.
        order = format!(" ORDER BY t.{quoted} NULLS FIRST");
        cursor = Some(index);
    }
    let listed: Vec<String> = columns.iter().map(Column::selected).collect();
    let mut query =
        format!("SELECT {} FROM {} AS t", listed.join(", "), qualified(&server.schema, table));
    if !conditions.is_empty() {
        query += &format!(" WHERE {}", conditions.join(" AND "));
    }
    query += &order;
    if let Some(most) = context.limits.max_records {
        query += &format!(" LIMIT {most}");
    }
    Ok(Reading { columns, cursor, query })
}

fn missing(column: &str) -> rapidbyte_guest::ConnectorError {
    faults::config("COLUMN_NOT_FOUND", format!("the table has no column {column}"))
}

/// In the table's order; the cursor is always among them.
fn selected(
    all: Vec<Column>,
    context: &StreamContext,
    cursor: Option<&str>,
) -> Outcome<Vec<Column>> {
    let Some(wanted) = context.selected_columns.as_ref().filter(|w| !w.is_empty()) else {
        return Ok(all);
    };
    if let Some(unknown) = wanted.iter().find(|w| !all.iter().any(|c| &c.name == *w)) {
        return Err(missing(unknown));
    }
    let kept = |c: &Column| wanted.contains(&c.name) || cursor == Some(c.name.as_str());
    Ok(all.into_iter().filter(kept).collect())
}

/// Each row is in one shard only, also where `id` is negative or null. A table without an integer
/// column `id` is whole in the first shard.
fn shard(columns: &[Column], count: u32, index: u32) -> String {
    if columns.iter().any(|c| c.name == "id" && c.kind.is_integer()) {
        format!("abs(coalesce(t.\"id\", 0)::int8 % {count}) = {index}")
    } else {
        (index == 0).to_string()
    }
}

/// The cursor's largest value as Postgres itself would write it, from the bytes that it sent.
async fn spelled(
    client: &Client,
    server: &Server,
    table: &str,
    column: &Column,
    value: &[u8],
) -> Outcome<String> {
    let failed = |e: &_| faults::postgres("CURSOR_FAILED", e);
    if !column.plain {
        return String::from_utf8(value.to_vec())
            .map_err(|e| faults::data("CURSOR_FAILED", e.to_string()));
    }
    let like =
        format!("SELECT {} FROM {} LIMIT 0", name(&column.name), qualified(&server.schema, table));
    let statement = client.prepare(&like).await.map_err(|e| failed(&e))?;
    let kind = statement.columns()[0].type_().clone();
    let asked = client.prepare_typed("SELECT $1::text", &[kind]).await;
    let asked = asked.map_err(|e| failed(&e))?;
    let row = client.query_one(&asked, &[&AsSent(value)]).await.map_err(|e| failed(&e))?;
    Ok(row.get(0))
}

/// A value in its binary form, of whatever type.
#[derive(Debug)]
struct AsSent<'a>(&'a [u8]);

impl ToSql for AsSent<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0);
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
