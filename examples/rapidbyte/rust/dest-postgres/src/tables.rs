//! The tables of a load: made, extended, merged, swapped. Every statement runs in whatever
//! transaction is open.

use arrow_schema::FieldRef;
use tokio_postgres::Client;

use rapidbyte_guest::documents::NewColumn;
use rapidbyte_guest::postgres::{listed, name};
use rapidbyte_guest::{ConnectorError, Outcome, faults};

use crate::cells::{Form, column_type, form};

/// The order in which an upsert's rows came.
pub const ORDINAL: &str = "__rb_ordinal";

const COLUMNS: &str = "
    SELECT a.attname::text, t.typname::text, format_type(a.atttypid, NULL)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum";

/// A column that is there. `sql`: its type, without a length.
struct Existing {
    name: String,
    udt: String,
    sql: String,
}

/// A column that is loaded: which one of the stream's, and how.
pub struct Target {
    pub name: String,
    pub sql: String,
    pub index: usize,
    pub form: Form,
}

pub async fn execute(client: &Client, statement: &str) -> Outcome<()> {
    client.batch_execute(statement).await.map_err(|e| failed(&e))
}

pub fn failed(e: &tokio_postgres::Error) -> ConnectorError {
    faults::postgres("WRITE_FAILED", e)
}

pub async fn exists(client: &Client, table: &str) -> Outcome<bool> {
    Ok(!existing(client, table).await?.is_empty())
}

async fn existing(client: &Client, table: &str) -> Outcome<Vec<Existing>> {
    let rows = client.query(COLUMNS, &[&table]).await.map_err(|e| failed(&e))?;
    let column =
        |r: &tokio_postgres::Row| Existing { name: r.get(0), udt: r.get(1), sql: r.get(2) };
    Ok(rows.iter().map(column).collect())
}

/// One at a time makes or alters a table; until the transaction ends.
pub async fn lock(client: &Client, table: &str) -> Outcome<()> {
    let asked = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    client.execute(asked, &[&table]).await.map(drop).map_err(|e| failed(&e))
}

fn declared(field: &FieldRef) -> Outcome<String> {
    let kind = column_type(field.data_type()).ok_or_else(|| {
        let said = format!("column {} is {}: cast it first", field.name(), field.data_type());
        faults::schema("UNSUPPORTED_TYPE", said)
    })?;
    Ok(format!("{} {kind}", name(field.name())))
}

/// `more`: further words of its definition. `words`: `TABLE`, `TEMP TABLE`.
pub async fn create(
    client: &Client,
    words: &str,
    table: &str,
    fields: &[FieldRef],
    more: &[String],
) -> Outcome<()> {
    let mut columns = fields.iter().map(declared).collect::<Outcome<Vec<_>>>()?;
    columns.extend_from_slice(more);
    execute(client, &format!("CREATE {words} {table} ({})", columns.join(", "))).await
}

/// Give a table the columns that it lacks, as the policy has it.
pub async fn extend(
    client: &Client,
    table: &str,
    fields: &[FieldRef],
    policy: NewColumn,
) -> Outcome<()> {
    let there = existing(client, table).await?;
    let mut added = Vec::new();
    for field in fields.iter().filter(|f| !there.iter().any(|c| &c.name == f.name())) {
        match policy {
            NewColumn::Add => added.push(format!("ADD COLUMN {}", declared(field)?)),
            NewColumn::Ignore => {}
            NewColumn::Fail => {
                let said = format!("{table} has no column {}", field.name());
                return Err(faults::schema("NEW_COLUMN", said));
            }
        }
    }
    if added.is_empty() {
        return Ok(());
    }
    execute(client, &format!("ALTER TABLE {table} {}", added.join(", "))).await
}

/// How the stream's columns go into the table's.
pub async fn targets(client: &Client, table: &str, fields: &[FieldRef]) -> Outcome<Vec<Target>> {
    let there = existing(client, table).await?;
    let mut found = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let Some(column) = there.iter().find(|c| &c.name == field.name()) else {
            continue;
        };
        let form = form(field.data_type(), &column.udt).ok_or_else(|| {
            let (is, given) = (&column.sql, field.data_type());
            let said = format!("column {} of {table} is {is}, it is given {given}", field.name());
            faults::schema("TYPE_MISMATCH", said)
        })?;
        let (name, sql) = (column.name.clone(), column.sql.clone());
        found.push(Target { name, sql, index, form });
    }
    if found.is_empty() {
        return Err(faults::schema("NO_COLUMNS", format!("nothing of it goes into {table}")));
    }
    Ok(found)
}

/// What `ON CONFLICT` needs.
pub async fn unique(client: &Client, table: &str, stream: &str, keys: &[String]) -> Outcome<()> {
    let index = name(&shortened(stream, "__rb_key"));
    let made = format!("CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {table} ({})", listed(keys));
    execute(client, &made).await
}

/// Of rows with the same key the last one is taken.
pub async fn merge(
    client: &Client,
    work: &str,
    table: &str,
    fields: &[FieldRef],
    keys: &[String],
) -> Outcome<()> {
    let there = existing(client, table).await?;
    let kept: Vec<&Existing> =
        there.iter().filter(|c| fields.iter().any(|f| f.name() == &c.name)).collect();
    let casts: Vec<String> =
        kept.iter().map(|c| format!("CAST(w.{} AS {})", name(&c.name), c.sql)).collect();
    let set: Vec<String> = kept
        .iter()
        .filter(|c| !keys.contains(&c.name))
        .map(|c| format!("{0} = EXCLUDED.{0}", name(&c.name)))
        .collect();
    let action = if set.is_empty() {
        "NOTHING".to_owned()
    } else {
        format!("UPDATE SET {}", set.join(", "))
    };
    let columns = listed(kept.iter().map(|c| &c.name));
    let (keys, casts) = (listed(keys), casts.join(", "));
    let merged = format!(
        "INSERT INTO {table} ({columns}) SELECT {casts} FROM (SELECT DISTINCT ON ({keys}) * \
         FROM {work} ORDER BY {keys}, {ORDINAL} DESC) AS w ON CONFLICT ({keys}) DO {action}"
    );
    execute(client, &merged).await
}

/// A name of our own beside a stream's, within Postgres's 63 bytes.
pub fn shortened(stream: &str, suffix: &str) -> String {
    let mut end = stream.len().min(63 - suffix.len());
    while !stream.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &stream[..end])
}
