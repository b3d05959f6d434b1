//! Files that are served: all this user may reach, or one folder that nothing leads out of.
//!
//! In a lent folder, paths come from strangers, and so do the symbolic links on the way. Below its
//! destination a copy writes through no link at all: the names may come from a stranger's store.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::DirBuilderExt,
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    posix::{self, Beneath, Follow, Place, split},
};
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};

/// Maximum of components of a path: no path is deeper (`PATH_MAX` / 2).
const COMPONENTS_MAX: usize = 2048;

/// Maximum of copies that one process serves: both ends of one, with room for more.
const ROOTS_MAX: usize = 16;

/// Rule by which paths are resolved.
#[derive(Debug)]
enum Reach {
    /// Paths as the user could name them: absolute, or relative to where the process was started.
    /// Below the root of the copy no write goes through a link, once that root is there.
    User(RwLock<Vec<Arc<CopyRoot>>>),
    /// Paths beneath this directory.
    Lent(Beneath),
}

/// Served files.
#[derive(Debug)]
pub(crate) struct Ground {
    reach: Reach,
    /// Directories were listed with links followed.
    follows: AtomicBool,
}

/// Root of a copy, as its source or its destination.
#[derive(Debug)]
struct CopyRoot {
    path: Vec<u8>,
    beneath: OnceLock<Beneath>,
}

impl CopyRoot {
    fn new(path: &[u8]) -> Self {
        Self {
            path: path.to_vec(),
            beneath: OnceLock::new(),
        }
    }

    /// Returns the path below the root, if `path` lies deeper than directly in it.
    fn deep<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let rest = path.strip_prefix(self.path.as_slice())?;
        let is_folder = self.path.is_empty() || self.path.ends_with(b"/");
        let rest = if is_folder {
            rest
        } else {
            rest.strip_prefix(b"/")?
        };
        let is_deep = rest.contains(&b'/') && !rest.starts_with(b"/");
        is_deep.then_some(rest)
    }

    fn beneath(&self, make: bool) -> Result<&Beneath> {
        if self.beneath.get().is_none() {
            let root = user_path(&self.path);
            if make {
                posix::make_directory(&root)?;
            }
            let opened = Beneath::open_root(&root, Follow::Never);
            let opened = opened.map_err(|cause| Error::io("use", "", cause))?;
            // A faster thread opened the same.
            let _ = self.beneath.set(opened);
        }
        let opened = self.beneath.get();
        opened.ok_or_else(|| Error::new(ErrorKind::NotFound, "use", ""))
    }
}

impl Ground {
    /// Opens everything the user may reach.
    pub(crate) fn of_user() -> Self {
        Self {
            reach: Reach::User(RwLock::default()),
            follows: AtomicBool::new(false),
        }
    }

    /// Opens the ground beneath `dir`, which is made if it isn't there. Blocking.
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
        // The folder lies on a machine that others use too.
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(dir);
        made.map_err(failed)?;
        let lent = Beneath::open_root(dir, Follow::Inside).map_err(failed)?;
        Ok(Self {
            reach: Reach::Lent(lent),
            follows: AtomicBool::new(false),
        })
    }

    /// Returns whether paths are resolved beneath a directory.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.reach, Reach::Lent(_))
    }

    /// Notes the path of a copy's own directory, or of its one file.
    pub(crate) fn copies(&self, path: &[u8]) {
        if let Reach::User(roots) = &self.reach {
            let mut roots = roots.write().unwrap_or_else(PoisonError::into_inner);
            if roots.len() < ROOTS_MAX && !roots.iter().any(|root| root.path == path) {
                roots.push(Arc::new(CopyRoot::new(path)));
            }
        }
    }

    /// Notes that directories are listed with links followed.
    pub(crate) fn follow(&self) {
        self.follows.store(true, Relaxed);
    }

    /// Returns whether a file that is read may be a link. A lent folder follows links within its
    /// bounds, and so does the root of a copy.
    pub(crate) fn may_be_link(&self, path: &[u8]) -> bool {
        match &self.reach {
            Reach::Lent(_) => true,
            Reach::User(roots) => {
                let roots = roots.read().unwrap_or_else(PoisonError::into_inner);
                self.follows.load(Relaxed) || roots.iter().any(|root| root.path == path)
            }
        }
    }

    /// Returns where `path` leads, links followed, beneath the lent folder; its end need not be
    /// there yet. Blocking.
    ///
    /// # Errors
    /// Errors of [`Ground::place`].
    pub(crate) fn real_path(&self, path: &[u8]) -> Result<Vec<u8>> {
        self.check(path)?;
        match &self.reach {
            Reach::User(_) => {
                let found = posix::real_path(&user_path(path))?;
                Ok(found.into_os_string().into_vec())
            }
            Reach::Lent(lent) => lent.real_path(path).map_err(refused),
        }
    }

    /// Returns the place of `path` itself: a final link is not followed. Blocking.
    ///
    /// # Errors
    /// The system's; [`ErrorKind::PermissionDenied`] if it leads out of the lent folder.
    pub(crate) fn place(&self, path: &[u8]) -> Result<Place> {
        self.check(path)?;
        match &self.reach {
            Reach::User(_) => Ok(Place::plain(user_path(path))),
            Reach::Lent(lent) => within(lent, path, false),
        }
    }

    /// Returns the place of a path to be written: no link below a copy's own directory is followed.
    /// Directories above it are made if `make`. Blocking.
    ///
    /// # Errors
    /// Errors of [`Ground::place`]; [`ErrorKind::Conflict`] if a link is on the way.
    pub(crate) fn place_to_write(&self, path: &[u8], make: bool) -> Result<Place> {
        self.check(path)?;
        let roots = match &self.reach {
            Reach::Lent(lent) => return within(lent, path, make),
            Reach::User(roots) => roots,
        };
        if let Some((root, deep)) = find(roots, path) {
            let (parent, name) = split(deep);
            let folder = root.beneath(make)?.folder(parent, make);
            return Ok(Place::within(Arc::new(folder.map_err(on_the_way)?), name));
        }
        let path = user_path(path);
        if make && let Some(parent) = path.parent().filter(|parent| !is_empty(parent)) {
            posix::make_directory(parent)?;
        }
        Ok(Place::plain(path))
    }

    /// Returns the directory at `path` itself, to be changed. Blocking.
    ///
    /// # Errors
    /// Errors of [`Ground::place_to_write`].
    pub(crate) fn folder_to_change(&self, path: &[u8]) -> Result<Place> {
        let Reach::User(roots) = &self.reach else {
            return self.target(path);
        };
        self.check(path)?;
        let slashed = [path, b"/."].concat();
        match find(roots, &slashed) {
            Some((root, deep)) => {
                let folder = root.beneath(false)?.folder(split(deep).0, false);
                Ok(Place::opened(folder.map_err(on_the_way)?))
            }
            None => Ok(Place::plain(user_path(path))),
        }
    }

    /// Returns the place to which `path` leads, links followed. Blocking.
    ///
    /// # Errors
    /// Errors of [`Ground::place`].
    pub(crate) fn target(&self, path: &[u8]) -> Result<Place> {
        self.check(path)?;
        match &self.reach {
            Reach::User(_) => Ok(Place::plain(user_path(path))),
            Reach::Lent(lent) => {
                let found = lent.open(path, OFlags::PATH).map_err(refused)?;
                Ok(Place::opened(found))
            }
        }
    }

    /// Opens a directory to list it. Blocking.
    ///
    /// # Errors
    /// Errors of [`Ground::place`].
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd> {
        self.check(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = match &self.reach {
            Reach::User(_) => openat(CWD, user_path(path), flags | OFlags::CLOEXEC, Mode::empty()),
            Reach::Lent(lent) => lent.open(path, flags),
        };
        opened.map_err(refused)
    }

    /// Refuses paths that no client makes, and in a lent folder those that try to lead out.
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
}

/// Returns the copy that writes deep below its root to `path`, and the path there.
fn find<'a>(
    roots: &RwLock<Vec<Arc<CopyRoot>>>,
    path: &'a [u8],
) -> Option<(Arc<CopyRoot>, &'a [u8])> {
    let roots = roots.read().unwrap_or_else(PoisonError::into_inner);
    let mut deep = roots
        .iter()
        .filter_map(|root| Some((root, root.deep(path)?)));
    deep.next().map(|(root, deep)| (Arc::clone(root), deep))
}

fn within(lent: &Beneath, path: &[u8], make: bool) -> Result<Place> {
    let (parent, name) = split(path);
    let folder = lent.folder(parent, make).map_err(refused)?;
    Ok(Place::within(Arc::new(folder), name))
}

fn on_the_way(cause: Errno) -> Error {
    match cause {
        Errno::XDEV | Errno::LOOP | Errno::NOTDIR => Error::new(ErrorKind::Conflict, "write", "")
            .cause("a symbolic link or a file is on the way to it")
            .hint("remove it, or copy to where it points"),
        cause => Error::io("write", "", cause.into()),
    }
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

    /// Makes a folder with links out of it, resolved by the kernel or without `openat2`.
    fn grounds() -> (tempfile::TempDir, [Ground; 2]) {
        let folder = tempfile::tempdir().unwrap();
        let lent = folder.path().join("lent");
        let ground = || Ground::beneath(&lent).unwrap();
        let (newer, older) = (ground(), ground());
        let Reach::Lent(stepped) = older.reach else {
            unreachable!("it was lent");
        };
        let reach = Reach::Lent(stepped.by_steps());
        let older = Ground {
            reach,
            follows: AtomicBool::new(false),
        };
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
            assert!(ground.place(path.as_bytes()).is_err());
            let place = ground.place_to_write(path.as_bytes(), true).unwrap();
            fs::write(&place.path, "made").unwrap();
            assert_eq!(
                fs::read(folder.path().join("lent").join(path)).unwrap(),
                b"made"
            );
            assert!(ground.directory(b"").is_ok());
        }
    }

    #[test]
    fn where_a_path_leads_is_told_beneath_what_is_lent() {
        let (folder, [newer, older]) = grounds();
        symlink("inside", folder.path().join("lent/same")).unwrap();
        for (path, real) in [
            (&b""[..], &b""[..]),
            (b"inside/file", b"inside/file"),
            (b"new/er", b"new/er"),
        ] {
            for ground in [&newer, &older] {
                assert_eq!(ground.real_path(path).unwrap(), real);
            }
        }
        assert_eq!(newer.real_path(b"same/new").unwrap(), b"inside/new");
        for path in [&b"away/secret"[..], b"up"] {
            let error = newer.real_path(path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied);
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
                    ground.place_to_write(path.as_bytes(), true).err(),
                    ground.target(path.as_bytes()).err(),
                    ground.directory(path.as_bytes()).err(),
                ] {
                    let kind = found.map(|error| error.kind());
                    assert_eq!(kind, Some(ErrorKind::PermissionDenied), "{path}");
                }
            }
            let leak = ground.target(b"leak").err().unwrap();
            assert_eq!(leak.kind(), ErrorKind::PermissionDenied);
            let place = ground.place(b"a\0b");
            assert_eq!(place.err().unwrap().kind(), ErrorKind::Invalid);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before);
    }

    #[test]
    fn what_a_copy_writes_goes_through_no_link_below_its_root() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("to");
        fs::create_dir_all(to.join("real")).unwrap();
        symlink(folder.path(), to.join("link")).unwrap();
        let ground = Ground::of_user();
        let root = to.as_os_str().as_bytes();
        ground.copies(root);
        let below = |name: &str| [root, b"/", name.as_bytes()].concat();
        assert!(ground.place_to_write(&below("real/new/file"), true).is_ok());
        assert!(ground.place_to_write(&below("file"), false).is_ok());
        for name in ["link/file", "real/../link/file"] {
            let refused = ground.place_to_write(&below(name), true).err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{name}");
        }
        let refused = ground.folder_to_change(&below("link")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(ground.folder_to_change(&below("real")).is_ok());
        assert!(ground.folder_to_change(root).is_ok());
    }
}
