//! One stream written: its frames into a table, by one of three write modes, in transactions.
//!
//! Append commits at each checkpoint interval and at the end. Replace and upsert load a table of
//! their own and are one transaction. Whatever fails, the open transaction is rolled back: also
//! where the host says that the stage before failed.

use std::time::Instant;

use arrow_schema::{FieldRef, SchemaRef};
use serde::Deserialize;
use tokio_postgres::Client;

use rapidbyte_guest::documents::{StreamContext, WriteMode};
use rapidbyte_guest::postgres::{Server, name, qualified};
use rapidbyte_guest::told::{self, Mark, Teller};
use rapidbyte_guest::types::WriteSummary;
use rapidbyte_guest::{Outcome, faults, frames};

use crate::load::{Load, Method};
use crate::tables::{self, execute};

const CONNECTOR: &str = env!("CARGO_PKG_NAME");
const FLUSH: u64 = 1 << 20;

#[derive(Clone, Deserialize)]
pub struct Settings {
    #[serde(flatten)]
    pub server: Server,
    #[serde(default)]
    load_method: Method,
    copy_flush_bytes: Option<u64>,
}

struct Writing<'a> {
    client: &'a Client,
    context: &'a StreamContext,
    settings: &'a Settings,
    teller: &'a Teller,
    /// The stream's table, and the one that is loaded.
    table: String,
    work: String,
    schema: Option<SchemaRef>,
    /// Every column that was seen.
    fields: Vec<FieldRef>,
    load: Option<Load>,
    in_transaction: bool,
    uncommitted: u64,
    seconds: Seconds,
    summary: WriteSummary,
}

#[derive(Default)]
struct Seconds {
    decode: f64,
    flush: f64,
    commit: f64,
}

pub async fn write(settings: &Settings, context: &StreamContext) -> Outcome<WriteSummary> {
    let teller = Teller { connector: CONNECTOR, stream: context.stream_name.clone() };
    if let Some(WriteMode::Upsert { primary_key }) = &context.write_mode
        && primary_key.is_empty()
    {
        return Err(faults::config("NO_PRIMARY_KEY", "upsert, and no primary_key is given"));
    }
    let began = Instant::now();
    let client = settings.server.connect().await?;
    teller.seconds("dest_connect_secs", began.elapsed().as_secs_f64());

    let mut writing = Writing::new(&client, settings, context, &teller);
    match writing.all().await {
        Ok(()) => Ok(writing.told()),
        Err(fault) => {
            // An unfinished COPY is given up before the transaction is.
            drop(writing.load.take());
            let _ = client.batch_execute("ROLLBACK").await;
            Err(fault)
        }
    }
}

impl<'a> Writing<'a> {
    fn new(
        client: &'a Client,
        settings: &'a Settings,
        context: &'a StreamContext,
        teller: &'a Teller,
    ) -> Self {
        let schema = &settings.server.schema;
        let stream = &context.stream_name;
        let table = qualified(schema, stream);
        let work = match &context.write_mode {
            None | Some(WriteMode::Append) => table.clone(),
            Some(WriteMode::Replace) => {
                qualified(schema, &tables::shortened(stream, "__rb_staging"))
            }
            Some(WriteMode::Upsert { .. }) => qualified("pg_temp", "__rb_upsert"),
        };
        let summary = WriteSummary {
            records_written: 0,
            bytes_written: 0,
            batches_written: 0,
            checkpoint_count: 0,
            records_failed: 0,
        };
        Self {
            client,
            context,
            settings,
            teller,
            table,
            work,
            schema: None,
            fields: Vec::new(),
            load: None,
            in_transaction: false,
            uncommitted: 0,
            seconds: Seconds::default(),
            summary,
        }
    }

    async fn all(&mut self) -> Outcome<()> {
        let limits = &self.context.limits;
        while let Some((length, bytes)) = frames::next(limits.max_batch_bytes)? {
            let began = Instant::now();
            let received = frames::decode(length, bytes)?;
            self.seconds.decode += began.elapsed().as_secs_f64();
            if self.schema.as_ref() != Some(&received.schema) {
                self.align(received.schema).await?;
            }
            let began = Instant::now();
            let client = self.client;
            for batch in &received.batches {
                self.loaded().await?.write(client, batch).await?;
                self.summary.records_written += batch.num_rows() as u64;
            }
            self.seconds.flush += began.elapsed().as_secs_f64();
            self.summary.batches_written += 1;
            self.summary.bytes_written += received.bytes;
            self.uncommitted += received.bytes;
            let interval = limits.checkpoint_interval_bytes;
            if self.appends() && interval > 0 && self.uncommitted >= interval {
                self.commit().await?;
            }
        }
        self.publish().await?;
        self.commit().await
    }

    fn appends(&self) -> bool {
        matches!(self.context.write_mode, None | Some(WriteMode::Append))
    }

    /// The load that is going on, or a new one.
    async fn loaded(&mut self) -> Outcome<&mut Load> {
        if self.load.is_none() {
            self.begin().await?;
            let fields = self.schema.as_ref().map(|s| s.fields().to_vec()).unwrap_or_default();
            let targets = tables::targets(self.client, &self.work, &fields).await?;
            let flush = self.context.copy_flush_bytes_override;
            let flush = flush.or(self.settings.copy_flush_bytes).unwrap_or(FLUSH).max(1) as usize;
            let method = self.settings.load_method;
            told::debug(&format!("{method:?} into {}, {flush} bytes at a time", self.work));
            let load = Load::begin(self.client, &self.work, targets, method, flush).await?;
            return Ok(self.load.insert(load));
        }
        self.load.as_mut().ok_or_else(|| faults::internal("NO_LOAD", "there is no load"))
    }

    /// Make room for the columns of what follows. Append does it in a transaction of its own, so
    /// that shards do not wait for each other's rows.
    async fn align(&mut self, schema: SchemaRef) -> Outcome<()> {
        self.finish().await?;
        if self.appends() {
            self.commit().await?;
        }
        let first = self.schema.replace(schema.clone()).is_none();
        for field in schema.fields() {
            if !self.fields.iter().any(|f| f.name() == field.name()) {
                self.fields.push(field.clone());
            }
        }
        self.begin().await?;
        match &self.context.write_mode {
            None | Some(WriteMode::Append) => {
                self.make_table(&[]).await?;
                execute(self.client, "COMMIT").await?;
                self.in_transaction = false;
                Ok(())
            }
            Some(_) if !first => {
                let add = rapidbyte_guest::documents::NewColumn::Add;
                tables::extend(self.client, &self.work, &self.fields, add).await
            }
            Some(WriteMode::Replace) => {
                execute(self.client, &format!("DROP TABLE IF EXISTS {}", self.work)).await?;
                tables::create(self.client, "TABLE", &self.work, &self.fields, &[]).await
            }
            Some(WriteMode::Upsert { .. }) => {
                let counted = format!("{} bigint GENERATED ALWAYS AS IDENTITY", tables::ORDINAL);
                tables::create(self.client, "TEMP TABLE", &self.work, &self.fields, &[counted])
                    .await
            }
        }
    }

    async fn make_table(&self, keys: &[String]) -> Outcome<()> {
        tables::lock(self.client, &self.table).await?;
        if tables::exists(self.client, &self.table).await? {
            let policy = self.context.policies.schema_evolution.new_column;
            tables::extend(self.client, &self.table, &self.fields, policy).await?;
        } else {
            tables::create(self.client, "TABLE", &self.table, &self.fields, &[]).await?;
        }
        if keys.is_empty() {
            return Ok(());
        }
        tables::unique(self.client, &self.table, &self.context.stream_name, keys).await
    }

    /// What was loaded aside becomes the stream's table, or goes into it.
    async fn publish(&mut self) -> Outcome<()> {
        self.finish().await?;
        let loaded = self.schema.is_some();
        match &self.context.write_mode {
            Some(WriteMode::Replace) if loaded => {
                let renamed = name(&self.context.stream_name);
                let swap = format!(
                    "DROP TABLE IF EXISTS {}; ALTER TABLE {} RENAME TO {renamed}",
                    self.table, self.work
                );
                execute(self.client, &swap).await
            }
            Some(WriteMode::Replace) => {
                // Replaced with nothing: the table stays, its rows do not.
                self.begin().await?;
                if tables::exists(self.client, &self.table).await? {
                    execute(self.client, &format!("TRUNCATE {}", self.table)).await?;
                }
                Ok(())
            }
            Some(WriteMode::Upsert { primary_key }) if loaded => {
                self.make_table(primary_key).await?;
                let (work, table) = (&self.work, &self.table);
                tables::merge(self.client, work, table, &self.fields, primary_key).await?;
                execute(self.client, &format!("DROP TABLE {work}")).await
            }
            _ => Ok(()),
        }
    }

    async fn begin(&mut self) -> Outcome<()> {
        if !self.in_transaction {
            execute(self.client, "BEGIN").await?;
            self.in_transaction = true;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Outcome<()> {
        let began = Instant::now();
        if let Some(load) = self.load.take() {
            load.finish().await?;
        }
        self.seconds.flush += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Commit what was written, and say so; nothing where nothing is open.
    async fn commit(&mut self) -> Outcome<()> {
        self.finish().await?;
        if !self.in_transaction {
            return Ok(());
        }
        let began = Instant::now();
        if let Err(e) = self.client.batch_execute("COMMIT").await {
            let fault = faults::postgres("COMMIT_FAILED", &e);
            // An answer means that it was refused.
            let refused = e.as_db_error().is_some();
            return Err(if refused { fault } else { faults::unknown_commit(fault) });
        }
        self.in_transaction = false;
        self.uncommitted = 0;
        self.seconds.commit += began.elapsed().as_secs_f64();
        self.summary.checkpoint_count += 1;
        self.teller.checkpoint(Mark {
            id: self.summary.checkpoint_count,
            kind: "dest",
            cursor: None,
            records: self.summary.records_written,
            bytes: self.summary.bytes_written,
        })
    }

    fn told(self) -> WriteSummary {
        let teller = self.teller;
        teller.seconds("dest_arrow_decode_secs", self.seconds.decode);
        teller.seconds("dest_flush_secs", self.seconds.flush);
        teller.seconds("dest_commit_secs", self.seconds.commit);
        teller.counter("records_written", self.summary.records_written);
        teller.counter("bytes_written", self.summary.bytes_written);
        told::info(&format!("{} rows into {}", self.summary.records_written, self.table));
        self.summary
    }
}
