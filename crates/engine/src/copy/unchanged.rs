//! Check whether the file at the destination is what would be written there.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use posthaste_endpoint::{
    Checksum, Entry, FileSpec, Kind, Unkept, join,
    posix::{split, without_lent_rights},
    trial_name,
};
use tokio::sync::OnceCell;

use super::{lane::Shared, retry::retried, walk::Work};

/// Files that count as unchanged although the destination keeps less of them than the source
/// reports.
#[derive(Debug, Default)]
pub(super) struct Bare {
    /// Without their times.
    untimed: AtomicU64,
    /// Without their modes.
    other_modes: AtomicU64,
    keeps_modes: OnceCell<bool>,
    /// Attributes that directories arrived without, because nothing there keeps them.
    directories: OnceLock<Unkept>,
}

impl Bare {
    /// Returns the number of files without times of their own.
    pub(super) fn untimed(&self) -> u64 {
        self.untimed.load(Relaxed)
    }

    /// Notes what directories arrived without, once all have.
    pub(super) fn note_directories(&self, unkept: Unkept) {
        let _ = self.directories.set(unkept);
    }

    /// Returns what directories arrived without, because nothing there keeps it.
    pub(super) fn directories(&self) -> Unkept {
        self.directories.get().copied().unwrap_or_default()
    }

    /// Returns what files arrived without, this time or before.
    pub(super) fn count(&self, shared: &Shared) -> Unkept {
        let mut unkept = shared.destination.endpoint.unkept();
        // The file that was made to learn it counts as one.
        let is_tried = self.keeps_modes.get() == Some(&false);
        unkept.modes = unkept.modes.saturating_sub(is_tried.into());
        unkept.modes += self.other_modes.load(Relaxed);
        if shared.options.modes {
            unkept.times += self.untimed();
        }
        unkept
    }
}

impl Shared {
    /// Returns whether what is `there` is what `source` would become.
    pub(super) fn is_unchanged(&self, work: &Work, source: &Entry, there: &Entry) -> bool {
        let kept_ns = self.destination.endpoint.capabilities().mtime_step_ns;
        self.is_unchanged_by(work, source, there, kept_ns)
    }

    /// Returns whether the clock at the destination decides about a time that is not the expected
    /// one.
    pub(super) fn asks_clock(&self, source: &Entry, there: &Entry) -> bool {
        let may_be_same =
            !self.options.again && there.kind == Kind::File && source.size == there.size;
        // To learn how exact it is takes a file that is made there.
        may_be_same && !self.options.dry_run
    }

    /// Returns the same as [`Shared::is_unchanged`] if times are kept in steps of `kept_ns`, or not
    /// at all.
    pub(super) fn is_unchanged_by(
        &self,
        work: &Work,
        source: &Entry,
        there: &Entry,
        kept_ns: Option<u32>,
    ) -> bool {
        let is_same = self.is_same(work, source, there, kept_ns);
        let bare = &self.bare;
        if is_same && kept_ns.is_none() {
            bare.untimed.fetch_add(1, Relaxed);
        }
        if is_same && self.has_other_mode(source, there) {
            bare.other_modes.fetch_add(1, Relaxed);
        }
        is_same
    }

    fn has_other_mode(&self, source: &Entry, there: &Entry) -> bool {
        let modes = source.mode.zip(there.mode);
        self.options.modes
            && modes.is_some_and(|(mine, theirs)| without_lent_rights(mine) != theirs)
    }

    /// Learns whether the destination keeps modes, if that may decide whether `there` stays: a file
    /// made beside it has this mode or not.
    pub(super) async fn learn_modes(&self, to: &[u8], source: &Entry, there: &Entry) {
        let endpoint = &self.destination.endpoint;
        let is_known = endpoint.unkept().modes > 0;
        if is_known || !self.asks_clock(source, there) || !self.has_other_mode(source, there) {
            return;
        }
        let secs = |entry: &Entry| entry.mtime.map(|mtime| mtime.secs);
        if to.is_empty() && secs(source) != secs(there) {
            // A replaced file does not get the mode of its replacement.
            return;
        }
        let learning = self.bare.keeps_modes.get_or_init(async || {
            let path = join(split(to).0, &trial_name(b"mode"));
            let mode = source.mode.map(without_lent_rights);
            let spec = FileSpec {
                size: 0,
                mtime: None,
                mode,
                origin: endpoint.show(&path).into(),
                version: None,
            };
            let found = if to.is_empty() {
                // Nothing can be made beside what the address itself names, so that gets the mode.
                let entry = Entry {
                    mtime: None,
                    mode,
                    ..there.clone()
                };
                let _ = retried(self, || endpoint.seal_directory(to, &entry, false)).await;
                retried(self, || endpoint.stat(to, false)).await
            } else {
                let put = || endpoint.put(&path, &spec, Vec::new(), Checksum::EMPTY);
                if retried(self, put).await.is_err() {
                    return true;
                }
                let found = retried(self, || endpoint.stat(&path, false)).await;
                // The file is hidden, and its name says whose it is.
                let _ = endpoint.remove(&path).await;
                found
            };
            let found = found.ok().flatten().and_then(|found| found.mode);
            found.is_none() || found == mode
        });
        learning.await;
    }

    fn is_same(&self, work: &Work, source: &Entry, there: &Entry, kept_ns: Option<u32>) -> bool {
        let [first, last] = self.destination.endpoint.capabilities().mtime_secs;
        let told_ns = work.source.place.endpoint.capabilities().mtime_step_ns;
        if self.options.update
            && there.kind == Kind::File
            && let (Some(mine), Some(theirs)) = (source.mtime, there.mtime)
            && mine <= theirs
        {
            return true;
        }
        let keeps_modes = self.bare.keeps_modes.get() != Some(&false)
            && self.destination.endpoint.unkept().modes == 0;
        let has_mode = !(keeps_modes && self.has_other_mode(source, there));
        !self.options.again
            && has_mode
            && there.kind == Kind::File
            && source.size == there.size
            && match (source.mtime, there.mtime, kept_ns) {
                (Some(mut mine), Some(theirs), Some(kept_ns)) => {
                    mine.secs = mine.secs.clamp(first, last);
                    mine.agrees(theirs, kept_ns.max(told_ns.unwrap_or(kept_ns)))
                }
                // Such a store only tells when it was given the file, often in whole seconds. In
                // the second of its last change that may have been before it.
                (Some(mine), Some(theirs), None) => mine.secs < theirs.secs,
                (_, None, _) | (None, _, _) => false,
            }
    }
}
