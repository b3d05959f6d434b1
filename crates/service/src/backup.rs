//! Copies a service's files while it runs, to start another service from.
//!
//! The journal is copied between two passes over the other files. So everything that it names is in
//! the copy: it existed before, or was made between, and the second pass has it. Files removed
//! meanwhile stay in the copy, where they do no harm.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_journal as journal;
use posthaste_types::Timestamp;
use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    credentials::{ADDRESS_KEY_FILE, KEY_FILE},
    depots::secret_path,
    render, secrets, store,
};

/// Files of the service in a state directory; others are not the service's.
const FILES: [&str; 4] = ["token", "centre", KEY_FILE, ADDRESS_KEY_FILE];
/// Directories of the service's files.
const FOLDERS: [&str; 6] = [
    "secrets",
    "keys",
    "datasets",
    "invites",
    "source",
    store::MARKS,
];
/// Deepest nesting of directories: deeper ones are not the service's.
const DEPTH_MAX: u32 = 4;

/// File that marks a copy and gives its time.
const NOTE: &str = "backup.json";

/// Location of a service's journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whereabouts {
    /// In the state directory.
    File,
    /// In a database, at this address if the service recorded it.
    Database(Option<String>),
}

/// Contents of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Location of the journal; one in a database is not copied.
    pub journal: Whereabouts,
    /// Files in the copy, or that would be.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Copies a service's files in `state` into `folder`, whole and durable when this returns. The
/// service may run meanwhile.
///
/// # Errors
/// [`ErrorKind::NotFound`] if `state` has no service's files, [`ErrorKind::Conflict`] if `folder`
/// exists or the journal is locked, [`ErrorKind::Changed`] if a depot came and went meanwhile; the
/// journal's and the operating system's. Then there is no copy.
pub fn back_up(state: &Path, folder: &Path) -> Result<Backup> {
    let whereabouts = check(state, folder)?;
    let draft = Draft::make(folder)?;
    let mut copier = Copier::default();
    copier.pass(state, &draft.folder)?;
    let depots = match whereabouts {
        Whereabouts::File => copy_journal(state, &draft.folder)?,
        Whereabouts::Database(_) => Vec::new(),
    };
    copier.pass(state, &draft.folder)?;
    for depot in depots {
        if !secret_path(&draft.folder, &depot).exists() {
            return Err(Error::new(
                ErrorKind::Changed,
                "copy",
                format!("the secret of depot {depot}"),
            )
            .cause("it was removed before it was copied")
            .hint("try again"));
        }
    }
    if let Whereabouts::Database(Some(address)) = &whereabouts {
        secrets::write_private(&draft.folder.join(store::DATABASE), &format!("{address}\n"))?;
    }
    // After everything that the journal names.
    note(&draft.folder, Clock::default().now())?;
    let counted = count(&draft.folder, whereabouts)?;
    draft.finish(folder)?;
    Ok(counted)
}

/// Returns the bytes copied so far for this process's copy at `folder`; 0 if it makes none.
#[must_use]
pub fn copied_so_far(folder: &Path) -> u64 {
    // Files renamed during the look are counted at the next.
    count(&draft_of(folder), Whereabouts::File).map_or(0, |counted| counted.bytes)
}

/// Returns what a copy made now would hold.
///
/// # Errors
/// Errors of [`back_up`], as far as a look shows them.
pub fn look(state: &Path, folder: &Path) -> Result<Backup> {
    let whereabouts = check(state, folder)?;
    count(state, whereabouts)
}

/// Finds the journal, and refuses a source or destination that can't be used.
fn check(state: &Path, folder: &Path) -> Result<Whereabouts> {
    let shown = state.display().to_string();
    if !state.join("token").exists() {
        return Err(Error::new(ErrorKind::NotFound, "copy", shown)
            .cause("no service keeps anything there")
            .hint("give the --state of its `posthaste serve`"));
    }
    let shown = folder.display().to_string();
    if fs::symlink_metadata(folder).is_ok() {
        return Err(in_the_way(shown));
    }
    let parent = parent(folder);
    let real = |path: &Path| {
        let real = fs::canonicalize(path);
        real.map_err(|cause| {
            Error::io("write to", path.display().to_string(), cause).at(Locus::Destination)
        })
    };
    if real(&parent)?.starts_with(real(state)?) {
        return Err(Error::new(ErrorKind::Invalid, "copy to", shown)
            .cause("it lies in the state directory itself"));
    }
    whereabouts(state)
}

fn in_the_way(folder: String) -> Error {
    Error::new(ErrorKind::Conflict, "copy to", folder)
        .cause("it is there already")
        .hint("name one that is not")
        .at(Locus::Destination)
}

fn whereabouts(state: &Path) -> Result<Whereabouts> {
    if let Some(address) = store::database_of(state)? {
        return Ok(Whereabouts::Database(Some(address)));
    }
    Ok(match journal_in(state).exists() {
        true => Whereabouts::File,
        false => Whereabouts::Database(None),
    })
}

fn journal_in(folder: &Path) -> PathBuf {
    folder.join(store::JOURNAL)
}

fn copy_journal(state: &Path, folder: &Path) -> Result<Vec<String>> {
    let to = journal_in(folder);
    private_file(&to).map_err(|cause| failed("write", &to, cause))?;
    journal::back_up(&journal_in(state), &to).map_err(store::journal_error)
}

fn private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path)
}

fn failed(operation: &'static str, path: &Path, cause: io::Error) -> Error {
    Error::io(operation, path.display().to_string(), cause)
}

fn parent(folder: &Path) -> PathBuf {
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// Unfinished copy, which is removed unless it is completed.
struct Draft {
    folder: PathBuf,
    is_whole: bool,
}

/// Returns the path where this process makes the copy that becomes `folder`.
fn draft_of(folder: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(folder.file_name().unwrap_or_default());
    name.push(format!(".new{}", std::process::id()));
    folder.with_file_name(name)
}

impl Draft {
    fn make(folder: &Path) -> Result<Self> {
        let draft = draft_of(folder);
        let made = fs::DirBuilder::new().mode(0o700).create(&draft);
        made.map_err(|cause| failed("create", &draft, cause).at(Locus::Destination))?;
        Ok(Self {
            folder: draft,
            is_whole: false,
        })
    }

    /// Makes it durable and renames it to its final name.
    fn finish(mut self, folder: &Path) -> Result<()> {
        let opened = fs::File::open(&self.folder);
        let synced = opened.and_then(|opened| syncfs(&opened).map_err(io::Error::from));
        synced.map_err(|cause| failed("flush", &self.folder, cause).at(Locus::Destination))?;
        let renamed = renameat_with(CWD, &self.folder, CWD, folder, RenameFlags::NOREPLACE);
        let renamed = match renamed.map_err(io::Error::from) {
            // Some file systems can't do that in one step.
            Err(cause) if cause.kind() == io::ErrorKind::InvalidInput => {
                match fs::symlink_metadata(folder) {
                    Ok(_) => return Err(in_the_way(folder.display().to_string())),
                    Err(_) => fs::rename(&self.folder, folder),
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                return Err(in_the_way(folder.display().to_string()));
            }
            renamed => renamed,
        };
        renamed.map_err(|cause| failed("name", folder, cause).at(Locus::Destination))?;
        self.is_whole = true;
        let parent = parent(folder);
        let synced = fs::File::open(&parent).and_then(|parent| parent.sync_all());
        synced.map_err(|cause| failed("flush", &parent, cause).at(Locus::Destination))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Attributes that show that a file was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
}

impl Stamp {
    fn of(about: &fs::Metadata) -> Self {
        Self {
            inode: about.ino(),
            size: about.len(),
            mtime: (about.mtime(), about.mtime_nsec()),
        }
    }
}

/// Copies files that are replaced but never changed.
#[derive(Debug, Default)]
struct Copier {
    copied: BTreeMap<PathBuf, Stamp>,
}

impl Copier {
    /// Copies files that are new or replaced since the last pass.
    fn pass(&mut self, state: &Path, folder: &Path) -> Result<()> {
        for file in FILES {
            self.copy(&state.join(file), &folder.join(file))?;
        }
        for name in FOLDERS {
            self.copy_folder(&state.join(name), &folder.join(name), DEPTH_MAX)?;
        }
        Ok(())
    }

    fn copy_folder(&mut self, from: &Path, to: &Path, depth: u32) -> Result<()> {
        let entries = match fs::read_dir(from) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|cause| failed("list", from, cause))?,
        };
        secrets::make_private_directory(to)?;
        for entry in entries {
            let entry = entry.map_err(|cause| failed("list", from, cause))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() && depth > 1 {
                self.copy_folder(&from, &to, depth - 1)?;
            } else if from.is_file() {
                self.copy(&from, &to)?;
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Result<()> {
        let mut file = match fs::File::open(from) {
            // The file is no longer needed.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file.map_err(|cause| failed("read", from, cause))?,
        };
        let about = file.metadata();
        let stamp = Stamp::of(&about.map_err(|cause| failed("read", from, cause))?);
        if self.copied.get(to) == Some(&stamp) {
            return Ok(());
        }
        let mut copy = private_file(to).map_err(|cause| failed("write", to, cause))?;
        io::copy(&mut file, &mut copy).map_err(|cause| failed("write", to, cause))?;
        self.copied.insert(to.to_owned(), stamp);
        Ok(())
    }
}

/// Counts a service's files in a directory.
fn count(folder: &Path, journal: Whereabouts) -> Result<Backup> {
    let mut backup = Backup {
        journal,
        files: 0,
        bytes: 0,
    };
    let is_file = backup.journal == Whereabouts::File;
    let files = FILES
        .iter()
        .copied()
        .chain(is_file.then_some(store::JOURNAL));
    for file in files {
        backup.add(&folder.join(file), 0)?;
    }
    for name in FOLDERS {
        backup.add(&folder.join(name), DEPTH_MAX)?;
    }
    Ok(backup)
}

impl Backup {
    fn add(&mut self, path: &Path, depth: u32) -> Result<()> {
        let about = match fs::metadata(path) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
            about => about.map_err(|cause| failed("look at", path, cause))?,
        };
        if about.is_file() {
            self.files += 1;
            self.bytes += about.len();
        } else if about.is_dir() && depth > 0 {
            let entries = fs::read_dir(path).map_err(|cause| failed("list", path, cause))?;
            for entry in entries {
                let entry = entry.map_err(|cause| failed("list", path, cause))?;
                self.add(&entry.path(), depth - 1)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Time of the copy, RFC 3339.
    made: String,
    /// Release that made it.
    version: String,
}

fn note(folder: &Path, made: Timestamp) -> Result<()> {
    let note = Note {
        made: render::moment(made),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let text = serde_json::to_string(&note).unwrap_or_default();
    secrets::write_private(&folder.join(NOTE), &format!("{text}\n"))
}

/// Returns the time of the copy that a state directory was restored from; none if it was not. All
/// requests in its journal may have progressed since.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the note can't be read; the operating system's.
pub(crate) fn restored_from(state: &Path) -> Result<Option<Timestamp>> {
    let path = state.join(NOTE);
    let text = match fs::read_to_string(&path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|cause| failed("read", &path, cause))?,
    };
    let corrupt = || Error::new(ErrorKind::Corrupt, "read", path.display().to_string());
    let note: Note = serde_json::from_str(&text).map_err(|cause| corrupt().cause(cause))?;
    let made = render::parse_moment("the moment of the backup", &note.made)?;
    Ok(Some(made))
}
