//! What both connectors know of Postgres: how to reach it, names and literals.

use serde::Deserialize;
use tokio_postgres::{Client, Config, NoTls};

use crate::stream::HostStream;
use crate::types::{ValidationReport, ValidationStatus};
use crate::{Outcome, faults};

pub use postgres_protocol::escape::{escape_identifier as name, escape_literal as literal};

/// Microseconds, and days, from 1970 to 2000, where Postgres counts from.
pub const EPOCH_MICROS: i64 = 946_684_800_000_000;
pub const EPOCH_DAYS: i32 = 10_957;

/// What each Postgres stream of binary COPY data begins with: signature, flags, no extension.
pub const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

#[derive(Clone, Deserialize)]
pub struct Server {
    pub host: String,
    #[serde(default = "port")]
    pub port: u16,
    pub user: String,
    #[serde(default)]
    pub password: String,
    pub database: String,
    #[serde(default = "schema")]
    pub schema: String,
}

fn port() -> u16 {
    5432
}

fn schema() -> String {
    "public".to_owned()
}

/// A table, quoted, with its schema.
pub fn qualified(schema: &str, table: &str) -> String {
    format!("{}.{}", name(schema), name(table))
}

pub fn listed(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|n| name(n.as_ref())).collect();
    quoted.join(", ")
}

impl Server {
    /// Connected, in UTC. The connection's own task runs on the same thread, whenever whoever
    /// uses the client waits.
    pub async fn connect(&self) -> Outcome<Client> {
        let stream = HostStream::connect(&self.host, self.port)?;
        let mut config = Config::new();
        config
            .user(&self.user)
            .password(&self.password)
            .dbname(&self.database)
            .application_name("rapidbyte")
            .options("-c timezone=UTC -c datestyle=ISO");
        let failed = |e: &_| faults::postgres("CONNECT_FAILED", e);
        let (client, connection) =
            config.connect_raw(stream, NoTls).await.map_err(|e| failed(&e))?;
        // What goes wrong there reaches whoever waits for an answer.
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }

    /// Whether the server can be reached and answers. Only the connector's own faults are errors.
    pub async fn validate(&self) -> Outcome<ValidationReport> {
        let answer = async {
            let client = self.connect().await?;
            let asked = client.simple_query("SELECT 1").await;
            asked.map_err(|e| faults::postgres("QUERY_FAILED", &e)).map(drop)
        };
        let (status, message) = match answer.await {
            Ok(()) => (ValidationStatus::Success, format!("{} answers", self.host)),
            Err(e) => (ValidationStatus::Failed, format!("{}: {}", e.code, e.message)),
        };
        Ok(ValidationReport { status, message, warnings: Vec::new() })
    }
}
