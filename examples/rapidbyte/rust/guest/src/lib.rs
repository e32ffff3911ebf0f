//! What the two connectors share: bindings of the host, and what is built on them.
//!
//! A connector's own bindings (of its role's world) take their types from here, so that there is one
//! `ConnectorError` in the whole component. Not here: what a source or a destination does.

pub mod documents;
pub mod faults;
pub mod frames;
pub mod postgres;
pub mod session;
pub mod stream;
pub mod told;

mod bindings {
    wit_bindgen::generate!({
        path: "../../../../wit",
        world: "rapidbyte-host",
    });
}

pub use bindings::rapidbyte::connector::{host, types};
pub use types::ConnectorError;

pub type Outcome<T> = Result<T, ConnectorError>;

/// Put a document into the component, as a custom section of its core module, where a host looks
/// for the manifest and the schema of the configuration.
#[macro_export]
macro_rules! section {
    ($title:literal, $file:literal) => {
        const _: () = {
            const DOCUMENT: &[u8] = include_bytes!($file);
            #[used]
            #[unsafe(link_section = $title)]
            static SECTION: [u8; DOCUMENT.len()] = *include_bytes!($file);
        };
    };
}
