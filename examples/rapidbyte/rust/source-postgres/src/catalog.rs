//! What tables there are, and which column becomes what: Arrow type, and the SQL that gives it.

use std::collections::BTreeMap;

use tokio_postgres::Client;

use rapidbyte_guest::documents::{Catalog, CatalogStream, ColumnSchema};
use rapidbyte_guest::postgres::name;
use rapidbyte_guest::{Outcome, faults};

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Bool,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Timestamp,
    Date,
    Binary,
    Text,
}

impl Kind {
    /// By Postgres's own name of the type; whatever is not known is read as text.
    fn of(udt: &str) -> Self {
        match udt {
            "bool" => Self::Bool,
            "int2" => Self::Int16,
            "int4" => Self::Int32,
            "int8" => Self::Int64,
            "float4" => Self::Float32,
            "float8" => Self::Float64,
            "timestamp" | "timestamptz" => Self::Timestamp,
            "date" => Self::Date,
            "bytea" => Self::Binary,
            _ => Self::Text,
        }
    }

    /// As a catalog spells it.
    fn spelled(self) -> &'static str {
        match self {
            Self::Bool => "Boolean",
            Self::Int16 => "Int16",
            Self::Int32 => "Int32",
            Self::Int64 => "Int64",
            Self::Float32 => "Float32",
            Self::Float64 => "Float64",
            Self::Timestamp => "TimestampMicros",
            Self::Date => "Date32",
            Self::Binary => "Binary",
            Self::Text => "Utf8",
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int16 | Self::Int32 | Self::Int64)
    }
}

#[derive(Clone)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
    pub nullable: bool,
    /// Whether its binary form is what `kind` says, without a cast.
    pub plain: bool,
}

impl Column {
    fn new(name: String, udt: &str, nullable: bool) -> Self {
        let kind = Kind::of(udt);
        let text = matches!(udt, "text" | "varchar" | "bpchar");
        Self { name, kind, nullable, plain: kind != Kind::Text || text }
    }

    pub fn selected(&self) -> String {
        let quoted = name(&self.name);
        if self.plain { quoted } else { format!("{quoted}::text") }
    }
}

const COLUMNS: &str = "
    SELECT c.table_name::text, c.column_name::text, c.udt_name::text, c.is_nullable = 'YES'
    FROM information_schema.columns c JOIN information_schema.tables t
      USING (table_catalog, table_schema, table_name)
    WHERE c.table_schema = $1 AND ($2::text IS NULL OR c.table_name = $2)
      AND t.table_type IN ('BASE TABLE', 'VIEW', 'FOREIGN')
    ORDER BY c.table_name, c.ordinal_position";

const KEYS: &str = "
    SELECT k.table_name::text, k.column_name::text
    FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k
      USING (constraint_schema, constraint_name, table_schema, table_name)
    WHERE c.constraint_type = 'PRIMARY KEY' AND c.table_schema = $1
    ORDER BY k.table_name, k.ordinal_position";

type Tables = BTreeMap<String, Vec<Column>>;

async fn tables(client: &Client, schema: &str, only: Option<&str>) -> Outcome<Tables> {
    let rows = client.query(COLUMNS, &[&schema, &only]).await;
    let mut found = Tables::new();
    for row in rows.map_err(|e| faults::postgres("DISCOVER_FAILED", &e))? {
        let column = Column::new(row.get(1), row.get(2), row.get(3));
        found.entry(row.get(0)).or_default().push(column);
    }
    Ok(found)
}

pub async fn columns(client: &Client, schema: &str, table: &str) -> Outcome<Vec<Column>> {
    let mut found = tables(client, schema, Some(table)).await?;
    found.remove(table).ok_or_else(|| {
        faults::config("STREAM_NOT_FOUND", format!("there is no table {table} in schema {schema}"))
    })
}

pub async fn discover(client: &Client, schema: &str) -> Outcome<String> {
    let mut keys = BTreeMap::<String, Vec<String>>::new();
    let rows = client.query(KEYS, &[&schema]).await;
    for row in rows.map_err(|e| faults::postgres("DISCOVER_FAILED", &e))? {
        keys.entry(row.get(0)).or_default().push(row.get(1));
    }
    let described = tables(client, schema, None).await?.into_iter().map(|(table, columns)| {
        let schema = columns.into_iter().map(|c| ColumnSchema {
            name: c.name,
            data_type: c.kind.spelled(),
            nullable: c.nullable,
        });
        CatalogStream {
            schema: schema.collect(),
            supported_sync_modes: vec!["full_refresh", "incremental"],
            source_defined_primary_key: keys.remove(&table),
            name: table,
        }
    });
    let catalog = Catalog { streams: described.collect() };
    serde_json::to_string(&catalog).map_err(|e| faults::internal("CATALOG", e.to_string()))
}
