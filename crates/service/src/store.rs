//! State on disk: the journal, and the list of each dataset beside it.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_endpoint::{Error, ErrorKind, Result, relay::check_own_folder};
use posthaste_engine::{
    dataset::{ChunkDigests, DatasetId, FileList, Manifest},
    envelope::Cipher,
    sealed::{Seal, Sealed},
};
use posthaste_journal::{
    DatabaseUrl, Epoch, Journal, JournalError, RequestRecord, Scan, Scanned, TroubleKind,
};
use posthaste_types::{ChunkIndex, Digest, RequestId, Timestamp};

use crate::{actors::Actors, backup, secrets};

mod encryption;
mod names;
mod relearn;
mod stage_in;
mod together;

pub(crate) use encryption::Remains;
pub(crate) use names::NamesDraft;
use together::Together;

/// Largest list of files kept in the journal: a separate file costs two waits for the disk.
const SMALL_LIST_BYTES_MAX: usize = 4096;
/// Journal's file in the state directory.
pub(crate) const JOURNAL: &str = "journal.db";
/// File in the state directory that names the database with the journal.
pub(crate) const DATABASE: &str = "database";

/// Directory of the alarms' marks.
pub(crate) const MARKS: &str = "alarms";

/// State directory of the service, open.
pub(crate) struct Store {
    directory: PathBuf,
    journal: Mutex<Journal>,
    /// Requests and scans to be recorded.
    inserts: Together<RequestRecord, RequestId>,
    scans: Together<Scanned, ()>,
    /// Number of the lease for writing; 0 without.
    epoch: u64,
    /// Held while an envelope is made, so that it is made once.
    envelopes: Mutex<()>,
    /// Accounts that touch the files of requests.
    pub(crate) actors: Arc<Actors>,
    /// Time of the backup that this was restored from, if any.
    restored_from: Option<Timestamp>,
}

impl Store {
    /// Opens the directory, and the journal: a file in it, or a database under a lease.
    ///
    /// # Errors
    /// The operating system's and the journal's.
    pub(crate) fn open(
        directory: &Path,
        database: Option<(&DatabaseUrl, Epoch)>,
        is_new: bool,
    ) -> Result<Self> {
        for private in [
            directory.into(),
            directory.join("secrets"),
            directory.join("datasets"),
            directory.join(encryption::KEYS),
        ] {
            secrets::make_private_directory(&private)?;
            check_own_folder(&private)?;
        }
        let journal = match database {
            None => {
                refuse_second(directory)?;
                let path = directory.join(JOURNAL);
                if !is_new && !path.exists() {
                    // A refused start leaves nothing that looks like a journal.
                    refuse_left(directory)?;
                }
                Journal::open(&path)
            }
            Some((address, epoch)) => Journal::open_database(address, epoch),
        };
        let mut journal = journal.map_err(journal_error)?;
        if !is_new && journal.is_unused().map_err(journal_error)? {
            refuse_left(directory)?;
        }
        journal.begin().map_err(journal_error)?;
        if let Some((address, _)) = database {
            secrets::write_private(&directory.join(DATABASE), &format!("{address}\n"))?;
        }
        Ok(Self {
            restored_from: backup::restored_from(directory)?,
            directory: directory.into(),
            journal: Mutex::new(journal),
            inserts: Together::default(),
            scans: Together::default(),
            epoch: database.map_or(0, |(_, epoch)| epoch.get()),
            envelopes: Mutex::default(),
            actors: Arc::default(),
        })
    }

    /// Returns the store with these accounts for touching files.
    pub(crate) fn acting(self, actors: Actors) -> Self {
        Self {
            actors: Arc::new(actors),
            ..self
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the time of the backup that the service was restored from, if any.
    pub(crate) fn restored_from(&self) -> Option<Timestamp> {
        self.restored_from
    }

    /// Returns the time of the backup that the request comes from, if any: the journal does not
    /// know its later progress, and its source may be gone.
    pub(crate) fn backup_of(&self, request: RequestId) -> Option<Timestamp> {
        self.restored_from.filter(|made| {
            let record = self.request(request);
            record.is_ok_and(|record| record.created <= *made)
        })
    }

    /// Calls a function with the journal.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn journal<T>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, JournalError>,
    ) -> Result<T> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        work(&mut journal).map_err(journal_error)
    }

    /// Returns the request as it was submitted.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none of that number.
    pub(crate) fn request(&self, request: RequestId) -> Result<RequestRecord> {
        self.journal(|journal| journal.request(request))?
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "find", format!("request {request}")))
    }

    /// Returns the dataset's id at depots.
    ///
    /// # Errors
    /// Errors of [`Store::request`].
    pub(crate) fn dataset(&self, request: RequestId) -> Result<DatasetId> {
        dataset_of(&self.request(request)?)
    }

    /// Returns when depots may remove the request's dataset.
    ///
    /// # Errors
    /// Errors of [`Store::request`].
    pub(crate) fn expires(&self, request: RequestId) -> Result<Timestamp> {
        Ok(self.request(request)?.expires)
    }

    /// Returns the digests of every chunk read so far.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn digests(&self, request: RequestId) -> Result<HashMap<ChunkIndex, Vec<Digest>>> {
        let records = self.journal(|journal| journal.chunks(request))?;
        Ok(records
            .into_iter()
            .map(|record| (record.chunk, record.digests))
            .collect())
    }

    /// Returns the digests of one chunk; none before it was read.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn digests_of(
        &self,
        request: RequestId,
        chunk: ChunkIndex,
    ) -> Result<Option<Vec<Digest>>> {
        let record = self.journal(|journal| journal.chunk(request, chunk))?;
        Ok(record.map(|record| record.digests))
    }

    fn list_path(&self, request: RequestId) -> PathBuf {
        self.directory
            .join("datasets")
            .join(format!("{request}.list"))
    }

    /// Stores a dataset's list durably.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_list(&self, request: RequestId, list: &FileList) -> Result<()> {
        self.keep(&self.list_path(request), &list.to_bytes())
    }

    /// Keeps a list, or returns it if it is small, to be journalled with the scan.
    ///
    /// # Errors
    /// Errors of [`Store::keep_list`].
    pub(crate) fn keep_if_large(
        &self,
        request: RequestId,
        list: &FileList,
    ) -> Result<Option<Vec<u8>>> {
        let bytes = list.to_bytes();
        if bytes.len() <= SMALL_LIST_BYTES_MAX {
            return Ok(Some(bytes));
        }
        self.keep(&self.list_path(request), &bytes)?;
        Ok(None)
    }

    /// Writes a file durably, whole or not at all, and only while this service leads.
    fn keep(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let failed = |cause| Error::io("write", path.display().to_string(), cause);
        // A former leader may be writing the same file.
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(format!(".new{}", self.epoch));
        let mut file = fs::File::create(&fresh).map_err(failed)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(failed)?;
        let renamed = self.journal(|journal| journal.while_leading(|| fs::rename(&fresh, path)));
        renamed?.map_err(failed)?;
        sync_parent(path)
    }

    fn mark_path(&self, alarm: &str) -> PathBuf {
        self.directory.join(MARKS).join(alarm)
    }

    /// Returns an alarm's stored mark.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn mark(&self, alarm: &str) -> Result<Option<String>> {
        let path = self.mark_path(alarm);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(Error::io("read", path.display().to_string(), cause)),
        }
    }

    /// Stores the mark durably.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_mark(&self, alarm: &str, text: &str) -> Result<()> {
        secrets::make_private_directory(&self.directory.join(MARKS))?;
        self.keep(&self.mark_path(alarm), text.as_bytes())
    }

    /// Returns a dataset's list, with later omissions applied.
    ///
    /// # Errors
    /// The operating system's, and an unreadable list.
    pub(crate) fn list(&self, request: RequestId) -> Result<FileList> {
        let mut list = FileList::from_bytes(&self.list_bytes(request)?)?;
        for file in self.journal(|journal| journal.left_out(request))? {
            list.leave_out(usize::try_from(file).unwrap_or(usize::MAX));
        }
        Ok(list)
    }

    /// Returns the list's bytes.
    ///
    /// # Errors
    /// Errors of [`Store::list`].
    pub(crate) fn list_bytes(&self, request: RequestId) -> Result<Vec<u8>> {
        let path = self.list_path(request);
        let shown = path.display().to_string();
        match fs::read(&path) {
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
                let small = self.journal(|journal| journal.small_list(request))?;
                small.ok_or_else(|| Error::io("read", &shown, cause))
            }
            read => read.map_err(|cause| Error::io("read", &shown, cause)),
        }
    }

    /// Opens the request's dataset for reading.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the request or its list is missing.
    pub(crate) fn open_sealed(&self, request: RequestId) -> Result<Sealed> {
        let record = self.request(request)?;
        let Some(Scan::Sealed { chunk_size, .. }) = record.scan else {
            return Err(
                Error::new(ErrorKind::NotFound, "open", format!("dataset of {request}"))
                    .cause("its source has not been scanned"),
            );
        };
        let known = self.journal(|journal| journal.chunks(request))?;
        let seal = Seal {
            dataset: dataset_of(&record)?,
            root: PathBuf::from(OsStr::from_bytes(&record.source)),
            code: record.code,
            chunk_size,
            expires: record.expires,
            encryption: self.encryption(&record)?,
            actor: self.actors.of(&record)?.actor().clone(),
        };
        let known = known.into_iter().map(|known| (known.chunk, known.digests));
        Ok(Sealed::new(seal, Arc::new(self.list(request)?), known))
    }

    /// Returns the whole manifest of a request whose dataset this cipher encrypts.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while some chunk has not been read yet.
    pub(crate) fn manifest(
        &self,
        record: &RequestRecord,
        cipher: Option<Cipher>,
    ) -> Result<Manifest> {
        let request = record.id;
        let not_yet = |cause: String| {
            Error::new(
                ErrorKind::Busy,
                "make",
                format!("the manifest of {request}"),
            )
            .cause(cause)
            .hint("wait until the request is safe: `posthaste watch` shows it")
        };
        let Some(Scan::Sealed {
            bytes, chunk_size, ..
        }) = record.scan
        else {
            return Err(not_yet("its source has not been scanned".into()));
        };
        let chunks: Vec<ChunkDigests> = self
            .journal(|journal| journal.chunks(request))?
            .into_iter()
            .filter_map(|chunk| {
                let (chunk, fragments) = chunk.digests.split_first()?;
                // The last digest is that of an encrypted chunk's contents.
                let fragments_and_rest = fragments.split_at_checked(record.code.total().into());
                let (fragments, rest) = fragments_and_rest?;
                Some(ChunkDigests {
                    chunk: *chunk,
                    fragments: fragments.to_vec(),
                    content: rest.first().copied(),
                })
            })
            .collect();
        let wanted = bytes.pieces(chunk_size);
        if (chunks.len() as u64) < wanted {
            return Err(not_yet(format!(
                "{} of {wanted} chunks have been read",
                chunks.len()
            )));
        }
        Ok(Manifest {
            dataset: self.dataset(request)?,
            code: record.code,
            chunk_size,
            list: self.list(request)?,
            chunks,
            cipher,
        })
    }
}

fn dataset_of(record: &RequestRecord) -> Result<DatasetId> {
    let subject = || format!("dataset id {}", record.dataset);
    let dataset = record.dataset.parse();
    dataset.map_err(|_| Error::new(ErrorKind::Corrupt, "use", subject()))
}

/// Returns the database that holds the journal of `directory`, if the service recorded one.
///
/// # Errors
/// The operating system's.
pub(crate) fn database_of(directory: &Path) -> Result<Option<String>> {
    let path = directory.join(DATABASE);
    match path.exists() {
        true => secrets::read_private(&path).map(Some),
        false => Ok(None),
    }
}

/// Refuses to begin without a journal if secrets or datasets are left.
fn refuse_left(directory: &Path) -> Result<()> {
    let has_any = |name: &&str| {
        let there = std::fs::read_dir(directory.join(name));
        there.is_ok_and(|mut there| there.next().is_some())
    };
    let Some(left) = ["secrets", "datasets"].into_iter().find(has_any) else {
        return Ok(());
    };
    let subject = format!("a service in {}", directory.display());
    Err(Error::new(ErrorKind::Conflict, "start", subject)
        .cause(format!("its journal is empty or missing, and {left}/ there has what a service kept"))
        .hint("bring the journal back (docs/operating/backup.md), or --new begins without what it knew"))
}

/// Refuses to begin a second journal beside one in a database.
fn refuse_second(directory: &Path) -> Result<()> {
    let Some(address) = database_of(directory)? else {
        return Ok(());
    };
    let noted = directory.join(DATABASE);
    let subject = format!("a journal in {}", directory.display());
    Err(Error::new(ErrorKind::Conflict, "open", subject)
        .cause(format!("it is in {address}"))
        .hint(format!(
            "give --database; to begin a new one, remove {}",
            noted.display()
        )))
}

/// Makes the names in a file's directory durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let directory = path.parent().unwrap_or(path);
    let synced = fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|cause| Error::io("flush", directory.display().to_string(), cause))
}

/// Advice for a damaged journal.
const DAMAGED: &str =
    "distrust the disk and restore the last backup: docs/operating/backup.md#a-damaged-journal";

/// Converts a journal's error to the common one.
#[must_use]
pub fn journal_error(error: JournalError) -> Error {
    let (operation, place, cause) = match error {
        JournalError::Database {
            operation,
            place,
            cause,
        } => (operation, place, cause),
        JournalError::Lost { place } => {
            return Error::new(ErrorKind::Conflict, "lead", format!("the journal {place}"))
                .cause("another service has its lease now")
                .hint("start this one again: it waits until that one ends");
        }
        JournalError::Newer { .. } => {
            return Error::new(ErrorKind::Other, "use", "the journal").cause(error);
        }
        JournalError::Malformed { place, cause } => {
            return Error::new(ErrorKind::Corrupt, "read", format!("the journal {place}"))
                .cause(cause)
                .hint(DAMAGED);
        }
    };
    let (kind, hint) = match cause.kind() {
        TroubleKind::Full => (
            ErrorKind::Full,
            Some(
                "free space there (a service that ended goes on where it was, once it is started again)",
            ),
        ),
        TroubleKind::InUse => (
            ErrorKind::Conflict,
            Some("another service uses it: end that one, or choose another --state"),
        ),
        TroubleKind::Unreachable => (ErrorKind::Unreachable, Some("is PostgreSQL running there?")),
        TroubleKind::Denied => (
            ErrorKind::Unauthenticated,
            Some("is the password in ~/.pgpass, and may that user make tables?"),
        ),
        TroubleKind::Damaged => (ErrorKind::Corrupt, Some(DAMAGED)),
        TroubleKind::Other => (ErrorKind::Other, None),
    };
    let error = Error::new(kind, operation, format!("the journal {place}")).cause(cause);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
