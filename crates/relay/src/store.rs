//! Content of a relay: an index in memory, one file for each object on disk.
//!
//! `datasets/ID/GROUP/CHUNK.FRAGMENT.DIGEST`, `datasets/ID/manifest.DIGEST` and
//! `datasets/ID/expires`. A name has everything to know of a file, so a start needs no journal: it
//! reads directories. Every file is written in `incoming/` first and renamed when it is whole and
//! verified; files in `incoming/` at a start are remains of uploads that never counted.

mod age;
mod growth;
mod held;
mod layout;
mod proof;
mod room;
mod space;
mod upload;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    kept::KeptFile,
    relay::{DatasetId, wire::Object},
};
use posthaste_types::Digest;
use tokio::sync::watch;

use crate::clock;
use age::Age;
use proof::Proven;

pub(crate) use growth::{Awaited, Growth};
pub(crate) use layout::{dataset_name, object_name};
use room::Room;
pub(crate) use room::Usage;
pub(crate) use upload::{Upload, other_digest};

/// Maximum of objects, so that the index stays below a few gigabytes of memory.
const OBJECTS_MAX: usize = 16 << 20;
/// Maximum of datasets: each costs a directory.
const DATASETS_MAX: usize = 1 << 20;

/// Reason why the store refuses a request.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<&'static str>,
    /// Bytes that would be granted, if a request for space is refused.
    pub(crate) most_bytes: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            most_bytes: None,
        }
    }

    pub(crate) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }

    pub(crate) fn most_bytes(mut self, most: u64) -> Self {
        self.most_bytes = Some(most);
        self
    }
}

impl From<io::Error> for Refusal {
    fn from(cause: io::Error) -> Self {
        let error = Error::io("write to", "the disk", cause);
        // A path that should be there and is not is no fault of the request.
        let is_full = error.kind() == ErrorKind::Full;
        let kind = if is_full {
            ErrorKind::Full
        } else {
            ErrorKind::Other
        };
        Self::new(kind, error.to_string())
    }
}

/// Object on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

#[derive(Debug, Default)]
struct Holding {
    /// Seconds since the Unix epoch; the latest that anybody asked for.
    expires_s: u64,
    objects: BTreeMap<Object, Stored>,
    /// Objects that were read and were right, lately.
    proven: BTreeMap<Object, Proven>,
}

impl Holding {
    fn new(expires_s: u64, objects: BTreeMap<Object, Stored>) -> Self {
        Self {
            expires_s,
            objects,
            proven: BTreeMap::new(),
        }
    }
}

#[derive(Debug)]
struct Index {
    datasets: BTreeMap<DatasetId, Holding>,
    objects: usize,
    room: Room,
    /// Objects being given their final names.
    sealing: BTreeSet<(DatasetId, Object)>,
    /// Objects on their way in; of several with one name the latest.
    growing: BTreeMap<(DatasetId, Object), Arc<Growth>>,
}

/// Objects of a relay. Its methods block on the disk if they say so.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    flush: bool,
    /// The bytes lie elsewhere: files here have holes for them.
    is_backed: bool,
    index: Mutex<Index>,
    /// Lock between an object's final naming (read) and a dataset's removal (write), so that no
    /// object counts whose directory is being removed.
    removal: RwLock<()>,
    /// Lock under which one `expires` file is written at a time.
    expiry: Mutex<()>,
    /// Reservations on disk, changed by one caller at a time.
    spaces: Mutex<KeptFile>,
    age: Age,
    unfinished: AtomicU64,
    losses: AtomicU64,
    /// Changes whenever an upload begins.
    begun: watch::Sender<()>,
    /// Lock on the directory.
    _lock: File,
}

impl Store {
    /// Opens `dir`, removes remains of uploads, and counts what is there. Blocking.
    pub(crate) fn open(dir: &Path, capacity: u64, flush: bool, is_backed: bool) -> Result<Self> {
        let lock = layout::lock(dir)?;
        let failed = |path: &Path, cause| Error::io("open", path.display().to_string(), cause);
        let incoming = dir.join("incoming");
        match fs::remove_dir_all(&incoming) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&incoming, cause));
            }
            _ => layout::make_private(&incoming).map_err(|cause| failed(&incoming, cause))?,
        }
        let datasets = dir.join("datasets");
        layout::make_private(&datasets).map_err(|cause| failed(&datasets, cause))?;
        let files = dir.join("files");
        let file_bytes = layout::bytes_below(&files).map_err(|cause| failed(&files, cause))?;
        let mut index = Index {
            datasets: BTreeMap::new(),
            objects: 0,
            room: Room::new(capacity, file_bytes),
            sealing: BTreeSet::new(),
            growing: BTreeMap::new(),
        };
        for (dataset, expires_s, objects) in
            layout::scan(&datasets).map_err(|cause| failed(&datasets, cause))?
        {
            let bytes = objects.values().map(|stored| stored.size).sum();
            index.room.load(&dataset, bytes, expires_s);
            index.objects += objects.len();
            index
                .datasets
                .insert(dataset, Holding::new(expires_s, objects));
        }
        let spaces = space::file(dir);
        space::restore(&spaces, &mut index.room)?;
        Ok(Self {
            dir: dir.to_owned(),
            flush,
            is_backed,
            index: Mutex::new(index),
            removal: RwLock::new(()),
            expiry: Mutex::new(()),
            spaces: Mutex::new(spaces),
            age: Age::open(dir, clock::unix_s())?,
            unfinished: AtomicU64::new(0),
            losses: AtomicU64::new(0),
            begun: watch::Sender::new(()),
            _lock: lock,
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn usage(&self) -> Usage {
        self.index().room.usage(clock::unix_s())
    }

    /// Takes space for a file of `wanted` bytes in place of one of `had`.
    pub(crate) fn change_files(&self, had: u64, wanted: u64) -> Result<(), Refusal> {
        let now_s = clock::unix_s();
        self.index().room.change_files(had, wanted, now_s)
    }

    /// Returns whether anything is known of the dataset.
    pub(crate) fn knows(&self, dataset: &DatasetId) -> bool {
        self.index().datasets.contains_key(dataset)
    }

    /// Returns what is stored of the dataset under this name.
    pub(crate) fn find(&self, dataset: &DatasetId, object: Object) -> Option<Stored> {
        self.index()
            .datasets
            .get(dataset)?
            .objects
            .get(&object)
            .copied()
    }

    /// Opens a stored object. Blocking.
    pub(crate) fn read(
        &self,
        dataset: &DatasetId,
        object: Object,
    ) -> Result<(File, Stored), Refusal> {
        let missing = || Refusal::new(ErrorKind::NotFound, "nothing is stored under that name");
        let stored = self.find(dataset, object).ok_or_else(missing)?;
        match File::open(layout::object_path(
            &self.dir,
            dataset,
            object,
            &stored.digest,
        )) {
            Ok(file) => Ok((file, stored)),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Err(missing()),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Makes sure that a known dataset is kept until `expires_s`, if there is room for so long.
    /// Blocking.
    pub(crate) fn extend(&self, dataset: &DatasetId, expires_s: u64) -> Result<(), Refusal> {
        let now_s = clock::unix_s();
        self.index().room.begin(dataset, 0, expires_s, now_s)?;
        let kept = self.keep(dataset, expires_s);
        self.index().room.end(dataset, 0, expires_s);
        kept
    }

    /// Makes sure that the dataset is kept until `expires_s`; its room for so long is secured
    /// already. Blocking.
    pub(crate) fn keep(&self, dataset: &DatasetId, expires_s: u64) -> Result<(), Refusal> {
        let _one = self.expiry.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self
            .index()
            .datasets
            .get(dataset)
            .map(|holding| holding.expires_s);
        if known.is_some_and(|known| known >= expires_s) {
            return Ok(());
        }
        if known.is_none() && self.index().datasets.len() >= DATASETS_MAX {
            return Err(Refusal::new(
                ErrorKind::Full,
                "the relay holds too many datasets",
            ));
        }
        let unfinished = self.unfinished_path();
        let mut file = File::create(&unfinished)?;
        file.write_all(layout::write_expiry(expires_s).as_bytes())?;
        if self.flush {
            file.sync_all()?;
        }
        let directory = layout::dataset_path(&self.dir, dataset);
        fs::create_dir_all(&directory)?;
        fs::rename(&unfinished, directory.join(layout::EXPIRES))?;
        if self.flush {
            layout::flush_directory(&directory)?;
            layout::flush_directory(&self.dir.join("datasets"))?;
        }
        let mut index = self.index();
        index.datasets.entry(*dataset).or_default().expires_s = expires_s;
        index.room.keep(dataset, expires_s);
        Ok(())
    }

    /// Removes the dataset, if it is there. Blocking.
    pub(crate) fn remove(&self, dataset: &DatasetId) -> Result<(), Refusal> {
        self.remove_if(dataset, |_| true)
    }

    fn remove_if(
        &self,
        dataset: &DatasetId,
        condition: impl Fn(&Holding) -> bool,
    ) -> Result<(), Refusal> {
        let doomed = self.unfinished_path();
        {
            let _alone = self.removal.write().unwrap_or_else(PoisonError::into_inner);
            let mut index = self.index();
            if !index.datasets.get(dataset).is_some_and(condition) {
                return Ok(());
            }
            if self.is_backed {
                self.doom(dataset)?;
            }
            fs::rename(layout::dataset_path(&self.dir, dataset), &doomed)?;
            if let Some(holding) = index.datasets.remove(dataset) {
                index.room.remove(dataset);
                index.objects -= holding.objects.len();
            }
        }
        fs::remove_dir_all(&doomed)?;
        Ok(())
    }

    /// Removes what is stored under a name unless it has this digest. Its bytes in an object store
    /// go with its dataset. Blocking.
    pub(crate) fn remove_unless(
        &self,
        dataset: &DatasetId,
        object: Object,
        digest: Digest,
    ) -> Result<(), Refusal> {
        let _alone = self.removal.write().unwrap_or_else(PoisonError::into_inner);
        let Some(there) = self.find(dataset, object) else {
            return Ok(());
        };
        if there.digest == digest {
            return Ok(());
        }
        let path = layout::object_path(&self.dir, dataset, object, &there.digest);
        fs::remove_file(&path)?;
        path.parent()
            .map_or(Ok(()), |group| self.flush_dir(group))?;
        let mut index = self.index();
        if let Some(holding) = index.datasets.get_mut(dataset)
            && holding.objects.remove(&object).is_some()
        {
            index.objects -= 1;
            index.room.lose(dataset, there.size);
        }
        Ok(())
    }

    /// Removes every dataset that has expired. Blocking.
    pub(crate) fn remove_expired(&self, now_s: u64) -> Result<(), Refusal> {
        let now_s = self.age.count(now_s);
        let is_expired = |holding: &Holding| holding.expires_s <= now_s;
        let expired: Vec<DatasetId> = {
            let index = self.index();
            let datasets = index.datasets.iter();
            datasets
                .filter(|(_, holding)| is_expired(holding))
                .map(|(id, _)| *id)
                .collect()
        };
        expired
            .iter()
            .try_for_each(|dataset| self.remove_if(dataset, is_expired))
    }

    /// Returns the directory of records of datasets whose bytes are to be removed elsewhere.
    pub(crate) fn doomed_dir(&self) -> PathBuf {
        self.dir.join("doomed")
    }

    /// Makes sure that new names in a directory survive a loss of power, if flushing is on.
    /// Blocking.
    pub(crate) fn flush_dir(&self, directory: &Path) -> io::Result<()> {
        match self.flush {
            true => layout::flush_directory(directory),
            false => Ok(()),
        }
    }

    /// Returns a new name in `incoming/`.
    fn unfinished_path(&self) -> PathBuf {
        let number = self.unfinished.fetch_add(1, Ordering::Relaxed);
        self.dir.join("incoming").join(number.to_string())
    }
}
