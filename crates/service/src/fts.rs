//! FTS's REST interface, so that FTS's clients can drive posthaste: Rucio and FTS's own.
//!
//! A job has files. Each file is moved by its own requests from one address to another, one at a
//! time. `ask` reads what clients send, `office` keeps it and answers queries, `clerk` makes
//! requests and follows them (`outcome`). `state` has FTS's rules of job states, `show` its words,
//! `http` its routes, `bodies` reads request bodies.

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

/// State shared by the routes and the clerk.
#[derive(Debug, Default)]
pub(crate) struct Fts {
    /// Notified when there is work.
    told: tokio::sync::Notify,
    /// Limits on request bodies.
    bodies: bodies::Bodies,
    /// Held during changes of jobs.
    turn: Arc<Mutex<()>>,
}

impl Fts {
    /// Locks changes of jobs until the returned guard is dropped.
    fn turn(&self) -> std::sync::MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
