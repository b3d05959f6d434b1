use std::{collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::dataset::{Bounds, FileKind, FileList, Lent, Root, Wanted};
use posthaste_journal::RequestRecord;
use posthaste_types::Bytes;

use super::{onward, submit::is_far};
use crate::{
    credentials::Behalf,
    inbound::{list::List, look},
    store::Store,
    submit,
};

/// Listed source of a request.
pub(super) enum Listed {
    /// Source on this machine.
    Here(FileList),
    /// Source elsewhere.
    There(Arc<List>),
}

impl Listed {
    /// Lists the source.
    ///
    /// # Errors
    /// Errors of listing.
    pub(super) async fn look(
        record: &RequestRecord,
        behalf: &Behalf,
        lent: &Arc<Lent>,
    ) -> Result<Self> {
        if is_far(&String::from_utf8_lossy(&record.source))
            && let Some(wanted) = &record.stage_in
        {
            return Ok(Self::There(look::look(wanted, behalf, lent).await?));
        }
        let root = Path::new(OsStr::from_bytes(&record.source)).to_owned();
        let (only, patterns) = (record.only.clone(), record.patterns.clone());
        let wanted = Wanted::default();
        let bounds = Bounds::while_wanted(&wanted).sharing(lent);
        let list = behalf
            .blocking(move || {
                let root = Root::open(&root, false)?.within(bounds);
                submit::listed(&root, &only, &patterns)
            })
            .await?;
        Ok(Self::Here(list))
    }

    /// Reads the stored list.
    ///
    /// # Errors
    /// The operating system's, and an unreadable list.
    pub(super) fn kept(store: &Store, record: &RequestRecord) -> Result<Self> {
        if !is_far(&String::from_utf8_lossy(&record.source)) {
            let listed_as = onward::of(record).unwrap_or(record.id);
            return Ok(Self::Here(store.list(listed_as)?));
        }
        let list = List::restore(&store.stage_in_list(record.id)?);
        let list = list.map_err(|cause| {
            let subject = format!("the list of {}", record.id);
            Error::new(ErrorKind::Corrupt, "read", subject).cause(cause)
        })?;
        Ok(Self::There(Arc::new(list)))
    }

    pub(super) fn bytes(&self) -> Bytes {
        match self {
            Self::Here(list) => Bytes::new(list.bytes),
            Self::There(list) => list.bytes(),
        }
    }

    pub(super) fn files(&self) -> u64 {
        match self {
            Self::Here(list) => list.regular_files() as u64,
            Self::There(list) => list.files.len() as u64,
        }
    }

    /// Returns whether the source is a single remote file.
    pub(super) fn is_single(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::There(list) => list.singles.first().is_some_and(|is_single| *is_single),
        }
    }

    pub(super) fn has_links(&self) -> bool {
        match self {
            Self::Here(list) => {
                let kinds = list.files.iter().map(|file| &file.kind);
                kinds
                    .into_iter()
                    .any(|kind| matches!(kind, FileKind::Symlink { .. }))
            }
            Self::There(_) => false,
        }
    }
}

impl Listed {
    /// Returns the items with their paths, in list order.
    pub(super) fn in_order(&self) -> Box<dyn Iterator<Item = (&[u8], Item)> + '_> {
        match self {
            Self::Here(list) => {
                let files = list.files.iter();
                Box::new(files.map(|file| (&file.path[..], item(&file.kind, file.size))))
            }
            Self::There(list) => {
                let folders = list.directories.iter();
                let folders = folders.map(|path| (&path[..], Item::Directory));
                let files = list.files.iter();
                Box::new(folders.chain(files.map(|file| (&file.path[..], Item::File(file.size)))))
            }
        }
    }

    /// Returns the items by path.
    pub(super) fn items(&self) -> BTreeMap<&[u8], Item> {
        self.in_order().collect()
    }
}

fn item(kind: &FileKind, size: u64) -> Item {
    match kind {
        FileKind::Directory => Item::Directory,
        FileKind::Regular => Item::File(size),
        FileKind::Symlink { .. } | FileKind::LeftOut => Item::Other,
    }
}

/// Kind of an item below a request's source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    Directory,
    /// File of this many bytes.
    File(u64),
    /// Link or omitted entry.
    Other,
}
