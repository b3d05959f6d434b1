//! Executor for the futures of an HTTP/2 connection, which end with their owner.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// Owner of the futures of one connection.
#[derive(Debug, Clone, Default)]
pub struct Owned {
    running: Arc<Mutex<JoinSet<()>>>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Owned {
    fn execute(&self, future: F) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        running.spawn(future);
    }
}
