//! Objects of other bytes than were sent that their store did not let us remove: by their size and
//! time they would be the files. Notes under the state folder name them, so that the next run writes
//! them again.

use std::{
    collections::BTreeSet,
    fs, io,
    path::PathBuf,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

use super::RawStore;
use crate::{
    Error, ErrorKind, Locus, Result, Status,
    config::state_folder,
    endpoint::{Boxed, Entry, Listing},
};

/// Start of the name of a note.
const NAME: &str = "doubted-";

/// Longest version that is noted, in bytes: ETags have a hundred.
const VERSION_BYTES_MAX: usize = 1 << 10;

/// Names of the notes, read once: hardly ever is there any.
static NOTED: LazyLock<Mutex<BTreeSet<String>>> = LazyLock::new(|| {
    let entries = fs::read_dir(state_folder()).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Mutex::new(names.filter(|name| name.starts_with(NAME)).collect())
});

fn noted() -> MutexGuard<'static, BTreeSet<String>> {
    NOTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Note about one object.
pub(crate) struct Doubt(String);

impl Doubt {
    /// Returns the note about the object under `key`.
    pub(crate) fn of<S: RawStore>(store: &S, key: &str) -> Self {
        let name = format!("{}\n{key}", store.place());
        let hash = blake3::hash(name.as_bytes()).to_hex();
        Self(format!(
            "{NAME}{}-{}",
            store.capabilities().scheme,
            &hash[..32]
        ))
    }

    fn path(&self) -> PathBuf {
        state_folder().join(&self.0)
    }

    /// Notes that this version is wrong. Returns whether it will be known in the next run.
    pub(crate) fn note(&self, version: &str) -> bool {
        let cut = version.len() > VERSION_BYTES_MAX;
        let write = || -> io::Result<()> {
            fs::create_dir_all(state_folder())?;
            fs::write(self.path(), if cut { "" } else { bare(version) })
        };
        noted().insert(self.0.clone());
        write().is_ok()
    }

    /// Forgets it: the object was written again.
    pub(crate) fn clear(&self) {
        if noted().remove(&self.0) {
            // A note that stays costs a copy.
            let _ = fs::remove_file(self.path());
        }
    }

    /// Returns an entry without its time if it is of the wrong version, so that it is like no file.
    pub(super) fn apply(&self, entry: Entry) -> Entry {
        if !noted().contains(&self.0) {
            return entry;
        }
        let wrong = fs::read_to_string(self.path()).unwrap_or_default();
        let version = entry.version.as_deref().map(bare);
        match wrong.is_empty() || version.is_none_or(|version| version == wrong) {
            true => Entry {
                mtime: None,
                stored: None,
                ..entry
            },
            false => entry,
        }
    }
}

/// Returns whether anything is noted.
pub(super) fn are_there() -> bool {
    !noted().is_empty()
}

fn bare(version: &str) -> &str {
    version.trim_start_matches("W/").trim_matches('"')
}

/// Returns the error for an object of other bytes than were sent. Where it could not be removed, the
/// next run writes it again.
pub(crate) fn other_bytes<S: RawStore>(store: &S, key: &str, removed: Removed<'_>) -> Error {
    let error = Error::new(ErrorKind::Corrupt, "write", store.show(key))
        .status_is(Status::Temporary)
        .at(Locus::Destination);
    let Removed::Stays(version) = removed else {
        Doubt::of(store, key).clear();
        return error.cause("the store holds other bytes than were sent");
    };
    let is_noted = Doubt::of(store, key).note(version);
    let error =
        error.cause("the store holds other bytes than were sent, and does not let them be removed");
    match is_noted {
        true => error.hint("remove it there, or copy it again from here, which replaces it"),
        false => error.hint("remove it there: by its size and time it looks like the file"),
    }
}

/// End of a wrong object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Removed<'a> {
    /// No more there.
    Gone,
    /// Still there, under this version.
    Stays(&'a str),
}

impl<'a> Removed<'a> {
    /// Reads the answer to a removal of that version.
    pub(crate) fn by<T>(answer: &Result<T>, version: &'a str) -> Self {
        match answer {
            Ok(_) => Self::Gone,
            // Somebody else replaced or removed it.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Changed) => {
                Self::Gone
            }
            Err(_) => Self::Stays(version),
        }
    }
}

/// Listing in which wrong objects have no times.
pub(super) struct Doubtful<F> {
    pub inner: Box<dyn Listing>,
    pub apply: F,
}

impl<F: Fn(Entry) -> Entry + Send + Sync> Listing for Doubtful<F> {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            let page = self.inner.next_page().await?;
            Ok(page.into_iter().map(&self.apply).collect())
        })
    }

    fn mark(&self) -> Option<Vec<u8>> {
        self.inner.mark()
    }

    fn counts_itself(&self) -> bool {
        self.inner.counts_itself()
    }
}
