//! The errors that a connector answers with, and what Postgres says in their terms.

use std::error::Error;

use tokio_postgres::error::SqlState;

use crate::ConnectorError;
use crate::stream::HostFault;
use crate::types::{BackoffClass, CommitState, ErrorCategory, ErrorScope};

pub fn fault(category: ErrorCategory, code: &str, message: impl Into<String>) -> ConnectorError {
    let passing = matches!(
        category,
        ErrorCategory::TransientDb | ErrorCategory::TransientNetwork | ErrorCategory::RateLimit
    );
    ConnectorError {
        category,
        scope: ErrorScope::PerStream,
        code: code.to_owned(),
        message: message.into(),
        retryable: passing,
        retry_after_ms: None,
        backoff_class: BackoffClass::Normal,
        safe_to_retry: passing,
        commit_state: None,
        details_json: None,
    }
}

pub fn config(code: &str, message: impl Into<String>) -> ConnectorError {
    fault(ErrorCategory::Config, code, message)
}

pub fn schema(code: &str, message: impl Into<String>) -> ConnectorError {
    fault(ErrorCategory::Schema, code, message)
}

pub fn data(code: &str, message: impl Into<String>) -> ConnectorError {
    fault(ErrorCategory::Data, code, message)
}

pub fn internal(code: &str, message: impl Into<String>) -> ConnectorError {
    fault(ErrorCategory::Internal, code, message)
}

/// The host's own words where it was the host that failed; else by the class of the SQLSTATE.
pub fn postgres(code: &str, error: &tokio_postgres::Error) -> ConnectorError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(said) = inner.downcast_ref::<std::io::Error>()
            && let Some(HostFault(said)) = said.get_ref().and_then(|e| e.downcast_ref())
        {
            return said.clone();
        }
        cause = inner.source();
    }
    match error.as_db_error() {
        Some(said) => {
            let words = format!("{} ({})", said.message(), said.code().code());
            fault(category(said.code()), code, words)
        }
        None if error.is_closed() => {
            fault(ErrorCategory::TransientNetwork, code, "the server closed the connection")
        }
        None => {
            let why = error.source().map(|e| format!(": {e}")).unwrap_or_default();
            internal(code, format!("{error}{why}"))
        }
    }
}

fn category(state: &SqlState) -> ErrorCategory {
    match state.code() {
        "42501" => ErrorCategory::Permission,
        "3D000" => ErrorCategory::Config,
        code => match &code[..2] {
            "28" => ErrorCategory::Auth,
            "08" | "40" | "53" | "55" | "57" | "58" => ErrorCategory::TransientDb,
            "21" | "22" | "23" => ErrorCategory::Data,
            "42" => ErrorCategory::Schema,
            _ => ErrorCategory::Internal,
        },
    }
}

/// A commit that was not answered may have happened: nobody may simply repeat it.
pub fn unknown_commit(mut fault: ConnectorError) -> ConnectorError {
    fault.commit_state = Some(CommitState::AfterCommitUnknown);
    fault.safe_to_retry = false;
    fault
}
