//! The one session of an instance, and the runtime that its work runs on.

use std::future::Future;
use std::sync::Mutex;

use crate::{Outcome, faults};

/// The number of every session: a host opens an instance once.
pub const NUMBER: u64 = 1;

/// What `open` left for the calls after it.
pub struct Slot<T>(Mutex<Option<T>>);

impl<T: Clone> Slot<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    pub fn open(&self, config: T) -> u64 {
        *self.0.lock().unwrap() = Some(config);
        NUMBER
    }

    pub fn get(&self) -> Outcome<T> {
        let held = self.0.lock().unwrap();
        held.clone().ok_or_else(|| faults::internal("NOT_OPEN", "no session is open"))
    }

    pub fn close(&self) {
        *self.0.lock().unwrap() = None;
    }
}

impl<T: Clone> Default for Slot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Run to the end, with the tasks that it spawns, on this one thread.
pub fn block_on<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|e| faults::internal("RUNTIME", e.to_string()))?
        .block_on(work)
}
