//! Object on its way in.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use bytes::Bytes;
use posthaste_endpoint::{
    ErrorKind,
    posix::flush,
    relay::{DatasetId, Grown, wire::Object},
};
use posthaste_types::Digest;

use super::{Growth, OBJECTS_MAX, Refusal, Store, Stored, layout};
use crate::clock;

/// Object being received: bytes in `incoming/` and space set aside for them. Dropped before it is
/// sealed, it leaves nothing behind.
pub(crate) struct Upload {
    store: Arc<Store>,
    dataset: DatasetId,
    object: Object,
    stored: Stored,
    /// Requested expiry.
    expires_s: u64,
    path: PathBuf,
    file: Arc<File>,
    growth: Arc<Growth>,
    hasher: Box<blake3::Hasher>,
    received: u64,
    /// Its space is still set aside.
    is_under_way: bool,
}

impl Upload {
    /// Sets space aside and makes the file. Blocking.
    pub(crate) fn begin(
        store: Arc<Store>,
        dataset: DatasetId,
        object: Object,
        stored: Stored,
        expires_s: u64,
    ) -> Result<Self, Refusal> {
        store.set_aside(&dataset, stored.size, expires_s)?;
        let path = store.unfinished_path();
        let mut options = File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = match options.open(&path) {
            Ok(file) => Arc::new(file),
            Err(cause) => {
                store.index().room.end(&dataset, stored.size, expires_s);
                return Err(cause.into());
            }
        };
        let growth = Arc::new(Growth::new(Arc::clone(&file), stored));
        let growing = Arc::clone(&growth);
        store.index().growing.insert((dataset, object), growing);
        store.begun.send_replace(());
        let hasher = Box::default();
        Ok(Self {
            store,
            dataset,
            object,
            stored,
            expires_s,
            path,
            file,
            growth,
            hasher,
            received: 0,
            is_under_way: true,
        })
    }

    /// Returns the growth of the upload on disk, for those who follow it.
    pub(crate) fn growth(&self) -> Arc<Growth> {
        Arc::clone(&self.growth)
    }

    /// Appends received bytes. Blocking.
    pub(crate) fn write(&mut self, pieces: &[Bytes]) -> Result<(), Refusal> {
        for piece in pieces {
            self.received += piece.len() as u64;
            if self.received > self.stored.size {
                return Err(Refusal::new(
                    ErrorKind::Invalid,
                    "the body is longer than it said",
                ));
            }
            self.hasher.update(piece);
            (&*self.file).write_all(piece)?;
        }
        self.growth.tell(Grown::Bytes(self.received));
        Ok(())
    }

    /// Verifies the digest, puts the object in its place and counts it. Blocking.
    pub(crate) fn seal(mut self) -> Result<(), Refusal> {
        self.check_and_place()?;
        self.growth.tell(Grown::Whole);
        Ok(())
    }

    /// Counts an object whose bytes lie elsewhere, and were verified there. Blocking.
    pub(crate) fn vouch(mut self) -> Result<(), Refusal> {
        self.file.set_len(self.stored.size)?;
        self.place_and_count()?;
        self.growth.tell(Grown::Whole);
        Ok(())
    }

    fn check_and_place(&mut self) -> Result<(), Refusal> {
        let shown = Digest::new(*self.hasher.finalize().as_bytes());
        if self.received != self.stored.size || shown != self.stored.digest {
            let message = format!("{} bytes with digest {shown} arrived", self.received);
            return Err(Refusal::new(ErrorKind::Corrupt, message).hint("send it again"));
        }
        self.place_and_count()
    }

    fn place_and_count(&mut self) -> Result<(), Refusal> {
        if self.store.flush {
            self.file.sync_data()?;
        }
        flush(&self.file)?;
        let _not_removed = self
            .store
            .removal
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        self.store.keep(&self.dataset, self.expires_s)?;
        if !self
            .store
            .begin_sealing(&self.dataset, self.object, self.stored)?
        {
            return Ok(());
        }
        let placed = self.place();
        let store = Arc::clone(&self.store);
        let mut index = store.index();
        index.sealing.remove(&(self.dataset, self.object));
        placed?;
        self.is_under_way = false;
        index
            .room
            .store(&self.dataset, self.stored.size, self.expires_s);
        let holding = index.datasets.entry(self.dataset).or_default();
        holding.objects.insert(self.object, self.stored);
        index.objects += 1;
        Ok(())
    }

    fn place(&self) -> std::io::Result<()> {
        let Self {
            dataset,
            object,
            stored,
            ..
        } = self;
        let place = layout::object_path(&self.store.dir, dataset, *object, &stored.digest);
        let dataset = layout::dataset_path(&self.store.dir, dataset);
        let directory = place.parent().unwrap_or(&dataset);
        let is_new_group = match fs::create_dir(directory) {
            Ok(()) => true,
            Err(cause) if cause.kind() == std::io::ErrorKind::AlreadyExists => false,
            Err(cause) => return Err(cause),
        };
        fs::rename(&self.path, &place)?;
        if self.store.flush {
            layout::flush_directory(directory)?;
            if is_new_group {
                layout::flush_directory(&dataset)?;
            }
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.growth.end();
        let mut index = self.store.index();
        if self.is_under_way {
            index
                .room
                .end(&self.dataset, self.stored.size, self.expires_s);
        }
        let name = (self.dataset, self.object);
        let is_own = |growth: &Arc<Growth>| Arc::ptr_eq(growth, &self.growth);
        if index.growing.get(&name).is_some_and(is_own) {
            index.growing.remove(&name);
        }
        drop(index);
        // Once in place it no longer has this name.
        let _ = fs::remove_file(&self.path);
    }
}

impl Store {
    /// Sets space aside for an upload, after removing what has expired.
    fn set_aside(&self, dataset: &DatasetId, size: u64, expires_s: u64) -> Result<(), Refusal> {
        let now_s = clock::unix_s();
        let refused = match self.take_room(dataset, size, expires_s, now_s) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        if !self.index().room.has_expired(now_s) {
            return Err(refused);
        }
        self.remove_expired(now_s)?;
        self.take_room(dataset, size, expires_s, now_s)
    }

    fn take_room(
        &self,
        dataset: &DatasetId,
        size: u64,
        expires_s: u64,
        now_s: u64,
    ) -> Result<(), Refusal> {
        let mut index = self.index();
        if index.objects >= OBJECTS_MAX {
            return Err(
                Refusal::new(ErrorKind::Full, "the relay holds too many fragments")
                    .hint("use larger chunks"),
            );
        }
        index.room.begin(dataset, size, expires_s, now_s)
    }

    /// Returns whether the object is to be put in place; `false` if an equal one is there already.
    fn begin_sealing(
        &self,
        dataset: &DatasetId,
        object: Object,
        stored: Stored,
    ) -> Result<bool, Refusal> {
        let mut index = self.index();
        let there = index
            .datasets
            .get(dataset)
            .and_then(|holding| holding.objects.get(&object));
        match there {
            Some(there) if there.digest == stored.digest => return Ok(false),
            Some(_) => return Err(other_digest()),
            None => {}
        }
        if !index.sealing.insert((*dataset, object)) {
            return Err(Refusal::new(
                ErrorKind::Busy,
                "the same is being stored right now",
            ));
        }
        Ok(true)
    }
}

/// Returns the refusal to store something else in an object's place.
pub(crate) fn other_digest() -> Refusal {
    Refusal::new(
        ErrorKind::Conflict,
        "something else is stored under that name",
    )
    .hint("delete the dataset first, or use a new one")
}
