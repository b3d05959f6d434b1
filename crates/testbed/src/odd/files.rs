//! A file system that rejects, rounds or fails on request, since no real one does so at will.
//!
//! The mount works by FUSE without any library: as root, with `/dev/fuse`; any other user needs
//! `fusermount3` (package `fuse3`). Its data lies in a folder behind it.

mod change;
mod habits;
mod hidden;
mod table;
mod unmount;

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD};
use tempfile::TempDir;

use change::{Answer, Change};
use habits::folded;
pub use habits::{Call, Deed, Habits, Refuses};
use table::Table;
use unmount::{NAME, unmount, unmount_left_behind};

/// A mounted file system; gone when dropped, also with files open in it.
#[derive(Debug)]
pub struct Files {
    _session: BackgroundSession,
    mount: TempDir,
    behind: Arc<TempDir>,
}

impl Files {
    /// Mounts one in a temporary folder.
    ///
    /// # Panics
    /// Panics if it can't: it needs `/dev/fuse` and root, or `fusermount3`.
    pub fn mount(habits: Habits) -> Self {
        unmount_left_behind();
        Self::over(Arc::new(tempfile::tempdir().unwrap()), habits)
    }

    /// Mounts the same folder once more, as another host does: it does not see locks held here.
    ///
    /// # Panics
    /// See [`Files::mount`].
    pub fn mount_again(&self, habits: Habits) -> Self {
        Self::over(Arc::clone(&self.behind), habits)
    }

    fn over(behind: Arc<TempDir>, habits: Habits) -> Self {
        let mount = tempfile::tempdir().unwrap();
        let system = System {
            behind: behind.path().to_owned(),
            habits,
            table: Mutex::new(Table::default()),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName(format!("{NAME}{}", std::process::id()))];
        let session = fuser::spawn_mount(system, mount.path(), &config).unwrap_or_else(|cause| {
            panic!("can't mount a file system for tests: {cause} (run them as root, with /dev/fuse, or install fuse3)")
        });
        Self {
            _session: session,
            mount,
            behind,
        }
    }

    /// Returns the path of the mount.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Returns the folder behind the mount.
    pub fn behind(&self) -> &Path {
        self.behind.path()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        unmount(self.mount.path());
    }
}

/// Caching time of its answers: none.
const TTL: Duration = Duration::ZERO;
const GENERATION: Generation = Generation(0);

struct System {
    behind: PathBuf,
    habits: Habits,
    table: Mutex<Table>,
}

impl System {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap()
    }

    fn real(&self, path: &Path) -> PathBuf {
        self.behind.join(path)
    }

    fn ask(&self, deed: Deed, path: &Path, end: u64) -> Answer<()> {
        let call = Call { deed, path, end };
        match (self.habits.refuses)(&call) {
            Some(number) => Err(Errno::from_i32(number)),
            None => Ok(()),
        }
    }

    /// Returns the path of a name in a directory, if the deed is allowed.
    fn child(&self, deed: Deed, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        let path = self.below(parent, name)?;
        self.ask(deed, &path, 0)?;
        Ok(path)
    }

    /// Returns the path of a name in a directory, in its stored spelling.
    fn below(&self, parent: INodeNo, name: &OsStr) -> Answer<PathBuf> {
        let directory = self.table().path(parent)?;
        if (self.habits.folds_names)(&directory) {
            for found in fs::read_dir(self.real(&directory))? {
                let found = found?.file_name();
                if folded(&found) == folded(name) {
                    return Ok(directory.join(found));
                }
            }
        }
        Ok(directory.join(name))
    }

    fn attributes(&self, inode: INodeNo, metadata: &Metadata) -> FileAttr {
        let (mut seconds, mut nanos) = (metadata.mtime(), metadata.mtime_nsec());
        if self.habits.step_s > 0 {
            (seconds, nanos) = (
                seconds - seconds.rem_euclid(self.habits.step_s.cast_signed()),
                0,
            );
        }
        let since = Duration::new(seconds.unsigned_abs(), u32::try_from(nanos).unwrap());
        let time = if seconds < 0 {
            UNIX_EPOCH - since
        } else {
            UNIX_EPOCH + since
        };
        let kind = FileType::from_std(metadata.file_type()).unwrap();
        let perm = if self.habits.fixed_modes && kind == FileType::Directory {
            0o755
        } else if self.habits.fixed_modes && kind == FileType::RegularFile {
            0o644
        } else {
            u16::try_from(metadata.mode() & 0o7777).unwrap()
        };
        FileAttr {
            ino: inode,
            size: metadata.len(),
            blocks: metadata.blocks(),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: u32::try_from(metadata.nlink()).unwrap(),
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn entry(&self, path: &Path) -> Answer<FileAttr> {
        let metadata = fs::symlink_metadata(self.real(path))?;
        Ok(self.attributes(self.table().inode(path), &metadata))
    }

    fn open_file(&self, deed: Deed, path: &Path, options: &fs::OpenOptions) -> Answer<FileHandle> {
        self.ask(deed, path, 0)?;
        let file = options.open(self.real(path))?;
        Ok(self.table().keep(file, path))
    }

    fn opened(&self, deed: Deed, handle: FileHandle, end: Option<u64>) -> Answer<Arc<File>> {
        let (file, path) = self.table().file(handle)?;
        let end = match end {
            Some(end) => end,
            None => file.metadata()?.len(),
        };
        self.ask(deed, &path, end)?;
        Ok(file)
    }

    fn set(&self, inode: INodeNo, change: &Change) -> Answer<FileAttr> {
        let path = self.table().path(inode)?;
        let real = self.real(&path);
        if let Some(mode) = change.mode {
            self.ask(Deed::SetMode, &path, 0)?;
            if !self.habits.fixed_modes {
                fs::set_permissions(&real, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
            }
        }
        if let Some(size) = change.size {
            self.ask(Deed::SetSize, &path, size)?;
            File::options().write(true).open(&real)?.set_len(size)?;
        }
        if change.times.is_some() {
            self.ask(Deed::SetTimes, &path, 0)?;
        }
        if let Some(times) = change.times.as_ref().filter(|_| !self.habits.forgets_times) {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::utimensat(CWD, &real, times, flags).map_err(io::Error::from)?;
        }
        Ok(self.attributes(inode, &fs::symlink_metadata(&real)?))
    }
}

/// Answers with the result, or with its error.
macro_rules! answer {
    ($reply:ident, $made:expr, |$value:pat_param| $told:expr) => {
        match $made {
            Ok($value) => $told,
            Err(errno) => $reply.error(errno),
        }
    };
}

impl Filesystem for System {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = || self.entry(&self.child(Deed::Look, parent, name)?);
        answer!(reply, found(), |it| reply.entry(&TTL, &it, GENERATION));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let found = || -> Answer<_> {
            match handle {
                Some(handle) => Ok(self.table().file(handle)?.0.metadata()?),
                None => Ok(fs::symlink_metadata(self.real(&self.table().path(inode)?))?),
            }
        };
        answer!(reply, found(), |it| reply
            .attr(&TTL, &self.attributes(inode, &it)));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let times = change::times(atime, mtime, self.habits.both_times_or_none);
        let change = Change { mode, size, times };
        answer!(reply, self.set(inode, &change), |it| reply.attr(&TTL, &it));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        let target = || -> Answer<_> { Ok(fs::read_link(self.real(&self.table().path(inode)?))?) };
        answer!(reply, target(), |it| reply
            .data(it.as_os_str().as_encoded_bytes()));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = || -> Answer<_> {
            let path = self.child(Deed::MakeDirectory, parent, name)?;
            fs::DirBuilder::new().mode(mode).create(self.real(&path))?;
            self.entry(&path)
        };
        answer!(reply, made(), |it| reply.entry(&TTL, &it, GENERATION));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = || -> Answer<_> {
            let path = self.child(Deed::Remove, parent, name)?;
            self.remove(&path)?;
            self.table().forget(&path);
            Ok(())
        };
        answer!(reply, gone(), |()| reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = || -> Answer<_> {
            let path = self.child(Deed::Remove, parent, name)?;
            fs::remove_dir(self.real(&path))?;
            self.table().forget(&path);
            Ok(())
        };
        answer!(reply, gone(), |()| reply.ok());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = || -> Answer<_> {
            let path = self.child(Deed::MakeLink, parent, name)?;
            symlink(target, self.real(&path))?;
            self.entry(&path)
        };
        answer!(reply, made(), |it| reply.entry(&TTL, &it, GENERATION));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = || -> Answer<_> {
            let from = self.below(parent, name)?;
            let to = self.child(Deed::Rename, new_parent, self.habits.cut(new_name))?;
            fs::rename(self.real(&from), self.real(&to))?;
            self.table().rename(&from, &to);
            Ok(())
        };
        answer!(reply, renamed(), |()| reply.ok());
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let made = || -> Answer<_> {
            let path = self.below(parent, name)?;
            let mut options = File::options();
            options.read(true).write(true).create(true).mode(mode);
            let handle = self.open_file(Deed::Create, &path, &options)?;
            Ok((self.entry(&path)?, handle))
        };
        answer!(reply, made(), |(it, handle)| {
            reply.created(&TTL, &it, GENERATION, handle, FopenFlags::empty());
        });
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = || -> Answer<_> {
            let path = self.table().path(inode)?;
            let writes = flags.0 & (libc::O_WRONLY | libc::O_RDWR) != 0;
            self.open_file(Deed::Open, &path, File::options().read(true).write(writes))
        };
        answer!(reply, opened(), |it| reply.opened(it, FopenFlags::empty()));
    }

    fn read(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        let mut read = || -> Answer<_> {
            let file = self.opened(Deed::Read, handle, Some(offset + u64::from(size)))?;
            Ok(file.read_at(&mut bytes, offset)?)
        };
        answer!(reply, read(), |count| reply.data(&bytes[..count]));
    }

    fn write(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = || -> Answer<_> {
            let file = self.opened(Deed::Write, handle, Some(offset + data.len() as u64))?;
            if self.habits.loses_writes {
                return Ok(file.write_at(&vec![0; data.len()], offset)?);
            }
            Ok(file.write_at(data, offset)?)
        };
        answer!(reply, written(), |count| reply
            .written(u32::try_from(count).unwrap()));
    }

    fn flush(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.opened(Deed::Close, handle, None), |_| reply
            .ok());
    }

    fn release(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.close(handle), |()| reply.ok());
    }

    fn fsync(
        &self,
        _: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.opened(Deed::Sync, handle, None), |_| reply.ok());
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut list = || -> Answer<_> {
            let path = self.table().path(inode)?;
            self.ask(Deed::List, &path, 0)?;
            let mut found: Vec<_> = fs::read_dir(self.real(&path))?.collect::<io::Result<_>>()?;
            found.sort_by_key(fs::DirEntry::file_name);
            for (at, found) in (1..).zip(found).skip(usize::try_from(offset).unwrap()) {
                let kind = FileType::from_std(found.file_type()?).unwrap();
                let name = found.file_name();
                let inode = self.table().inode(&path.join(&name));
                if reply.add(inode, at, kind, &name) {
                    break;
                }
            }
            Ok(())
        };
        answer!(reply, list(), |()| reply.ok());
    }

    fn statfs(&self, _: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        self.habits.tell_space(reply);
    }
}
