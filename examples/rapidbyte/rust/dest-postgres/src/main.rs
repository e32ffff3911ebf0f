//! A Rapidbyte v4 destination: tables of a Postgres database, written by COPY or INSERT.

mod cells;
mod load;
mod run;
mod tables;

use rapidbyte_guest::documents::{self, StreamContext};
use rapidbyte_guest::session::{Slot, block_on};
use rapidbyte_guest::types::{ConnectorRole, RunRequest, RunSummary, Session, ValidationReport};
use rapidbyte_guest::{Outcome, section};

use bindings::exports::rapidbyte::connector::destination::Guest;

mod bindings {
    wit_bindgen::generate!({
        path: "../../../../wit",
        world: "rapidbyte-destination",
        with: {
            "rapidbyte:connector/types@4.0.0": rapidbyte_guest::types,
            "rapidbyte:connector/host@4.0.0": rapidbyte_guest::host,
        },
    });
}

section!("rapidbyte_manifest_v1", "../manifest.json");
section!("rapidbyte_config_schema_v1", "../config-schema.json");

static SESSION: Slot<run::Settings> = Slot::new();

struct Connector;

impl Guest for Connector {
    fn open(config_json: String) -> Outcome<Session> {
        Ok(SESSION.open(documents::configuration(&config_json)?))
    }

    fn validate(_: Session) -> Outcome<ValidationReport> {
        let settings = SESSION.get()?;
        block_on(settings.server.validate())
    }

    fn run(_: Session, request: RunRequest) -> Outcome<RunSummary> {
        let settings = SESSION.get()?;
        let context: StreamContext = documents::stream_context(&request.stream_context_json)?;
        let written = block_on(run::write(&settings, &context))?;
        Ok(RunSummary {
            role: ConnectorRole::Destination,
            read: None,
            write: Some(written),
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
