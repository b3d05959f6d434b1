//! Paths that never lead out of a directory.
//!
//! Names come from strangers: a store may list a symbolic link `N` and a file `N/x`. Somebody may
//! also put a link in a directory's place between the look and the use. The kernel resolves each
//! path beneath the directory (`openat2`, `RESOLVE_BENEATH`); every operation then goes through the
//! directory it found, by `/proc/self/fd`. Kernels before 5.6 have no `openat2`; there, one
//! component is opened after the other, and no link is followed at all.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, FsWord, Mode, OFlags, ResolveFlags, Stat, fstat, fstatfs, openat,
        openat2, statat, statfs,
    },
    io::Errno,
    process::geteuid,
};

use crate::endpoint::join;

/// File systems of processes, devices, terminals, control groups, keys and tracing, as statfs(2)
/// numbers them.
const SYSTEM_FILES: [FsWord; 8] = [
    0x9fa0,
    0x6265_6572,
    0x1cd1,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
];

/// Owner of root's files on servers that do not trust it.
const NOBODY: u32 = 65_534;

/// Rule for links on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Links that stay beneath the directory.
    Inside,
    /// No links.
    Never,
}

/// Directory beneath which paths are resolved.
#[derive(Debug)]
pub struct Beneath {
    root: OwnedFd,
    follow: Follow,
    has_openat2: bool,
}

/// Path that can be used now.
#[derive(Debug, Clone)]
pub struct Place {
    /// Path to use.
    pub path: PathBuf,
    /// Path to show to people, if it differs.
    shown: Option<PathBuf>,
    /// Directory or file that the path goes through.
    _through: Option<Arc<OwnedFd>>,
}

impl Place {
    /// Returns a place at a path as it stands.
    #[must_use]
    pub fn plain(path: PathBuf) -> Self {
        Self {
            path,
            shown: None,
            _through: None,
        }
    }

    /// Returns the place of an opened file or directory.
    #[must_use]
    pub fn opened(found: OwnedFd) -> Self {
        Self {
            path: through(&found),
            shown: None,
            _through: Some(Arc::new(found)),
        }
    }

    /// Returns the place with another path to show.
    #[must_use]
    pub fn called(self, shown: PathBuf) -> Self {
        let shown = Some(shown);
        Self { shown, ..self }
    }

    /// Returns the path to show to people.
    #[must_use]
    pub fn shown(&self) -> &Path {
        self.shown.as_deref().unwrap_or(&self.path)
    }

    /// Returns the place of a name in an opened directory.
    #[must_use]
    pub fn within(folder: Arc<OwnedFd>, name: &[u8]) -> Self {
        Self {
            path: through(&folder).join(OsStr::from_bytes(name)),
            shown: None,
            _through: Some(folder),
        }
    }
}

/// Returns whether a path lies among the system's own files, or would if it existed. Blocks.
#[must_use]
pub fn lies_in_system(path: &Path) -> bool {
    let above = path
        .ancestors()
        .map(|above| match above.as_os_str().is_empty() {
            true => Path::new("."),
            false => above,
        });
    // What is not there lies in what is.
    let mut found = above.filter_map(|above| statfs(above).ok());
    found
        .next()
        .is_some_and(|found| SYSTEM_FILES.contains(&found.f_type))
}

impl Beneath {
    /// Opens the directory. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn open_root(path: &Path, follow: Follow) -> io::Result<Self> {
        Self::open_root_at(path, follow, true)
    }

    /// Opens a root as [`Self::open_root`] does; a link that is the directory's own name counts
    /// only if `leads`. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub(super) fn open_root_at(path: &Path, follow: Follow, leads: bool) -> io::Result<Self> {
        let mut flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, !leads);
        let root = openat(CWD, path, flags, Mode::empty())?;
        let has_openat2 = open_beneath(&root, b".", OFlags::PATH, follow).is_ok();
        Ok(Self {
            root,
            follow,
            has_openat2,
        })
    }

    /// Opens a directory that is no link itself. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn open_exactly(path: &Path) -> io::Result<Self> {
        Self::open_root_at(path, Follow::Never, false)
    }

    /// Opens a directory that this user made, or this machine's root if the server calls root
    /// nobody. Blocks.
    ///
    /// # Errors
    /// The system's errors; [`Errno::PERM`] if it is another user's.
    pub fn open_own(path: &Path) -> io::Result<Self> {
        let opened = Self::open_exactly(path)?;
        let (owner, me) = (fstat(&opened.root)?.st_uid, geteuid());
        let is_squashed = me.is_root() && owner == NOBODY;
        match owner == me.as_raw() || is_squashed {
            true => Ok(opened),
            false => Err(Errno::PERM.into()),
        }
    }

    /// Opens a directory that another party named. The path must not lead through what this process
    /// has open, nor over any link if `is_judged`. Blocks.
    ///
    /// # Errors
    /// The system's errors; [`Errno::LOOP`] if such a link is on the way.
    pub fn open_source(path: &Path, is_judged: bool) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = match is_judged {
            true => ResolveFlags::NO_SYMLINKS,
            false => ResolveFlags::NO_MAGICLINKS,
        };
        let root = match openat2(CWD, path, flags, Mode::empty(), resolve) {
            // Before 5.6 the path is as trustworthy as its author.
            Err(Errno::NOSYS) => openat(CWD, path, flags, Mode::empty())?,
            opened => opened?,
        };
        let follow = Follow::Never;
        let has_openat2 = open_beneath(&root, b".", OFlags::PATH, follow).is_ok();
        Ok(Self {
            root,
            follow,
            has_openat2,
        })
    }

    /// Returns whether the directory is one of the system's own: of `/proc`, `/sys` and the like,
    /// which hold no data of anybody. Blocks.
    ///
    /// # Errors
    /// The system's errors.
    pub fn is_of_system(&self) -> Result<bool, Errno> {
        let kind = fstatfs(&self.root)?.f_type;
        Ok(SYSTEM_FILES.contains(&kind))
    }

    /// Returns whether somebody removed the directory. Blocks.
    pub(super) fn is_removed(&self) -> bool {
        fstat(&self.root).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Resolves step by step, as on a kernel that has no `openat2`.
    #[must_use]
    pub fn by_steps(self) -> Self {
        Self {
            has_openat2: false,
            ..self
        }
    }

    /// Opens the directory at `path`, which is made with its parents if `make`. Blocks.
    ///
    /// # Errors
    /// The system's; [`Errno::XDEV`] and [`Errno::LOOP`] if a link leads out or may not be
    /// followed.
    pub fn folder(&self, path: &[u8], make: bool) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        match self.open(path, flags) {
            Err(Errno::NOENT) if make && !path.is_empty() => {
                let (parent, name) = split(path);
                let above = self.folder(parent, true)?;
                match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => self.open(path, flags),
                    Err(cause) => Err(cause),
                }
            }
            opened => opened,
        }
    }

    /// Resolves `path` beneath the directory, links followed; its end need not exist yet. Blocks.
    ///
    /// # Errors
    /// See [`Beneath::folder`].
    pub fn real_path(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        let (mut there, mut missing) = (path, Vec::new());
        let found = loop {
            match self.open(there, OFlags::PATH) {
                Err(Errno::NOENT) if !there.is_empty() => {
                    let (parent, name) = split(there);
                    missing.push(name);
                    there = parent;
                }
                opened => break opened?,
            }
        };
        let name = |file: &OwnedFd| rustix::fs::readlink(through(file), Vec::new());
        let (found, root) = (name(&found)?, name(&self.root)?);
        let found = found.to_bytes();
        let below = found.strip_prefix(root.to_bytes()).unwrap_or(found);
        let below = below.strip_prefix(b"/").unwrap_or(below).to_vec();
        Ok(missing
            .iter()
            .rev()
            .fold(below, |path, name| join(&path, name)))
    }

    /// Opens the entry at `path`. Blocks.
    ///
    /// # Errors
    /// See [`Beneath::folder`].
    pub fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        if self.has_openat2 {
            return open_beneath(&self.root, path, flags, self.follow);
        }
        walk(&self.root, path, flags)
    }
}

fn open_beneath(
    root: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    follow: Follow,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let (flags, resolve) = match follow {
        Follow::Inside => (flags, resolve),
        Follow::Never => (
            flags | OFlags::NOFOLLOW,
            resolve | ResolveFlags::NO_SYMLINKS,
        ),
    };
    loop {
        match openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A directory on the way was renamed meanwhile.
            Err(Errno::AGAIN) => {}
            opened => return opened,
        }
    }
}

/// Opens one component after the other, none of which may be a link.
fn walk(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = openat(root, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = path
        .split(|&byte| byte == b'/')
        .filter(|name| !matches!(*name, b"" | b"."))
        .peekable();
    if names.peek().is_none() {
        return openat(&at, ".", flags, Mode::empty());
    }
    while let Some(name) = names.next() {
        let is_last = names.peek().is_none();
        let flags = if is_last {
            flags
        } else {
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW
        };
        at = match openat(&at, name, flags, Mode::empty()) {
            // A link is no directory.
            Err(Errno::NOTDIR) if is_link(statat(&at, name, AtFlags::SYMLINK_NOFOLLOW)?) => {
                return Err(Errno::LOOP);
            }
            opened => opened?,
        };
        // O_PATH opens a link itself.
        if is_link(fstat(&at)?) {
            return Err(Errno::LOOP);
        }
    }
    Ok(at)
}

fn is_link(stat: Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// Returns a path through an open file.
fn through(file: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// Splits a path into parent and name; the root's name is `.`.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None if path.is_empty() => (b"", b"."),
        None => (b"", path),
    }
}
