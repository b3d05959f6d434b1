//! Records of unfinished copies: the segments that the destination holds, with their checksums.
//!
//! A ledger is a text file that is only appended to. A line torn by a crash is ignored, as is
//! everything after it; a ledger whose first line names another identity belongs to another copy.
//! Losing a ledger costs sending again, never correctness.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::{fs::FlockOperation, io::Errno};

use crate::Checksum;

const MAGIC: &str = "posthaste-progress-1";

/// Longest ledger read, in bytes: 10^6 segments of 80 bytes. A longer one is not ours.
const LEDGER_BYTES_MAX: u64 = 80_000_000;

/// Longest receipt of a store that is noted.
const RECEIPT_BYTES_MAX: usize = 512;

/// Identity of an unfinished copy's source, and its segment size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// [`crate::FileSpec::identity`].
    pub identity: String,
    /// Bytes of each segment but the last.
    pub segment_size: u64,
    /// Store's name for the unfinished copy (an upload id); `-` if it has no name.
    pub token: String,
}

/// Segment that the destination holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub index: u64,
    pub checksum: Checksum,
    /// Store's answer (an ETag); `-` if none.
    pub receipt: String,
}

impl Kept {
    /// Returns whether a line can hold it.
    pub(crate) fn can_be_noted(&self) -> bool {
        let is_plain = self.receipt.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain && (1..=RECEIPT_BYTES_MAX).contains(&self.receipt.len())
    }
}

/// Open ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    file: Mutex<File>,
}

impl Ledger {
    /// Reads the ledger at `path`; `None` if there is none that can be read.
    pub(crate) fn load(path: &Path) -> Option<(Head, Vec<Kept>)> {
        let file = File::open(path).ok()?;
        let mut lines = BufReader::new(file.take(LEDGER_BYTES_MAX)).lines();
        let head = read_head(&lines.next()?.ok()?)?;
        let kept = lines.map_while(|line| read_kept(&line.ok()?)).collect();
        Some((head, kept))
    }

    /// Loads as [`Ledger::load`] does, if the ledger is `owner`'s file, in a folder that others may
    /// write to.
    pub(crate) fn load_of(path: &Path, owner: u32) -> Option<(Head, Vec<Kept>)> {
        let found = fs::symlink_metadata(path).ok()?;
        let is_theirs = found.is_file() && found.uid() == owner && found.nlink() <= 1;
        is_theirs.then(|| Self::load(path))?
    }

    /// Starts as [`Ledger::start`] does, in a folder that others may write to: a present file loses
    /// its name and is not written to.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] and [`io::ErrorKind::PermissionDenied`] if it is another's
    /// and stays; the system's.
    pub(crate) fn start_anew(path: PathBuf, head: &Head, kept: &[Kept]) -> io::Result<Self> {
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            Ok(()) | Err(_) => {}
        }
        let mut options = OpenOptions::new();
        let file = options
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        Self::begin(path, file, head, kept)
    }

    /// Starts the ledger at `path` with `head` and `kept`, in place of any that is there.
    pub(crate) fn start(path: PathBuf, head: &Head, kept: &[Kept]) -> io::Result<Self> {
        let file = open(&path)?;
        Self::begin(path, file, head, kept)
    }

    fn begin(path: PathBuf, mut file: File, head: &Head, kept: &[Kept]) -> io::Result<Self> {
        use std::fmt::Write as _;
        let mut text = format!(
            "{MAGIC} {} {} {} .\n",
            head.identity, head.segment_size, head.token
        );
        for kept in kept {
            let _ = writeln!(text, "{} {} {} .", kept.index, kept.checksum, kept.receipt);
        }
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        Ok(Self {
            path,
            file: Mutex::new(file),
        })
    }

    /// Puts the note of another machine's ledger at `path`, unless there is a ledger of the same
    /// copy.
    pub(crate) fn adopt(path: &Path, identity: &str, note: &str) -> io::Result<()> {
        let is_ours = |head: Option<Head>| head.is_some_and(|head| head.identity == identity);
        let there = Self::load(path).map(|(head, _)| head);
        if is_ours(there) || !is_ours(note.lines().next().and_then(read_head)) {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, note)
    }

    /// Returns the ledger's text, for [`Ledger::adopt`] elsewhere.
    pub(crate) fn note(&self) -> Option<String> {
        fs::read_to_string(&self.path).ok()
    }

    /// Appends a segment in one write.
    pub(crate) fn add(&self, index: u64, checksum: Checksum, receipt: &str) -> io::Result<()> {
        let line = format!("{index} {checksum} {receipt} .\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
    }

    /// Flushes it to the disk.
    pub(crate) fn flush(&self) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync_data()
    }

    /// Removes the ledger: its copy is complete or given up.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Opens the file at `path`, or makes it.
fn open(path: &Path) -> io::Result<File> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(false).open(path)
}

/// The ledger of an unfinished copy whose name does not show its writer: one process has it at a
/// time.
pub(crate) struct Claim {
    path: PathBuf,
    file: File,
}

impl Claim {
    /// Claims the ledger at `path` until the result of [`Claim::start`] is dropped; `None` while
    /// another process has it.
    pub(crate) fn take(path: &Path) -> io::Result<Option<Self>> {
        let file = open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // Without locks, two copies have the same name only for the same bytes.
            Ok(()) | Err(Errno::NOSYS | Errno::NOTSUP | Errno::NOLCK | Errno::INVAL) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(cause) => return Err(cause.into()),
        }
        // Its former holder may have removed it between the two calls.
        let opened = file.metadata()?;
        let is_there = fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (opened.dev(), opened.ino()));
        Ok(is_there.then(|| Self {
            path: path.to_owned(),
            file,
        }))
    }

    /// Loads as [`Ledger::load`] does.
    pub(crate) fn load(&self) -> Option<(Head, Vec<Kept>)> {
        Ledger::load(&self.path)
    }

    /// Starts as [`Ledger::start`] does.
    pub(crate) fn start(self, head: &Head, kept: &[Kept]) -> io::Result<Ledger> {
        Ledger::begin(self.path, self.file, head, kept)
    }
}

fn read_head(line: &str) -> Option<Head> {
    let mut words = line.split(' ');
    (words.next()? == MAGIC).then_some(())?;
    let head = Head {
        identity: words.next()?.to_owned(),
        segment_size: words.next()?.parse().ok().filter(|&size| size > 0)?,
        token: words.next()?.to_owned(),
    };
    (words.next()? == ".").then_some(head)
}

fn read_kept(line: &str) -> Option<Kept> {
    let mut words = line.split(' ');
    let kept = Kept {
        index: words.next()?.parse().ok()?,
        checksum: Checksum::from_hex(words.next()?)?,
        receipt: words.next()?.to_owned(),
    };
    (words.next()? == ".").then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_costs_only_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let head = Head {
            identity: "abc".into(),
            segment_size: 4096,
            token: "-".into(),
        };
        let ledger = Ledger::start(path.clone(), &head, &[]).unwrap();
        ledger.add(3, Checksum::of(b"three"), "\"etag\"").unwrap();
        ledger.add(1, Checksum::of(b"one"), "-").unwrap();
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let kept = Ledger::load(&path).map_or(0, |(_, kept)| kept.len());
            let lines = whole[..cut].iter().filter(|&&byte| byte == b'\n').count();
            assert!(
                kept + 1 >= lines && kept <= lines,
                "{kept} kept of {lines} lines"
            );
        }
        fs::write(&path, &whole).unwrap();
        let (read, kept) = Ledger::load(&path).unwrap();
        assert_eq!(read, head);
        assert_eq!(kept[0].index, 3);
        assert_eq!(kept[1].checksum, Checksum::of(b"one"));
    }

    #[test]
    fn a_ledger_is_claimed_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/ledger");
        let head = Head {
            identity: "abc".into(),
            segment_size: 4096,
            token: "w".into(),
        };
        let claim = Claim::take(&path).unwrap().unwrap();
        assert!(claim.load().is_none());
        let ledger = claim.start(&head, &[]).unwrap();
        ledger.add(0, Checksum::of(b"zero"), "-").unwrap();
        assert!(Claim::take(&path).unwrap().is_none());
        drop(ledger);
        let claim = Claim::take(&path).unwrap().unwrap();
        assert_eq!(claim.load().unwrap().1.len(), 1);
        let ledger = claim.start(&head, &[]).unwrap();
        ledger.remove();
        assert!(Claim::take(&path).unwrap().is_some(), "a new one");
    }

    #[test]
    fn a_ledger_moves_to_another_machine_but_never_over_one_of_the_same_copy() {
        let folder = tempfile::tempdir().unwrap();
        let head = |identity: &str| Head {
            identity: identity.into(),
            segment_size: 4096,
            token: "-".into(),
        };
        let here = folder.path().join("here");
        let ledger = Ledger::start(here, &head("abc"), &[]).unwrap();
        ledger.add(3, Checksum::of(b"three"), "-").unwrap();
        let note = ledger.note().unwrap();
        let there = folder.path().join("state/there");
        Ledger::adopt(&there, "other", &note).unwrap();
        assert!(!there.exists(), "the note of another copy was taken");
        Ledger::adopt(&there, "abc", &note).unwrap();
        assert_eq!(Ledger::load(&there).unwrap().1[0].index, 3);
        let newer = Ledger::start(there.clone(), &head("abc"), &[]).unwrap();
        Ledger::adopt(&there, "abc", &note).unwrap();
        assert!(Ledger::load(&there).unwrap().1.is_empty());
        drop(newer);
        Ledger::start(there.clone(), &head("older"), &[]).unwrap();
        Ledger::adopt(&there, "abc", &note).unwrap();
        assert_eq!(Ledger::load(&there).unwrap().0, head("abc"));
    }
}
