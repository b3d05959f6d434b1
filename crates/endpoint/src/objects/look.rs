//! Meanings of a name: an object, a link, a directory, or more than one of them.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    LINK_SUFFIX, Objects, RawStore, directory_entry,
    doubt::{self, Doubt},
    prefix_of,
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Endpoint, Entry, Kind},
};

/// Meanings of a name, each with the suffix of its key.
const MEANINGS: [(&str, Kind); 3] = [
    ("", Kind::File),
    (LINK_SUFFIX, Kind::Link),
    ("/", Kind::Directory),
];

impl<S: RawStore> Objects<S> {
    /// Returns the entry of the object for a `kind` under this key.
    pub(super) async fn find(&self, key: &str, suffix: &str, kind: Kind) -> Result<Option<Entry>> {
        let head = self
            .store
            .head(&format!("{key}{suffix}"), "look at")
            .await?;
        let doubt = || Doubt::of(&*self.store, &format!("{key}{suffix}"));
        let entry = head.map(|head| match doubt::are_there() {
            true => doubt().apply(S::entry(&head, kind)),
            false => S::entry(&head, kind),
        });
        Ok(entry.map(|entry| match kind {
            Kind::Directory => Entry {
                size: 0,
                version: None,
                ..entry
            },
            Kind::File | Kind::Link | Kind::Special => entry,
        }))
    }

    pub(super) async fn look_at(&self, path: &[u8]) -> Result<Option<Entry>> {
        let key = self.key(path)?;
        if path.is_empty() {
            return self.look_at_root(&key).await;
        }
        for (suffix, kind) in MEANINGS {
            let found = self.find(&key, suffix, kind).await?;
            if found.is_some() {
                return Ok(found);
            }
        }
        let is_directory = self.store.has_below(&prefix_of(&key)).await?;
        Ok(is_directory.then(directory_entry))
    }

    async fn look_at_root(&self, key: &str) -> Result<Option<Entry>> {
        if key.is_empty() {
            return match self.store.has_below("").await {
                // A bucket that may not be listed exists.
                Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
                Ok(_) | Err(_) => Ok(Some(directory_entry())),
            };
        }
        let [file, link, marker] = MEANINGS;
        // Requested together, because usually nothing exists and each would cost a wait. The
        // bucket's refusal comes first, because it has a reason.
        let prefix = prefix_of(key);
        let (below, file, link, marker) = tokio::join!(
            self.store.has_below(&prefix),
            self.find(key, file.0, file.1),
            self.find(key, link.0, link.1),
            self.find(key, marker.0, marker.1)
        );
        match below {
            Ok(true) => {
                let is_there = |found: &Result<Option<Entry>>| matches!(found, Ok(Some(entry)) if entry.kind != Kind::Directory);
                let has_namesake = is_there(&file) || is_there(&link);
                self.has_namesake.store(has_namesake, Relaxed);
                return Ok(Some(directory_entry()));
            }
            Ok(false) => {}
            Err(refused) if S::is_about_listing(&refused) => {
                let found = file.ok().flatten().or(link.ok().flatten());
                let hint = "is it there? Keys that may not list are not told what is missing";
                let is_denied = refused.kind() == ErrorKind::PermissionDenied;
                let advice = refused.advice().unwrap_or_default();
                let hint = format!("{hint}; {advice}");
                let told = if is_denied {
                    refused.hint(hint)
                } else {
                    refused
                };
                return found.ok_or(told).map(Some);
            }
            Err(refused) => return Err(refused),
        }
        let found = file?.or(link?).or(marker?);
        self.was_empty.store(found.is_none(), Relaxed);
        Ok(found)
    }

    /// Returns what is said of an object or a link that has the name of the directory at the root.
    pub(super) fn namesake_left_out(&self) -> Option<Error> {
        self.has_namesake.load(Relaxed).then(|| {
            Error::new(ErrorKind::Conflict, "copy", self.show(b""))
                .cause("an object there has the name of this directory, which is copied without it")
                .hint("rename one of the two there")
                .at(Locus::Source)
        })
    }
}
