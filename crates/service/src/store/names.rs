//! Lists of named files of requests: kept from their arrival until the source was scanned.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::stripe::digest_of;
use posthaste_journal::RequestRecord;
use posthaste_types::Digest;

use super::{Store, sync_parent};

/// Terminator of a name, which no name contains.
const END: u8 = 0;
/// File name suffix of such lists, before a further one while they are written.
const SUFFIX: &str = "names";
/// Bytes written at once.
const BLOCK_BYTES: usize = 256 << 10;

/// List being written, which is removed unless it is kept in the end.
pub(crate) struct NamesDraft {
    path: PathBuf,
    file: File,
    block: Vec<u8>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl NamesDraft {
    /// Adds a name. Blocks now and then.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn add(&mut self, name: &[u8]) -> Result<()> {
        self.block.extend_from_slice(name);
        self.block.push(END);
        self.bytes += name.len() as u64 + 1;
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Returns the bytes added.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn flush(&mut self) -> Result<()> {
        self.hasher.update(&self.block);
        let written = self.file.write_all(&self.block);
        self.block.clear();
        written.map_err(|cause| self.failed(cause))
    }

    fn failed(&self, cause: std::io::Error) -> Error {
        Error::io("write", self.path.display().to_string(), cause)
    }
}

impl Drop for NamesDraft {
    fn drop(&mut self) {
        // A kept list has another name.
        let _ = fs::remove_file(&self.path);
    }
}

/// List of names, read back.
pub(crate) struct Names(Vec<u8>);

impl Names {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let names = self.0.strip_suffix(&[END]).unwrap_or_default();
        let is_some = !names.is_empty();
        names.split(|&byte| byte == END).filter(move |_| is_some)
    }
}

impl Store {
    fn names_path(&self, dataset: &str) -> PathBuf {
        let datasets = self.directory.join("datasets");
        datasets.join(format!("{dataset}.{SUFFIX}"))
    }

    /// Begins the list of a request that is about to be recorded.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn begin_names(&self, dataset: &str) -> Result<NamesDraft> {
        let path = self.names_path(dataset);
        let path = path.with_extension(format!("{SUFFIX}-new{}", self.epoch));
        let file = File::create(&path);
        let file = file.map_err(|cause| Error::io("write", path.display().to_string(), cause))?;
        Ok(NamesDraft {
            path,
            file,
            block: Vec::new(),
            hasher: blake3::Hasher::new(),
            bytes: 0,
        })
    }

    /// Stores it durably, only while this service leads, and returns its digest.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_names(&self, mut draft: NamesDraft) -> Result<Digest> {
        draft.flush()?;
        draft.file.sync_all().map_err(|cause| draft.failed(cause))?;
        let path = draft.path.with_extension(SUFFIX);
        let renamed =
            self.journal(|journal| journal.while_leading(|| fs::rename(&draft.path, &path)));
        renamed?.map_err(|cause| draft.failed(cause))?;
        sync_parent(&path)?;
        Ok(Digest::new(*draft.hasher.finalize().as_bytes()))
    }

    /// Returns the named files of a request; none if no list named them.
    ///
    /// # Errors
    /// The operating system's, and [`ErrorKind::Corrupt`] if the list is damaged.
    pub(crate) fn names(&self, record: &RequestRecord) -> Result<Option<Names>> {
        let Some(digest) = record.named else {
            return Ok(None);
        };
        let path = self.names_path(&record.dataset);
        let shown = path.display().to_string();
        let bytes = fs::read(&path).map_err(|cause| Error::io("read", &shown, cause))?;
        if digest_of(&bytes) != digest {
            return Err(Error::new(ErrorKind::Corrupt, "read", shown)
                .cause("it is not the list of files that came")
                .hint("submit it again"));
        }
        Ok(Some(Names(bytes)))
    }

    /// Removes the list of a request that was scanned or does not exist. A leftover does no harm.
    pub(crate) fn forget_names(&self, record: &RequestRecord) {
        if record.named.is_some() {
            let _ = fs::remove_file(self.names_path(&record.dataset));
        }
    }

    /// Removes all such lists except those of these datasets: remains of a killed service.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn sweep_names(&self, waiting: &BTreeSet<String>) -> Result<()> {
        let datasets = self.directory.join("datasets");
        let failed = |path: &Path, cause| Error::io("sweep", path.display().to_string(), cause);
        for entry in fs::read_dir(&datasets).map_err(|cause| failed(&datasets, cause))? {
            let path = entry.map_err(|cause| failed(&datasets, cause))?.path();
            let text = |name: Option<&std::ffi::OsStr>| {
                name.unwrap_or_default().to_string_lossy().into_owned()
            };
            let (name, end) = (text(path.file_stem()), text(path.extension()));
            if end.starts_with(SUFFIX) && !(end == SUFFIX && waiting.contains(&name)) {
                fs::remove_file(&path).map_err(|cause| failed(&path, cause))?;
            }
        }
        Ok(())
    }
}
