//! A Rapidbyte v4 source: tables of a Postgres database, read by binary COPY.

mod catalog;
mod decode;
mod run;

use rapidbyte_guest::documents::{self, StreamContext};
use rapidbyte_guest::postgres::Server;
use rapidbyte_guest::session::{Slot, block_on};
use rapidbyte_guest::types::{ConnectorRole, RunRequest, RunSummary, Session, ValidationReport};
use rapidbyte_guest::{Outcome, section};

use bindings::exports::rapidbyte::connector::source::Guest;

mod bindings {
    wit_bindgen::generate!({
        path: "../../../../wit",
        world: "rapidbyte-source",
        with: {
            "rapidbyte:connector/types@4.0.0": rapidbyte_guest::types,
            "rapidbyte:connector/host@4.0.0": rapidbyte_guest::host,
        },
    });
}

section!("rapidbyte_manifest_v1", "../manifest.json");
section!("rapidbyte_config_schema_v1", "../config-schema.json");

static SESSION: Slot<Server> = Slot::new();

struct Connector;

impl Guest for Connector {
    fn open(config_json: String) -> Outcome<Session> {
        Ok(SESSION.open(documents::configuration(&config_json)?))
    }

    fn discover(_: Session) -> Outcome<String> {
        let server = SESSION.get()?;
        block_on(async { catalog::discover(&server.connect().await?, &server.schema).await })
    }

    fn validate(_: Session) -> Outcome<ValidationReport> {
        let server = SESSION.get()?;
        block_on(server.validate())
    }

    fn run(_: Session, request: RunRequest) -> Outcome<RunSummary> {
        let server = SESSION.get()?;
        let context: StreamContext = documents::stream_context(&request.stream_context_json)?;
        let read = block_on(run::read(&server, &context))?;
        Ok(RunSummary {
            role: ConnectorRole::Source,
            read: Some(read),
            write: None,
            transform: None,
        })
    }

    fn close(_: Session) -> Outcome<()> {
        SESSION.close();
        Ok(())
    }
}

bindings::export!(Connector with_types_in bindings);

/// A host calls the exports above; a command that is also a component needs this to link.
fn main() {}
