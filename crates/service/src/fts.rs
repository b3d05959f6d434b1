//! FTS's REST interface, so that what drives FTS drives posthaste: Rucio and FTS's own clients.
//!
//! A job has files; each is moved by requests of its own from one address to another, one at a time. `ask` reads what clients
//! send, `office` keeps it and answers about it, `clerk` hands out requests and follows them (`outcome`), `state` has FTS's rules of how jobs
//! stand, `show` has its words, `http` its routes, `bodies` what comes in.

mod ask;
mod bodies;
mod clerk;
mod http;
mod office;
mod outcome;
mod show;
mod state;

use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use ask::try_job;
pub(crate) use clerk::run;
pub(crate) use http::{PREFIX, at_root, root, routes, shape_refusal};

/// What the routes and the clerk share.
#[derive(Debug, Default)]
pub(crate) struct Fts {
    /// There is something to do.
    told: tokio::sync::Notify,
    /// The bodies that come.
    bodies: bodies::Bodies,
    /// Held by whoever changes jobs.
    turn: Arc<Mutex<()>>,
}

impl Fts {
    /// Nobody else changes jobs until this is dropped.
    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
