//! Directory being copied: made before anything is put into it, and given its attributes once
//! everything in it has arrived.
//!
//! All users of a directory hold a reference to it: the visit that lists it, the directories below
//! it, each file on its way. When the last drops it, the directory is sealed, so nothing of it is
//! kept to the end.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use posthaste_endpoint::{Entry, Error, ErrorKind, Kind, Locus, Result};
use tokio::sync::OnceCell;

use super::{
    super::{Notice, Source, claims::Given, lane::Shared, retry::retried},
    seals::{Seal, Seals},
};

/// Mode bits that let the owner read, write and search.
const OWNER_ALL: u32 = 0o700;

/// Origin of a directory: made by this copy, or there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Made {
    pub new: bool,
}

/// Directory at the source and its destination.
#[derive(Debug)]
pub(in crate::copy) struct Directory {
    pub(super) source: Arc<Source>,
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) depth: usize,
    /// Entry as the source reports it; `None` if nobody asked.
    entry: Option<Entry>,
    /// The directory comes from a listing of the whole tree.
    by_keys: bool,
    parent: Option<Arc<Self>>,
    made: OnceCell<Made>,
    /// Real path of the directory, if links are followed.
    real_path: OnceLock<Vec<u8>>,
    /// Names given in it at the destination.
    names: OnceLock<Arc<Given>>,
    empty: AtomicBool,
    /// The directory could not be made, and that was reported.
    refused: AtomicBool,
    /// Set if the directory was the user's before: its own attributes stay.
    pub(super) existed: bool,
    seals: Arc<Seals>,
}

impl Directory {
    /// Returns the directory that a source is.
    pub(super) fn root(
        source: Arc<Source>,
        to: Vec<u8>,
        entry: Entry,
        existed: bool,
        seals: &Arc<Seals>,
    ) -> Arc<Self> {
        seals.begin();
        Arc::new(Self {
            source,
            from: Vec::new(),
            to,
            depth: 0,
            entry: Some(entry),
            by_keys: false,
            parent: None,
            made: OnceCell::new(),
            real_path: OnceLock::new(),
            names: OnceLock::new(),
            empty: AtomicBool::new(true),
            refused: AtomicBool::new(false),
            existed,
            seals: Arc::clone(seals),
        })
    }

    /// Returns a directory in this one.
    pub(super) fn below(
        self: &Arc<Self>,
        from: Vec<u8>,
        to: Vec<u8>,
        entry: Option<Entry>,
        by_keys: bool,
    ) -> Arc<Self> {
        self.seals.begin();
        Arc::new(Self {
            source: Arc::clone(&self.source),
            from,
            to,
            depth: self.depth + 1,
            entry,
            by_keys,
            parent: Some(Arc::clone(self)),
            made: OnceCell::new(),
            real_path: OnceLock::new(),
            names: OnceLock::new(),
            empty: AtomicBool::new(true),
            refused: AtomicBool::new(false),
            existed: false,
            seals: Arc::clone(&self.seals),
        })
    }

    /// Notes the real path. Fails if it is a directory above, to which a followed link led back.
    pub(super) fn identify(&self, real_path: Vec<u8>) -> Result<()> {
        let mut above = self.parent.as_deref();
        while let Some(this) = above {
            if this.real_path.get() == Some(&real_path) {
                let shown = self.source.place.endpoint.show(&self.from);
                return Err(Error::new(ErrorKind::Unsupported, "list", shown)
                    .cause("a followed link leads back to a directory that it lies in")
                    .hint("leave it out with --exclude, or keep links")
                    .at(Locus::Source));
            }
            above = this.parent.as_deref();
        }
        let _ = self.real_path.set(real_path);
        Ok(())
    }

    /// Returns the names given in it at the destination.
    pub(super) fn names(&self, shared: &Shared) -> &Given {
        let names = || shared.claims.directory(&self.to);
        self.names.get_or_init(names)
    }

    /// Notes that something goes into it.
    pub(super) fn is_used(&self) {
        self.empty.store(false, Relaxed);
    }

    /// Returns whether its owner may still work in it once it has its attributes.
    pub(super) fn stays_open(&self) -> bool {
        let mode = self.entry.as_ref().and_then(|entry| entry.mode);
        mode.is_none_or(|mode| mode & OWNER_ALL == OWNER_ALL)
    }

    /// Marks it as impossible to make: nothing goes into it or below it.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Relaxed);
    }

    pub(super) fn is_refused(&self) -> bool {
        let mut directory = Some(self);
        while let Some(this) = directory {
            if this.refused.load(Relaxed) {
                return true;
            }
            directory = this.parent.as_deref();
        }
        false
    }

    /// Makes it at the destination, those above it first.
    pub(super) fn make<'a>(
        &'a self,
        shared: &'a Shared,
    ) -> Pin<Box<dyn Future<Output = Result<Made>> + Send + 'a>> {
        Box::pin(async move {
            if let Some(made) = self.made.get() {
                return Ok(*made);
            }
            let above = match &self.parent {
                Some(parent) => parent.make(shared).await?,
                None => Made { new: false },
            };
            let made = self.made.get_or_try_init(|| self.make_one(shared, above));
            made.await.copied()
        })
    }

    async fn make_one(&self, shared: &Shared, above: Made) -> Result<Made> {
        let endpoint = &shared.destination.endpoint;
        let names = self.parent.as_ref().map(|parent| parent.names(shared));
        // Two of several sources may have names that are equal there.
        if names.is_some() || !self.to.is_empty() {
            let given = shared.claims.give(shared, names, &self.to, Kind::Directory);
            given.await?;
        }
        if shared.options.dry_run {
            if above.new {
                return Ok(Made { new: true });
            }
            let there = retried(shared, || endpoint.stat(&self.to, true)).await?;
            return Ok(Made {
                new: there.is_none(),
            });
        }
        if above.new && !endpoint.capabilities().directories {
            return Ok(Made { new: true });
        }
        let new = retried(shared, || endpoint.make_directory(&self.to))
            .await
            .map_err(|error| error.at(Locus::Destination))?;
        if new {
            let mode = self.entry.as_ref().and_then(|entry| entry.mode);
            if let Some(mode) = mode {
                endpoint.keep_private(&self.to, mode).await;
            }
            shared.progress.made_directory();
            if let (0, true, Some(local)) =
                (self.depth, self.to.is_empty(), &shared.destination.local)
            {
                (shared.options.on_notice)(&Notice::Stands(&local.path(b"")));
            }
        }
        Ok(Made { new })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let seal = Seal {
            source: Arc::clone(&self.source),
            from: std::mem::take(&mut self.from),
            to: std::mem::take(&mut self.to),
            entry: self.entry.take(),
            by_keys: self.by_keys,
            empty: *self.empty.get_mut(),
            parent: self.parent.take(),
        };
        // What was refused may be gone again, and would be made once more.
        let is_refused = *self.refused.get_mut();
        let is_ours = self.made.get().is_some() && !self.existed && !is_refused;
        self.seals.add(is_ours.then_some(seal));
    }
}
