//! What a connector tells its host beside the data: lines, metrics, checkpoints.

use serde_json::{Value, json};

use crate::documents::CursorValue;
use crate::{Outcome, host};

pub fn info(line: &str) {
    host::log(2, line);
}

pub fn debug(line: &str) {
    host::log(3, line);
}

/// Who speaks, and of which stream.
pub struct Teller {
    pub connector: &'static str,
    pub stream: String,
}

pub struct Mark {
    pub id: u64,
    pub kind: &'static str,
    pub cursor: Option<(String, String)>,
    pub records: u64,
    pub bytes: u64,
}

impl Teller {
    fn wrapped(&self, payload: Value) -> String {
        json!({
            "protocol_version": "4",
            "connector_id": self.connector,
            "stream_name": self.stream,
            "payload": payload,
        })
        .to_string()
    }

    /// A metric that the host would not take is no reason to fail.
    pub fn counter(&self, name: &str, value: u64) {
        let value = json!({"type": "counter", "value": value});
        let _ = host::metric(&self.wrapped(json!({"name": name, "value": value})));
    }

    pub fn seconds(&self, name: &str, value: f64) {
        let value = json!({"type": "histogram", "value": value});
        let _ = host::metric(&self.wrapped(json!({"name": name, "value": value})));
    }

    pub fn checkpoint(&self, mark: Mark) -> Outcome<()> {
        let mut payload = json!({
            "id": mark.id,
            "kind": mark.kind,
            "stream": self.stream,
            "records_processed": mark.records,
            "bytes_processed": mark.bytes,
        });
        if let Some((field, value)) = mark.cursor {
            payload["cursor_field"] = json!(field);
            let value = CursorValue { r#type: "utf8".to_owned(), value: json!(value) };
            payload["cursor_value"] = json!(value);
        }
        let kind = if mark.kind == "source" { 0 } else { 1 };
        host::checkpoint(kind, &self.wrapped(payload))
    }
}
