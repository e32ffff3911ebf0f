//! The JSON documents that cross, as far as these connectors read or write them. Unknown keys are
//! ignored, absent ones have v4's defaults.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Outcome, faults};

#[derive(Deserialize)]
pub struct StreamContext {
    pub stream_name: String,
    pub source_stream_name: Option<String>,
    pub sync_mode: String,
    pub cursor_info: Option<CursorInfo>,
    #[serde(default)]
    pub limits: Limits,
    #[serde(default)]
    pub policies: Policies,
    pub write_mode: Option<WriteMode>,
    pub selected_columns: Option<Vec<String>>,
    pub partition_count: Option<u32>,
    pub partition_index: Option<u32>,
    pub copy_flush_bytes_override: Option<u64>,
}

impl StreamContext {
    /// What the source itself calls it: a shard may go by another name.
    pub fn table(&self) -> &str {
        self.source_stream_name.as_deref().unwrap_or(&self.stream_name)
    }
}

#[derive(Deserialize)]
pub struct CursorInfo {
    pub cursor_field: String,
    pub last_value: Option<CursorValue>,
}

/// `type` is read and not believed: v4 says `utf8` of every column.
#[derive(Deserialize, Serialize)]
pub struct CursorValue {
    pub r#type: String,
    #[serde(default)]
    pub value: serde_json::Value,
}

impl CursorValue {
    pub fn text(&self) -> Option<String> {
        match &self.value {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

#[derive(Deserialize)]
#[serde(default)]
pub struct Limits {
    pub max_batch_bytes: u64,
    pub checkpoint_interval_bytes: u64,
    pub max_records: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_batch_bytes: 64 << 20, checkpoint_interval_bytes: 64 << 20, max_records: None }
    }
}

#[derive(Default, Deserialize)]
pub struct Policies {
    #[serde(default)]
    pub schema_evolution: SchemaEvolution,
}

#[derive(Default, Deserialize)]
pub struct SchemaEvolution {
    #[serde(default)]
    pub new_column: NewColumn,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum NewColumn {
    #[default]
    Add,
    Ignore,
    Fail,
}

#[derive(Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
pub enum WriteMode {
    Append,
    Replace,
    Upsert {
        #[serde(default)]
        primary_key: Vec<String>,
    },
}

#[derive(Serialize)]
pub struct Catalog {
    pub streams: Vec<CatalogStream>,
}

#[derive(Serialize)]
pub struct CatalogStream {
    pub name: String,
    pub schema: Vec<ColumnSchema>,
    pub supported_sync_modes: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_defined_primary_key: Option<Vec<String>>,
}

#[derive(Serialize)]
pub struct ColumnSchema {
    pub name: String,
    pub data_type: &'static str,
    pub nullable: bool,
}

pub fn stream_context(text: &str) -> Outcome<StreamContext> {
    serde_json::from_str(text).map_err(|e| faults::config("INVALID_STREAM_CTX", e.to_string()))
}

pub fn configuration<T: DeserializeOwned>(text: &str) -> Outcome<T> {
    serde_json::from_str(text).map_err(|e| faults::config("INVALID_CONFIG", e.to_string()))
}
