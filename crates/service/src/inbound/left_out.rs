//! Directories that no source lets be listed, files that none lets be read, links and special files:
//! a stage-in leaves them out, and the rest arrives.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_core::contract::LeftOut;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_types::Bytes;

use super::{list::List, stage::Stage};

/// Most files of a stage-in that are left out: where more can't be read, the source is at fault.
const FILES_MAX: usize = 1000;

/// Files that are left out, with what was said of each.
#[derive(Debug, Default)]
pub(super) struct Behind(Mutex<BTreeMap<usize, String>>);

impl Behind {
    /// Restores the kept state.
    pub(super) fn restore(kept: &str) -> Self {
        let lines = kept.lines().filter_map(|line| line.split_once(' '));
        let known = lines.filter_map(|(file, said)| Some((file.parse().ok()?, said.to_owned())));
        Self(Mutex::new(known.collect()))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<usize, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has(&self, file: usize) -> bool {
        self.known().contains_key(&file)
    }
}

/// Returns whether an error concerns one file alone, and lasts.
pub(super) fn is_of_one(error: &Error) -> bool {
    let is_lasting = matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::Invalid
    );
    is_lasting && error.locus() != Locus::Destination && !error.is_temporary()
}

impl List {
    /// Returns what its listing left out, as the mind hears of it.
    pub(super) fn left_out(&self) -> LeftOut {
        LeftOut {
            files: self.left_out.len() as u64,
            bytes: Bytes::ZERO,
            named: named(self.left_out.iter()),
        }
    }
}

fn named<'l>(lines: impl Iterator<Item = &'l String>) -> Vec<String> {
    lines.take(LeftOut::NAMED_MAX).cloned().collect()
}

impl Stage {
    /// Leaves a file out that its only source does not let be read, if the rest can go without it.
    /// Returns whether it did.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) async fn leaves_out(self: &Arc<Self>, file: usize, error: &Error) -> Result<bool> {
        let sources = 0..self.wanted.sources.len();
        let holders = sources.filter(|place| self.list.stamp(*place, file).is_some());
        if self.is_for_job || !is_of_one(error) || holders.count() != 1 {
            return Ok(false);
        }
        let said = error.to_string();
        self.blocking(move |stage| {
            let mut known = stage.behind.known();
            let files = stage.list.files.iter().filter(|file| file.size > 0);
            if known.len() >= FILES_MAX || known.len() + 1 >= files.count() {
                return Ok(false);
            }
            tracing::warn!(request = %stage.request, "left out: {said}");
            known.insert(file, said);
            let lines = known.iter().map(|(file, said)| format!("{file} {said}\n"));
            let kept: String = lines.collect();
            stage.store.keep_left_out(stage.request, &kept)?;
            Ok(true)
        })
        .await
    }

    /// Returns all that is left out.
    pub(super) fn left_out(&self) -> LeftOut {
        let known = self.behind.known();
        let listed = self.list.left_out();
        let sizes = known.keys().filter_map(|file| self.list.files.get(*file));
        LeftOut {
            files: listed.files + known.len() as u64,
            bytes: sizes.map(|file| Bytes::new(file.size)).sum(),
            named: named(self.list.left_out.iter().chain(known.values())),
        }
    }

    /// Removes what the draft has of files that are left out.
    pub(super) fn drop_behind(&self) -> Result<()> {
        let known = self.behind.known();
        let mut files = known.keys().filter_map(|file| self.list.files.get(*file));
        files.try_for_each(|file| self.draft.leave_out(&file.path))
    }
}
