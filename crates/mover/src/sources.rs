//! Places that work reads from and writes to.

use std::{
    collections::HashMap,
    ffi::OsStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use posthaste_api as api;
use posthaste_endpoint::{
    Access, Actor, Endpoint, Entry, Error, ErrorKind, FileTime, Kind, Location, Locus, Reader,
    Result, own_profile, posix::DraftRules,
};

/// Most endpoints, and files, that are kept open: the next chunk of a large file follows.
const OPEN_MAX: usize = 512;

/// Key of an open place: its address, its credential, and the account whose rights are used. Places
/// with different keys share nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    place: api::ChorePlace,
    owner: Option<String>,
}

impl Place {
    pub(crate) fn of(place: &api::ChorePlace, owner: Option<&str>) -> Self {
        Self {
            place: place.clone(),
            owner: owner.map(str::to_owned),
        }
    }
}

/// Open places.
pub(crate) struct Sources {
    access: Access,
    endpoints: Mutex<HashMap<Place, Arc<dyn Endpoint>>>,
    readers: Mutex<HashMap<(Place, String), Arc<dyn Reader>>>,
    fetched: AtomicU64,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            access: Access::new(None, Vec::new()),
            endpoints: Mutex::default(),
            readers: Mutex::default(),
            fetched: AtomicU64::new(0),
        }
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sources {
    /// Returns the bytes received from all of them.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// Counts received bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Opens a file at a source, as it was when the service looked at it.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it has changed since, and errors of the source, all at
    /// [`Locus::Source`].
    pub(crate) async fn open(
        &self,
        actor: &Actor,
        place: Place,
        piece: &api::FetchPiece,
    ) -> Result<Arc<dyn Reader>> {
        let entry = entry_of(piece);
        let key = (place.clone(), piece.source_path.clone());
        let known = locked(&self.readers).get(&key).cloned();
        if let Some(known) = known.filter(|known| is_same(known.entry(), &entry)) {
            return Ok(known);
        }
        let endpoint = self.endpoint(actor, place).await;
        let endpoint = endpoint.map_err(|error| error.at(Locus::Source))?;
        let path = piece.source_path.as_bytes();
        let reader = endpoint.open(path, &entry).await;
        let reader = reader.map_err(|error| error.at(Locus::Source))?;
        if !is_same(reader.entry(), &entry) {
            let shown = endpoint.show(path);
            return Err(Error::new(ErrorKind::Changed, "read", shown).at(Locus::Source));
        }
        let mut readers = locked(&self.readers);
        if readers.len() >= OPEN_MAX {
            readers.clear();
        }
        readers.insert(key, Arc::clone(&reader));
        Ok(reader)
    }

    /// Closes an open file; the next use opens it anew.
    pub(crate) fn close(&self, place: &Place, piece: &api::FetchPiece) {
        locked(&self.readers).remove(&(place.clone(), piece.source_path.clone()));
    }

    /// Opens a place.
    ///
    /// # Errors
    /// Errors of the endpoint.
    pub(crate) async fn endpoint(&self, actor: &Actor, key: Place) -> Result<Arc<dyn Endpoint>> {
        if let Some(known) = locked(&self.endpoints).get(&key).cloned() {
            return Ok(known);
        }
        let location = Location::parse(OsStr::new(&key.place.address))?;
        let access = match &key.place.profile {
            Some(profile) => self.access.with_profile(profile.clone()),
            None => self.access.clone(),
        };
        let mut access = access.acting(actor.clone());
        if let (Location::Host { host, .. }, Some(own)) = (&location, &key.place.credential) {
            let profile = own_profile(&own.url, &own.settings)?;
            access = access.with_given(host.clone(), host.clone(), profile);
        }
        // What it writes counts for a release: it is on the disk then.
        let rules = DraftRules {
            fsync: true,
            ..DraftRules::default()
        };
        let opened = access.open(location, rules).await?;
        let mut endpoints = locked(&self.endpoints);
        if endpoints.len() >= OPEN_MAX {
            endpoints.clear();
        }
        endpoints.insert(key, Arc::clone(&opened));
        Ok(opened)
    }
}

/// Returns the entry of the file at its source.
pub(crate) fn entry_of(piece: &api::FetchPiece) -> Entry {
    let name = piece.path.rsplit('/').next().unwrap_or_default();
    Entry {
        size: piece.size,
        mtime: piece.mtime_s.map(|secs| FileTime {
            secs,
            nanos: piece.mtime_ns,
        }),
        version: piece.version.as_deref().map(Into::into),
        ..Entry::bare(name.as_bytes().to_vec(), Kind::File)
    }
}

/// Returns whether a file is unchanged.
pub(crate) fn is_same(now: &Entry, then: &Entry) -> bool {
    now.size == then.size
        && (now.mtime.is_none() || then.mtime.is_none() || now.mtime == then.mtime)
        && (now.version.is_none() || then.version.is_none() || now.version == then.version)
}
