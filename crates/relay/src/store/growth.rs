//! Objects on their way in, for transfers that follow them.

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
    /// Signals that a transfer begins to follow it.
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

    /// Waits until a transfer begins to follow it.
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

    /// Ends the upload: an incomplete one stays so.
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
    /// Returns an object with this digest that is stored or on its way in; waits up to `patience`
    /// for it to begin.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it did not begin by then.
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

    /// Looks up both under one lock: an object stored meanwhile is not on its way any more.
    fn growing(&self, dataset: &DatasetId, object: Object, digest: Digest) -> Option<Growing> {
        let index = self.index();
        let growth = index.growing.get(&(*dataset, object))?;
        (growth.stored.digest == digest).then(|| growth.follow())
    }
}
