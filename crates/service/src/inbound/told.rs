//! Modes and times that a source reports when a file is opened, and not when it is listed, as S3
//! does.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{StreamExt, stream};
use posthaste_endpoint::{Entry, FileTime};

use super::stage::Stage;

/// Files asked about at once when all chunks are here: those that this process did not open.
const ASKED_AT_ONCE: usize = 16;

/// Mode and time of a file, as far as they are reported.
pub(super) type About = (Option<u32>, Option<FileTime>);

/// Metadata reported of the files of a stage-in, by their places.
#[derive(Debug, Default)]
pub(super) struct Told(Mutex<HashMap<usize, About>>);

impl Told {
    fn known(&self) -> MutexGuard<'_, HashMap<usize, About>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the metadata of an opened file that its listing did not report.
    pub(super) fn note(&self, file: usize, listed: &Entry, opened: &Entry) {
        if listed.mode.is_none() && listed.mtime.is_none() {
            self.known().insert(file, (opened.mode, opened.mtime));
        }
    }

    pub(super) fn of(&self, file: usize) -> About {
        self.known().get(&file).copied().unwrap_or_default()
    }
}

impl Stage {
    /// Asks for the metadata of files that are still without. A file that can no longer be asked
    /// about stays without.
    pub(super) async fn ask_rest(self: &Arc<Self>) {
        let is_bare = |file: &usize| {
            let about = self.list.first_stamp(*file);
            about.is_some_and(|about| about.mode.is_none() && about.mtime().is_none())
        };
        let there = (0..self.list.files.len()).filter(|file| !self.behind.has(*file));
        let unknown = there.filter(is_bare);
        let unknown: Vec<usize> = {
            let known = self.told.known();
            unknown.filter(|file| !known.contains_key(file)).collect()
        };
        let asked = stream::iter(unknown).map(|file| async move {
            let mut places = 0..self.wanted.sources.len();
            let place = places.find(|place| self.list.entry(*place, file).is_some());
            if let Some(place) = place
                && let Err(error) = self.reader(place, file).await
            {
                tracing::warn!(request = %self.request, "mode and time are not known: {error}");
            }
        });
        asked.buffer_unordered(ASKED_AT_ONCE).collect::<()>().await;
    }
}
