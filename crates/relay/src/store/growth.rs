//! Objects on their way in, for those who send them on as they come.

use std::{fs::File, sync::Arc, time::Duration};

use posthaste_endpoint::{
    ErrorKind,
    relay::{DatasetId, Growing, Grown, wire::Object},
};
use posthaste_types::Digest;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use super::{Refusal, Store, Stored};
use crate::reception::blocking;

/// Bytes of an upload on disk.
#[derive(Debug)]
pub(crate) struct Growth {
    file: Arc<File>,
    stored: Stored,
    grown: watch::Sender<Grown>,
    /// Somebody begins to send it on.
    wanted: Notify,
}

impl Growth {
    pub(super) fn new(file: Arc<File>, stored: Stored) -> Self {
        let grown = watch::Sender::new(Grown::Bytes(0));
        Self {
            file,
            stored,
            grown,
            wanted: Notify::new(),
        }
    }

    /// Waits until somebody begins to send it on.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Returns whether another transfer follows the upload.
    pub(crate) fn is_followed(&self) -> bool {
        self.grown.receiver_count() > 0
    }

    pub(super) fn tell(&self, grown: Grown) {
        self.grown.send_replace(grown);
    }

    /// The upload is over: what is not whole by now never will be.
    pub(super) fn end(&self) {
        self.grown.send_if_modified(|grown| {
            let is_open = matches!(grown, Grown::Bytes(_));
            if is_open {
                *grown = Grown::Failed;
            }
            is_open
        });
    }

    fn follow(&self) -> Growing {
        let grown = self.grown.subscribe();
        self.wanted.notify_one();
        Growing {
            file: Arc::clone(&self.file),
            size: self.stored.size,
            grown,
        }
    }
}

/// Result of waiting.
#[derive(Debug)]
pub(crate) enum Awaited {
    /// Stored already.
    Stored(File, Stored),
    /// Upload under way.
    Growing(Growing),
}

impl Store {
    /// An object with this digest that is stored or on its way in; waits for it to begin for as long as
    /// `patience`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when it did not begin by then.
    pub(crate) async fn awaited(
        self: &Arc<Self>,
        dataset: DatasetId,
        object: Object,
        digest: Digest,
        patience: Duration,
    ) -> Result<Awaited, Refusal> {
        let until = Instant::now() + patience;
        // Before the first look, so that nothing begins unseen.
        let mut begun = self.begun.subscribe();
        loop {
            if let Some(growing) = self.growing(&dataset, object, digest) {
                return Ok(Awaited::Growing(growing));
            }
            let stored = self.find(&dataset, object);
            if stored.is_some_and(|stored| stored.digest == digest) {
                let store = Arc::clone(self);
                let (file, stored) = blocking(move || store.read(&dataset, object)).await?;
                return Ok(Awaited::Stored(file, stored));
            }
            if !matches!(timeout_at(until, begun.changed()).await, Ok(Ok(()))) {
                let what = "nothing of that digest is stored or on its way under that name";
                return Err(Refusal::new(ErrorKind::NotFound, what));
            }
        }
    }

    /// Under one lock: what was stored meanwhile is not on its way any more.
    fn growing(&self, dataset: &DatasetId, object: Object, digest: Digest) -> Option<Growing> {
        let index = self.index();
        let growth = index.growing.get(&(*dataset, object))?;
        (growth.stored.digest == digest).then(|| growth.follow())
    }
}
