//! Reports waits for a cap, so that no wait counts as a stalled connection.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

tokio::task_local! {
    static CURRENT: Excuse;
}

/// Waits of one attempt to move bytes for a cap. Clones are of the same attempt.
#[derive(Debug, Clone, Default)]
pub struct Excuse {
    waits: Arc<AtomicUsize>,
}

/// Wait that ends when this is dropped.
pub(super) struct Waiting {
    excuse: Excuse,
}

impl Excuse {
    /// Runs an attempt: its requests and streams are excused by this while they wait.
    pub async fn cover<F: Future>(&self, attempt: F) -> F::Output {
        CURRENT.scope(self.clone(), attempt).await
    }

    /// Returns whether something waits for a cap now.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waits.load(Relaxed) > 0
    }

    /// Returns the excuse of the attempt this is called in, or one that nobody looks at.
    pub(super) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    pub(super) fn wait(&self) -> Waiting {
        self.waits.fetch_add(1, Relaxed);
        Waiting {
            excuse: self.clone(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.excuse.waits.fetch_sub(1, Relaxed);
    }
}
