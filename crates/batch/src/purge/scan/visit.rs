//! Thread of a scan: takes one directory after another, remembers or lists it, and counts its
//! files.

use std::sync::atomic::Ordering::Relaxed;
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, sync::Mutex, sync::PoisonError};
use std::{io, mem::MaybeUninit, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, Statx, StatxFlags, openat, openat2,
        statx,
    },
    io::Errno,
};

use super::{
    super::{Account, Facts, Kind, Sight, account::Fate},
    Agenda, FAILURES_TOLD_MAX, Failure, LISTED_AGAIN_S, Scan,
    record::{Entry, Head, Mark, Reader, Writer},
};

/// Bytes of names read at once.
const NAMES_BYTES: usize = 64 << 10;

/// Seconds between a directory's last change and its listing below which the listing is not
/// trusted. The directory may have changed again within the same tick of the file system's clock.
const TICK_S: i64 = 2;

pub(super) type Device = (u32, u32);

pub(super) fn device_of(fd: &OwnedFd) -> io::Result<Device> {
    let stat = look(fd, c"", AtFlags::EMPTY_PATH)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Looks at a name in a directory, without following a link.
fn look(fd: &OwnedFd, name: impl rustix::path::Arg, more: AtFlags) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | more;
    statx(fd, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// Returns the facts of one file, without following a link.
///
/// # Errors
/// If it can't be looked at.
pub fn facts(path: &Path) -> io::Result<Facts> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(rustix::fs::CWD, path, flags, all)?;
    Ok(facts_of(&stat))
}

fn facts_of(stat: &Statx) -> Facts {
    let kind = match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Link,
        FileType::Directory
        | FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Other,
    };
    let knows_birth = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Facts {
        kind,
        size: stat.stx_size,
        owner: stat.stx_uid,
        accessed_s: stat.stx_atime.tv_sec,
        modified_s: stat.stx_mtime.tv_sec,
        changed_s: stat.stx_ctime.tv_sec,
        born_s: knows_birth.then_some(stat.stx_btime.tv_sec),
    }
}

fn mark_of(stat: &Statx) -> Mark {
    Mark {
        inode: stat.stx_ino,
        modified: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
    }
}

pub(super) struct Visitor<'a> {
    scan: &'a Scan<'a>,
    account: Account,
    device: Device,
    agenda: &'a Agenda,
    failures: &'a Mutex<Vec<Failure>>,
    /// Directories found in the current one, by their paths below the root.
    found: Vec<Vec<u8>>,
    /// Whole path of the file being judged.
    path: Vec<u8>,
    segment: Vec<u8>,
    names: Vec<MaybeUninit<u8>>,
    /// True if a file of the directory being listed could not be looked at.
    has_failed: bool,
}

/// Directory being visited.
struct Here<'a> {
    fd: OwnedFd,
    mark: Mark,
    /// Path below the root.
    path: &'a [u8],
    group: Vec<u8>,
}

impl<'a> Visitor<'a> {
    pub fn new(
        scan: &'a Scan<'a>,
        account: Account,
        device: Device,
        agenda: &'a Agenda,
        failures: &'a Mutex<Vec<Failure>>,
    ) -> Self {
        Self {
            scan,
            account,
            device,
            agenda,
            failures,
            found: Vec::new(),
            path: Vec::new(),
            segment: Vec::new(),
            names: vec![MaybeUninit::uninit(); NAMES_BYTES],
            has_failed: false,
        }
    }

    pub fn work(mut self) -> Account {
        while let Some(path) = self.agenda.next() {
            if let Err(cause) = self.directory(&path) {
                self.fail(&path, cause.into());
            }
            let left = self.agenda.done(&mut self.found);
            for _ in 0..left {
                let cause = io::Error::other("too many directories wait already");
                self.fail(&path, cause);
            }
        }
        self.account
    }

    fn fail(&self, path: &[u8], cause: io::Error) {
        // A directory removed during the scan is no failure.
        if cause.kind() == io::ErrorKind::NotFound {
            return;
        }
        self.scan.tally.failures.fetch_add(1, Relaxed);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_TOLD_MAX {
            let path = path.to_vec();
            failures.push(Failure { path, cause });
        }
    }

    fn directory(&mut self, path: &[u8]) -> Result<(), Errno> {
        let fd = self.open(path)?;
        let stat = look(&fd, c"", AtFlags::EMPTY_PATH)?;
        let tally = self.scan.tally;
        if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
            tally.elsewhere.fetch_add(1, Relaxed);
            return Ok(());
        }
        tally.directories.fetch_add(1, Relaxed);
        self.path.clear();
        self.path.extend_from_slice(&self.scan.root.path);
        self.path.push(b'/');
        if !path.is_empty() {
            self.path.extend_from_slice(path);
            self.path.push(b'/');
        }
        let here = Here {
            fd,
            mark: mark_of(&stat),
            path,
            group: self.account.group_of(path).to_vec(),
        };
        if self.remembers(&here) && self.remember(&here) {
            return Ok(());
        }
        tally.listed.fetch_add(1, Relaxed);
        self.list(&here)
    }

    /// Opens a directory beneath the root, whatever links appear in its path meanwhile. Its access
    /// time stays unchanged if we own it.
    fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = match path {
            b"" => Path::new("."),
            path => Path::new(OsStr::from_bytes(path)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let root = &self.scan.root.fd;
        let try_with = |flags| match openat2(root, path, flags, Mode::empty(), beneath) {
            // Kernels before 5.6.
            Err(Errno::NOSYS) => openat(root, path, flags, Mode::empty()),
            opened => opened,
        };
        match try_with(flags | OFlags::NOATIME) {
            Err(Errno::PERM) => try_with(flags),
            opened => opened,
        }
    }

    /// Returns whether the cache of a directory is valid, with its first segment read.
    fn remembers(&mut self, here: &Here<'_>) -> bool {
        let Some(cache) = self.scan.cache else {
            return false;
        };
        if cache.segment(here.path, 0, &mut self.segment).is_none() {
            return false;
        }
        Reader::open(&self.segment, here.path).is_some_and(|(_, head)| {
            let latest = here.mark.modified.0.max(here.mark.changed.0);
            let age_s = self.scan.world.now_s - head.listed_s;
            head.mark == here.mark
                && latest < head.listed_s - TICK_S
                && (0..LISTED_AGAIN_S).contains(&age_s)
        })
    }

    /// Counts the files of a directory from the cache. Returns false, having counted nothing, if a
    /// segment is damaged.
    fn remember(&mut self, here: &Here<'_>) -> bool {
        let Some(cache) = self.scan.cache else {
            return false;
        };
        let Some(segments) = self.segments_of(here) else {
            return false;
        };
        for number in 0..segments {
            let mut segment = std::mem::take(&mut self.segment);
            if number == 0 || cache.segment(here.path, number, &mut segment).is_some() {
                self.remember_segment(here, number, &segment);
            }
            self.segment = segment;
        }
        true
    }

    /// Returns the number of segments of a directory if all are intact, with the first one read.
    fn segments_of(&mut self, here: &Here<'_>) -> Option<u32> {
        let cache = self.scan.cache?;
        let mut number = 0;
        loop {
            if number > 0 {
                cache.segment(here.path, number, &mut self.segment)?;
            }
            let (_, head) = Reader::open(&self.segment, here.path)?;
            if head.mark != here.mark {
                return None;
            }
            number += 1;
            if head.is_last {
                break;
            }
        }
        if number > 1 {
            cache.segment(here.path, 0, &mut self.segment)?;
        }
        Some(number)
    }

    fn remember_segment(&mut self, here: &Here<'_>, number: u32, segment: &[u8]) {
        let Some((mut reader, head)) = Reader::open(segment, here.path) else {
            return;
        };
        // Only segments with changes are rewritten.
        let mut again: Option<Vec<(Vec<u8>, Option<Facts>)>> = None;
        while let Some(entry) = reader.entry() {
            match entry {
                Entry::Directory(name) => self.found.push(below(here.path, name)),
                Entry::File(name, facts) => {
                    let now = self.remembered(here, name, &facts);
                    if now != Some(facts) {
                        again.get_or_insert_default().push((name.to_vec(), now));
                    }
                }
            }
        }
        let Some(new) = self.scan.new_cache else {
            return;
        };
        match again {
            None => new.add(here.path, number, segment),
            Some(again) => {
                let segment = rewritten(here.path, segment, &head, &again);
                new.add(here.path, number, &segment);
            }
        }
    }

    /// Counts a file from the cache, or looks at it if it might be removed soon. Returns its facts;
    /// `None` if it is gone.
    fn remembered(&mut self, here: &Here<'_>, name: &[u8], facts: &Facts) -> Option<Facts> {
        let start = self.path.len();
        self.path.extend_from_slice(name);
        let sight = Sight {
            path: &self.path,
            facts,
            is_remembered: true,
        };
        let earliest = self.scan.policy.earliest_s(&sight, self.scan.world);
        self.path.truncate(start);
        let fate = match earliest {
            None => Fate::Stays,
            Some(at_s) if at_s > self.scan.options.until_s => Fate::Later,
            Some(_) => {
                return match look(&here.fd, name, AtFlags::empty()) {
                    Ok(stat) => {
                        let facts = facts_of(&stat);
                        self.judge(here, name, &facts);
                        Some(facts)
                    }
                    Err(Errno::NOENT) => None,
                    Err(errno) => {
                        self.fail(&below(here.path, name), errno.into());
                        Some(*facts)
                    }
                };
            }
        };
        self.scan.tally.files.fetch_add(1, Relaxed);
        self.account.count(&here.group, facts.size, fate, false);
        Some(*facts)
    }

    /// Counts a file by its current facts.
    fn judge(&mut self, here: &Here<'_>, name: &[u8], facts: &Facts) {
        let tally = self.scan.tally;
        tally.files.fetch_add(1, Relaxed);
        tally.looked_at.fetch_add(1, Relaxed);
        self.account.unborn += u64::from(facts.born_s.is_none());
        let start = self.path.len();
        self.path.extend_from_slice(name);
        let sight = Sight {
            path: &self.path,
            facts,
            is_remembered: false,
        };
        let death = self.scan.policy.death(&sight, self.scan.world);
        let fate = match death {
            None => Fate::Stays,
            Some(death) if death.at_s > self.scan.options.until_s => Fate::Later,
            Some(death) => Fate::Dies(death),
        };
        let is_safe = matches!(fate, Fate::Dies(_)) && (self.scan.is_safe)(&self.path, facts);
        self.path.truncate(start);
        self.account.count(&here.group, facts.size, fate, is_safe);
    }

    /// Lists a directory and looks at every file of it.
    fn list(&mut self, here: &Here<'_>) -> Result<(), Errno> {
        let mut head = Head {
            mark: here.mark,
            listed_s: self.scan.world.now_s,
            is_last: false,
        };
        self.has_failed = false;
        let mut names = std::mem::take(&mut self.names);
        let mut entries = RawDir::new(&here.fd, &mut names);
        let (mut writer, mut number) = (Writer::new(here.path, &head), 0);
        let mut ended = Ok(());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => {
                    ended = Err(errno);
                    break;
                }
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if let Some(entry) = self.entry(here, name, entry.file_type()) {
                writer.entry(entry);
            }
            if writer.is_full() {
                let next = Writer::new(here.path, &head);
                self.keep(here, number, std::mem::replace(&mut writer, next), false);
                number += 1;
            }
        }
        self.names = names;
        // A listing that is incomplete is not remembered: without its last segment it is invalid.
        head.is_last = ended.is_ok() && !self.has_failed;
        self.keep(here, number, writer, head.is_last);
        ended
    }

    fn entry<'b>(&mut self, here: &Here<'_>, name: &'b [u8], kind: FileType) -> Option<Entry<'b>> {
        if kind == FileType::Directory {
            self.found.push(below(here.path, name));
            return Some(Entry::Directory(name));
        }
        let stat = match look(&here.fd, name, AtFlags::empty()) {
            Ok(stat) => stat,
            Err(errno) => {
                self.has_failed |= errno != Errno::NOENT;
                self.fail(&below(here.path, name), errno.into());
                return None;
            }
        };
        // Not every file system reports the kinds of files in a listing.
        if FileType::from_raw_mode(u32::from(stat.stx_mode)) == FileType::Directory {
            self.found.push(below(here.path, name));
            return Some(Entry::Directory(name));
        }
        let facts = facts_of(&stat);
        self.judge(here, name, &facts);
        Some(Entry::File(name, facts))
    }

    fn keep(&self, here: &Here<'_>, number: u32, writer: Writer, is_last: bool) {
        if let Some(new) = self.scan.new_cache {
            new.add(here.path, number, &writer.finish(is_last));
        }
    }
}

fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    if !directory.is_empty() {
        path.extend_from_slice(directory);
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Rewrites a segment with the current facts of these files, leaving out those without facts.
fn rewritten(
    path: &[u8],
    segment: &[u8],
    head: &Head,
    again: &[(Vec<u8>, Option<Facts>)],
) -> Vec<u8> {
    let mut writer = Writer::new(path, head);
    let mut changed = again.iter().peekable();
    if let Some((mut reader, _)) = Reader::open(segment, path) {
        while let Some(entry) = reader.entry() {
            match (entry, changed.peek()) {
                (Entry::File(name, _), Some((other, now))) if name == other => {
                    if let Some(facts) = now {
                        writer.entry(Entry::File(name, *facts));
                    }
                    changed.next();
                }
                (entry, _) => writer.entry(entry),
            }
        }
    }
    writer.finish(head.is_last)
}
