//! The files that are served: all this user may reach, or one folder that nothing leads out of.
//!
//! In a folder that is lent, paths come from strangers, and so do the symbolic links on the way.
//! The kernel resolves each path beneath the folder (`openat2`, `RESOLVE_BENEATH`), and what is
//! done then is done through the directory it found, by `/proc/self/fd`: nobody can put a link in
//! its place meanwhile. Kernels before 5.6 have no `openat2`; there, no link is followed at all.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Result, posix};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat,
    },
    io::Errno,
};

/// Components of a path: no path is deeper (`PATH_MAX` / 2).
const COMPONENTS_MAX: usize = 2048;

/// How paths are resolved.
#[derive(Debug)]
enum Reach {
    /// As the user could: absolute, or relative to where the process was started.
    User,
    /// Beneath this directory.
    Beneath { root: OwnedFd, has_openat2: bool },
}

/// The files that are served.
#[derive(Debug)]
pub(crate) struct Ground {
    reach: Reach,
}

/// A path that can be used now.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// The directory or file the path goes through.
    _through: Option<OwnedFd>,
}

impl Ground {
    /// Everything the user may reach.
    pub(crate) fn of_user() -> Self {
        Self { reach: Reach::User }
    }

    /// What is beneath `dir`, which is made if it isn't there. Blocking.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn beneath(dir: &Path) -> Result<Self> {
        let failed = |cause: io::Error| {
            let shown = dir.display().to_string();
            if cause.kind() == io::ErrorKind::NotADirectory {
                return Error::new(ErrorKind::Conflict, "use", shown).cause(cause);
            }
            Error::io("use", shown, cause)
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let root = File::open(dir).map_err(failed)?.into();
        let has_openat2 = open_beneath(&root, b".", OFlags::PATH).is_ok();
        Ok(Self {
            reach: Reach::Beneath { root, has_openat2 },
        })
    }

    /// Whether paths are resolved beneath a directory.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.reach, Reach::Beneath { .. })
    }

    /// Where `path` itself is: a final link is not followed. Directories above it are made if
    /// `make`. Blocking.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::PermissionDenied`] when it leads out of what is lent.
    pub(crate) fn place(&self, path: &[u8], make: bool) -> Result<Place> {
        self.check(path)?;
        match &self.reach {
            Reach::User => {
                let path = user_path(path);
                if make && let Some(parent) = path.parent().filter(|parent| !is_empty(parent)) {
                    posix::make_directory(parent)?;
                }
                Ok(Place {
                    path,
                    _through: None,
                })
            }
            Reach::Beneath { .. } => {
                let (parent, name) = split(path);
                let folder = self.folder(parent, make).map_err(refused)?;
                let path = through(&folder).join(OsStr::from_bytes(name));
                Ok(Place {
                    path,
                    _through: Some(folder),
                })
            }
        }
    }

    /// What `path` leads to, links followed. Blocking.
    ///
    /// # Errors
    /// As [`Ground::place`].
    pub(crate) fn target(&self, path: &[u8]) -> Result<Place> {
        self.check(path)?;
        match &self.reach {
            Reach::User => Ok(Place {
                path: user_path(path),
                _through: None,
            }),
            Reach::Beneath { .. } => {
                let found = self.open(path, OFlags::PATH).map_err(refused)?;
                Ok(Place {
                    path: through(&found),
                    _through: Some(found),
                })
            }
        }
    }

    /// Opens a directory to list it. Blocking.
    ///
    /// # Errors
    /// As [`Ground::place`].
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd> {
        self.check(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = match &self.reach {
            Reach::User => openat(CWD, user_path(path), flags | OFlags::CLOEXEC, Mode::empty()),
            Reach::Beneath { .. } => self.open(path, flags),
        };
        opened.map_err(refused)
    }

    /// Refuses paths that no client makes, and of what is lent those that try to lead out.
    fn check(&self, path: &[u8]) -> Result<()> {
        let components = path.iter().filter(|&&byte| byte == b'/').count();
        if path.contains(&0) || components > COMPONENTS_MAX {
            return Err(Error::new(ErrorKind::Invalid, "use", "").cause("it is no path"));
        }
        let mut names = path.split(|&byte| byte == b'/');
        if self.is_lent()
            && !path.is_empty()
            && names.any(|name| matches!(name, b".." | b"." | b""))
        {
            return Err(out_of_bounds());
        }
        Ok(())
    }

    /// The directory at `path` beneath the root.
    fn folder(&self, path: &[u8], make: bool) -> Result<OwnedFd, Errno> {
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

    fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let Reach::Beneath { root, has_openat2 } = &self.reach else {
            return Err(Errno::INVAL);
        };
        let path = if path.is_empty() { b"." } else { path };
        if *has_openat2 {
            return open_beneath(root, path, flags);
        }
        walk(root, path, flags)
    }
}

fn open_beneath(root: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    loop {
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // Something on the way was renamed meanwhile.
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
        // With O_PATH, a link is opened itself.
        if is_link(fstat(&at)?) {
            return Err(Errno::LOOP);
        }
    }
    Ok(at)
}

fn is_link(stat: Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// A path through an open file.
fn through(file: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

fn user_path(path: &[u8]) -> PathBuf {
    if path.is_empty() {
        return PathBuf::from(".");
    }
    PathBuf::from(OsStr::from_bytes(path))
}

fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}

/// Parent and name; the root's name is `.`.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(cut) => (&path[..cut], &path[cut + 1..]),
        None if path.is_empty() => (b"", b"."),
        None => (b"", path),
    }
}

fn out_of_bounds() -> Error {
    Error::new(ErrorKind::PermissionDenied, "use", "").cause("it leads out of what is lent")
}

fn refused(cause: Errno) -> Error {
    match cause {
        Errno::XDEV | Errno::LOOP => out_of_bounds(),
        cause => Error::io("use", "", io::Error::from(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder with links out of it, resolved by the kernel or without `openat2`.
    fn grounds() -> (tempfile::TempDir, [Ground; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let lent = folder.path().join("lent");
        let ground = || Ground::beneath(&lent).unwrap();
        let (newer, mut older) = (ground(), ground());
        if let Reach::Beneath { has_openat2, .. } = &mut older.reach {
            *has_openat2 = false;
        }
        fs::create_dir(lent.join("inside")).unwrap();
        fs::write(lent.join("inside/file"), "fine").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        symlink("..", lent.join("up")).unwrap();
        symlink(folder.path(), lent.join("away")).unwrap();
        symlink("../secret", lent.join("leak")).unwrap();
        (folder, [newer, older])
    }

    #[test]
    fn what_is_inside_is_found_and_made_on_old_and_new_kernels() {
        let (folder, grounds) = grounds();
        for (number, ground) in grounds.iter().enumerate() {
            let place = ground.target(b"inside/file").unwrap();
            assert_eq!(fs::read(&place.path).unwrap(), b"fine");
            let path = format!("new{number}/deep/er/file");
            assert!(ground.place(path.as_bytes(), false).is_err());
            let place = ground.place(path.as_bytes(), true).unwrap();
            fs::write(&place.path, "made").unwrap();
            assert_eq!(
                fs::read(folder.path().join("lent").join(path)).unwrap(),
                b"made"
            );
            assert!(ground.directory(b"").is_ok());
        }
    }

    #[test]
    fn no_path_leads_out_on_old_and_new_kernels() {
        let (folder, grounds) = grounds();
        let before = fs::read_dir(folder.path()).unwrap().count();
        for ground in &grounds {
            for path in [
                "up/secret",
                "away/secret",
                "../secret",
                "/etc/passwd",
                "inside/../../secret",
            ] {
                for found in [
                    ground.place(path.as_bytes(), true).err(),
                    ground.target(path.as_bytes()).err(),
                    ground.directory(path.as_bytes()).err(),
                ] {
                    let kind = found.map(|error| error.kind());
                    assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{path}");
                }
            }
            let leak = ground.target(b"leak").err().unwrap();
            assert_eq!(leak.kind(), ErrorKind::PermissionDenied);
            let place = ground.place(b"a\0b", false);
            assert_eq!(place.err().unwrap().kind(), ErrorKind::Invalid);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
    }
}
