//! Directories made in the background, many in one request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::{sync::Notify, task::JoinSet};

use super::{
    remote::Remote,
    wire::{
        DIRECTORIES_MAX, Done, MakeDirectories, MakeDirectory, Operation, Outcomes,
        SealDirectories, SealDirectory,
    },
};
use crate::{Error, Result, endpoint::Entry};

#[derive(Default)]
struct Queue {
    wanted: Vec<MakeDirectory>,
    /// True while a sender runs.
    is_running: bool,
    running: JoinSet<()>,
}

/// Directories that nobody waits for, since storing files in them creates them too.
pub(super) struct Directories {
    remote: Arc<Remote>,
    queue: Mutex<Queue>,
    settled: Notify,
}

impl Directories {
    pub(super) fn new(remote: Arc<Remote>) -> Arc<Self> {
        Arc::new(Self {
            remote,
            queue: Mutex::default(),
            settled: Notify::new(),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a directory to be made soon.
    pub(super) fn make(self: &Arc<Self>, directory: MakeDirectory) {
        let mut queue = self.queue();
        queue.wanted.push(directory);
        if queue.is_running {
            return;
        }
        queue.is_running = true;
        let this = Arc::downgrade(self);
        queue.running.spawn(async move {
            while let Some(this) = this.upgrade() {
                let Some(batch) = this.next_batch() else {
                    return;
                };
                // A directory that could not be made is retried when it is sealed, which reports
                // the error.
                let _ = this.send(batch).await;
            }
        });
    }

    fn next_batch(&self) -> Option<Vec<MakeDirectory>> {
        let mut queue = self.queue();
        if queue.wanted.is_empty() {
            queue.is_running = false;
            self.settled.notify_waiters();
            return None;
        }
        let count = queue.wanted.len().min(DIRECTORIES_MAX);
        Some(queue.wanted.drain(..count).collect())
    }

    async fn send(&self, directories: Vec<MakeDirectory>) -> Result<Outcomes<bool>> {
        let message = MakeDirectories { directories };
        let operation = Operation::MakeDirectories;
        self.remote.ask(operation, b"", &message).await
    }

    /// Sets the attributes of several directories in one request; one result each, in order.
    pub(super) async fn seal(&self, wanted: &[(Vec<u8>, Entry, bool)]) -> Vec<Result<()>> {
        match self.try_seal(wanted).await {
            Ok(outcomes) => outcomes,
            // The request failed for all of them; the first result carries the error.
            Err(error) => {
                let others = wanted.iter().skip(1).map(|(path, ..)| {
                    let shown = self.remote.show(path);
                    Err(Error::new(error.kind(), "set the attributes of", shown)
                        .cause("the request that had it failed")
                        .at(error.locus()))
                });
                let others: Vec<Result<()>> = others.collect();
                std::iter::once(Err(error)).chain(others).collect()
            }
        }
    }

    async fn try_seal(&self, wanted: &[(Vec<u8>, Entry, bool)]) -> Result<Vec<Result<()>>> {
        self.settle().await;
        let directories = wanted.iter().map(|(path, entry, _)| SealDirectory {
            path: self.remote.name(path),
            mode: entry.mode,
            mtime: entry.mtime,
        });
        let message = SealDirectories {
            directories: directories.collect(),
        };
        let operation = Operation::SealDirectories;
        let shown = wanted.first().map_or(&b""[..], |(path, ..)| path);
        let outcomes: Outcomes<Done> = self.remote.ask(operation, shown, &message).await?;
        if outcomes.0.len() != wanted.len() {
            let error = self
                .remote
                .nonsense(operation, "the answer has other results");
            return Err(error);
        }
        let outcomes = outcomes.0.into_iter().zip(wanted);
        let outcomes = outcomes.map(|(outcome, (path, ..))| match outcome {
            Ok(Done) => Ok(()),
            Err(refusal) => Err(self.remote.refused(operation, path, refusal)),
        });
        Ok(outcomes.collect())
    }

    /// Waits until all are made, or have failed.
    pub(super) async fn settle(&self) {
        loop {
            let settled = self.settled.notified();
            if !self.queue().is_running {
                return;
            }
            settled.await;
        }
    }
}
