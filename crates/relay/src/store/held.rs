//! Holdings of a dataset by the disk: somebody may have removed files beneath the index.

use std::{fs, io, sync::PoisonError};

use posthaste_endpoint::relay::{
    DatasetId,
    wire::{Held, Object},
};
use posthaste_types::{ChunkIndex, FragmentIndex};

use super::{Store, Stored, layout};

/// Objects of a dataset in their order, and the start of the next page.
type Page = (Vec<(Object, Stored)>, Option<(ChunkIndex, FragmentIndex)>);

impl Store {
    /// Returns at most `count` fragments of the dataset from this position on, and the start of the
    /// next page. It checks each: if its file is missing, or has another length, it is held no
    /// more. Blocking.
    pub(crate) fn inventory(
        &self,
        dataset: &DatasetId,
        from: (ChunkIndex, FragmentIndex),
        count: usize,
    ) -> (Vec<Held>, Option<(ChunkIndex, FragmentIndex)>) {
        let (page, next) = self.known(dataset, from, count);
        let (mut held, mut lost) = (Vec::with_capacity(page.len()), Vec::new());
        for (object, stored) in page {
            let Object::Fragment(chunk, fragment) = object else {
                continue;
            };
            if self.is_there(dataset, object, &stored) {
                held.push((chunk, fragment, stored.digest));
            } else {
                lost.push((object, stored));
            }
        }
        if !lost.is_empty() {
            self.lose(dataset, &lost);
        }
        (held, next)
    }

    /// Returns the holdings by the index alone.
    pub(super) fn known(
        &self,
        dataset: &DatasetId,
        (chunk, fragment): (ChunkIndex, FragmentIndex),
        count: usize,
    ) -> Page {
        let index = self.index();
        let Some(holding) = index.datasets.get(dataset) else {
            return (Vec::new(), None);
        };
        let mut fragments = holding
            .objects
            .range(Object::Fragment(chunk, fragment)..)
            .filter(|(object, _)| matches!(object, Object::Fragment(..)))
            .map(|(object, stored)| (*object, *stored));
        let page = fragments.by_ref().take(count).collect();
        let next = fragments.next().and_then(|(object, _)| match object {
            Object::Fragment(chunk, fragment) => Some((chunk, fragment)),
            Object::Manifest => None,
        });
        (page, next)
    }

    /// Returns whether the file of an object is as it was stored. A file that can't be looked at
    /// now may be.
    pub(super) fn is_there(&self, dataset: &DatasetId, object: Object, stored: &Stored) -> bool {
        let path = layout::object_path(&self.dir, dataset, object, &stored.digest);
        match fs::metadata(path) {
            // The bytes lie elsewhere.
            Ok(_) if self.is_backed => true,
            Ok(found) => found.len() == stored.size,
            Err(cause) => cause.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Removes objects from the index whose files are gone, and their remains, so that they can be
    /// stored again.
    pub(super) fn lose(&self, dataset: &DatasetId, lost: &[(Object, Stored)]) {
        tracing::warn!(
            dataset = %layout::dataset_name(dataset),
            fragments = lost.len(),
            "somebody removed or changed files of what is held here"
        );
        let _alone = self.removal.write().unwrap_or_else(PoisonError::into_inner);
        let directory = layout::dataset_path(&self.dir, dataset);
        let is_gone = !fs::exists(&directory).unwrap_or(true);
        let mut index = self.index();
        let index = &mut *index;
        for (object, stored) in lost {
            let Some(holding) = index.datasets.get_mut(dataset) else {
                return;
            };
            if holding.objects.get(object).map(|known| known.digest) != Some(stored.digest) {
                continue;
            }
            let path = layout::object_path(&self.dir, dataset, *object, &stored.digest);
            // A file of another length or content belongs to no object.
            let _ = fs::remove_file(path);
            holding.objects.remove(object);
            holding.proven.remove(object);
            index.objects -= 1;
            index.room.lose(dataset, stored.size);
        }
        if is_gone && let Some(holding) = index.datasets.remove(dataset) {
            index.room.remove(dataset);
            index.objects -= holding.objects.len();
        }
    }
}
