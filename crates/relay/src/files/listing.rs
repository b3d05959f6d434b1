//! Lists directories and trees, a page at a time.

use std::os::fd::OwnedFd;

use posthaste_endpoint::{
    Entry, Error, ErrorKind, FileTime, Kind, Result, join,
    peer::wire::{Done, List, PAGE_ENTRIES_MAX, Page, Refusal},
    posix,
};
use rustix::{
    fs::{AtFlags, Dir, FileType, Stat, statat},
    io::Errno,
};

use super::{
    ground::Ground,
    outflow::{Gone, Outlet},
};

/// Maximum of bytes of names on a page, however long they are.
const PAGE_BYTES_MAX: usize = 256 << 10;

/// Maximum depth of a tree: each level costs an open directory.
const DEPTH_MAX: usize = 256;

/// Directory that is being listed.
struct Open {
    directory: Dir,
    /// Path relative to where the listing began.
    path: Vec<u8>,
}

/// Sends pages until everything was listed, and an empty one.
pub(super) fn list(ground: &Ground, list: &List, outlet: &Outlet) -> Result<(), Gone> {
    if list.follow {
        ground.follow();
    }
    let root = match open(ground, &list.path.0) {
        Ok(root) => root,
        Err(error) => return outlet.message(&Err::<Page, _>(Refusal::of(&error))),
    };
    outlet.message(&Ok(Done))?;
    let mut pages = Pages {
        ground,
        list,
        outlet,
        page: Page::default(),
        bytes: 0,
        left_out: None,
    };
    let told = pages.tell(Open {
        directory: root,
        path: Vec::new(),
    });
    match told {
        Ok(()) => {
            pages.flush()?;
            outlet.message(&pages.end())
        }
        Err(Stop::Gone) => Err(Gone),
        Err(Stop::Failed(error)) => outlet.message(&Err::<Page, _>(Refusal::of(&error))),
    }
}

fn open(ground: &Ground, path: &[u8]) -> Result<Dir> {
    dir(ground.directory(path)?)
}

fn dir(fd: OwnedFd) -> Result<Dir> {
    Dir::new(fd).map_err(failed)
}

fn failed(cause: Errno) -> Error {
    Error::io("list", "", cause.into())
}

enum Stop {
    Gone,
    Failed(Error),
}

impl From<Gone> for Stop {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Pages<'a> {
    ground: &'a Ground,
    list: &'a List,
    outlet: &'a Outlet,
    page: Page,
    bytes: usize,
    /// First name that could not be looked at or listed, and the number of them, reported after all
    /// others.
    left_out: Option<(Refusal, u64)>,
}

impl Pages<'_> {
    /// Reports all entries below `root`; directories before what they hold.
    fn tell(&mut self, root: Open) -> Result<(), Stop> {
        let mut opened = vec![root];
        while let Some(innermost) = opened.last_mut() {
            let Some(found) = innermost.directory.read() else {
                opened.pop();
                continue;
            };
            let found = match found.map_err(failed) {
                Ok(found) => found,
                // An empty listing of the requested directory would look complete.
                Err(error) if opened.len() == 1 => return Err(error.into()),
                Err(error) => {
                    let path = opened.pop().map_or_else(Vec::new, |open| open.path);
                    self.leave_out(&path, &error);
                    continue;
                }
            };
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = join(&innermost.path, name);
            let mut entry = match look(&innermost.directory, name) {
                Ok(Some(entry)) => entry,
                Ok(None) => continue,
                Err(error) => {
                    self.leave_out(&path, &error);
                    continue;
                }
            };
            if self.list.follow && entry.kind == Kind::Link {
                entry = self.follow(&path).unwrap_or(entry);
            }
            let below = self.list.tree && entry.kind == Kind::Directory;
            entry.name.clone_from(&path);
            self.add(entry)?;
            if below {
                match self.enter(&path, opened.len()) {
                    Ok(directory) => opened.push(Open { directory, path }),
                    // A name that vanished meanwhile is no loss.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => self.leave_out(&path, &error),
                }
            }
        }
        Ok(())
    }

    fn enter(&self, path: &[u8], depth: usize) -> Result<Dir> {
        if depth == DEPTH_MAX {
            return Err(Error::new(ErrorKind::Unsupported, "list", "")
                .cause(format!("more than {DEPTH_MAX} directories deep")));
        }
        open(self.ground, &join(&self.list.path.0, path))
    }

    fn leave_out(&mut self, path: &[u8], error: &Error) {
        let told = || {
            let refusal = Refusal::of(error);
            Refusal {
                message: format!("{}: {}", String::from_utf8_lossy(path), refusal.message),
                ..refusal
            }
        };
        self.left_out.get_or_insert_with(|| (told(), 0)).1 += 1;
    }

    /// Returns the last message: everything was listed, or what was not.
    fn end(&mut self) -> Result<Page, Refusal> {
        match self.left_out.take() {
            None => Ok(Page::default()),
            Some((refusal, 1)) => Err(refusal),
            Some((refusal, count)) => Err(refusal.hint(format!("and {} more there", count - 1))),
        }
    }

    /// Returns the target of a link; `None` if it leads nowhere.
    fn follow(&self, path: &[u8]) -> Option<Entry> {
        let place = self.ground.target(&join(&self.list.path.0, path)).ok()?;
        posix::stat(&place.path, true).ok()?
    }

    fn add(&mut self, entry: Entry) -> Result<(), Gone> {
        self.bytes += entry.name.len();
        self.page.entries.push(entry);
        if self.page.entries.len() >= PAGE_ENTRIES_MAX || self.bytes >= PAGE_BYTES_MAX {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Gone> {
        self.bytes = 0;
        let page = std::mem::take(&mut self.page);
        if page.entries.is_empty() {
            return Ok(());
        }
        self.outlet.message(&Ok(page))
    }
}

/// Returns the system's entry for a name; `None` if it is gone.
fn look(directory: &Dir, name: &[u8]) -> Result<Option<Entry>> {
    let fd = directory.fd().map_err(failed)?;
    match statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(entry_of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(cause) => Err(failed(cause)),
    }
}

/// Returns an entry without a name.
fn entry_of(stat: &Stat) -> Entry {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => Kind::Special,
    };
    Entry {
        name: Vec::new(),
        kind,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: Some(FileTime {
            secs: stat.st_mtime,
            nanos: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        }),
        stored: None,
        mode: Some(stat.st_mode & 0o7777),
        version: None,
    }
}
