//! Lists a directory tree.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, Metadata},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::Path,
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result, is_unfinished, join, posix::Place};
use rustix::{
    fs::{Access, AtFlags, CWD, accessat},
    io::Errno,
};

use super::{Bound, Extra, FileEntry, FileKind, FileList, Root};
use crate::copy::Filter;

/// Lists everything below `root`, sorted by path bytes, so that the same tree always gives the
/// same stream. Directories and symbolic links are kept, links are never followed (but `root` may
/// be one), hard links are files of their own that know each other. Sockets, pipes, devices, what may
/// not be read, and names of unfinished copies of ours are listed as left out. Blocking: two system
/// calls for each file.
///
/// # Errors
/// At [`Locus::Source`]: [`ErrorKind::NotFound`] without `root`, [`ErrorKind::Invalid`] when it is
/// no directory, [`ErrorKind::PermissionDenied`] when `root` can't be listed or is a file that can't be
/// read, so that it is said before anything moves.
pub fn scan(root: &Path) -> Result<FileList> {
    scan_passing(&Root::open(root, false)?, &Filter::default())
}

/// Lists what passes a filter below `root`, and the directories on the way to it. Excluded
/// directories are not read. Otherwise works like [`scan`].
///
/// # Errors
/// Errors of [`scan`].
pub fn scan_passing(root: &Root, filter: &Filter) -> Result<FileList> {
    let mut list = begin(root)?;
    let mut waiting: Vec<usize> = vec![0];
    while let Some(directory) = waiting.pop() {
        let (listed, waits) = (list.files.len(), waiting.len());
        let scanned = scan_directory(root, directory, filter, &mut list, &mut waiting);
        match scanned {
            // One that may not be read is no reason to keep the others.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && directory != 0 => {
                list.files.truncate(listed);
                waiting.truncate(waits);
                list.leave_out(directory);
            }
            scanned => scanned?,
        }
    }
    if filter.is_choosing() {
        keep_ways(&mut list);
    }
    lay_out(root, list)
}

/// Removes directories that lead to no file.
fn keep_ways(list: &mut FileList) {
    let files = list.files.iter();
    let files = files.filter(|file| file.kind != FileKind::Directory);
    let mut ways: BTreeSet<Vec<u8>> = BTreeSet::from([Vec::new()]);
    for file in files {
        let slashes = file.path.iter().enumerate().rev();
        for (end, _) in slashes.filter(|(_, byte)| **byte == b'/') {
            if !ways.insert(file.path[..end].to_vec()) {
                break;
            }
        }
    }
    (list.files).retain(|file| file.kind != FileKind::Directory || ways.contains(&file.path));
}

/// Lists these files below `root`, by the bytes of their paths from there, and the directories on
/// the way to each; nothing else. A file named twice is listed once. Otherwise works like [`scan`]:
/// no link is followed on the way, so everything listed lies below `root`.
///
/// # Errors
/// Errors of [`scan`]. At [`Locus::Source`]: [`ErrorKind::NotFound`] if one of them is missing;
/// [`ErrorKind::Invalid`] for a directory, for a path that is empty, absolute or has `.` or `..` in
/// it, or for one beyond a link.
pub fn scan_files<N: AsRef<[u8]>>(
    root: &Root,
    names: impl IntoIterator<Item = N>,
) -> Result<FileList> {
    let mut list = begin(root)?;
    let mut folders = BTreeSet::from([Vec::new()]);
    for name in names {
        let name = name.as_ref();
        if !is_path_below(name) {
            return Err(refused(&root.shown(name), NO_PATH));
        }
        let name = to_unfinished(name);
        hold(root, name)?;
        list_way(root, name, &mut folders, &mut list)?;
        let (place, metadata) = look_at(root, name)?;
        match kind_at(&place, &metadata, name)? {
            Some(FileKind::Directory) => {
                return Err(refused(
                    place.shown(),
                    "it is a directory, and files were named",
                ));
            }
            kind => {
                let kind = kind.unwrap_or(FileKind::LeftOut);
                let found = entry(name.to_vec(), kind, &metadata, &place.path);
                list.files
                    .push(found.map_err(|cause| failed("look at", place.shown(), cause))?);
            }
        }
    }
    lay_out(root, list)
}

/// Cuts a path behind its first unfinished name, of which nothing is listed.
fn to_unfinished(path: &[u8]) -> &[u8] {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut ends = slashes.map(|(end, _)| end);
    let end = ends.find(|&end| is_unfinished(last_name(&path[..end])));
    &path[..end.unwrap_or(path.len())]
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// Message for a name that can't be a path of a file below a directory.
const NO_PATH: &str = "it is no path of a file below its directory";

/// Returns whether these bytes can be the path of a file from a directory above it.
#[must_use]
pub fn is_path_below(path: &[u8]) -> bool {
    let is_plain = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && !name.contains(&0);
    path.split(|&byte| byte == b'/').all(is_plain)
}

/// Lists the directories on the way to a file, those that are not listed yet.
fn list_way(
    root: &Root,
    name: &[u8],
    folders: &mut BTreeSet<Vec<u8>>,
    list: &mut FileList,
) -> Result<()> {
    let slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let above: Vec<&[u8]> = slashes.map(|(end, _)| &name[..end]).collect();
    // The nearest is there already for most.
    if above.last().is_none_or(|last| folders.contains(*last)) {
        return Ok(());
    }
    for folder in above {
        if folders.contains(folder) {
            continue;
        }
        let (place, metadata) = look_at(root, folder)?;
        if !metadata.is_dir() {
            return Err(refused(
                place.shown(),
                "it is no directory, and a file below it was named",
            ));
        }
        folders.insert(folder.to_vec());
        let found = entry(folder.to_vec(), FileKind::Directory, &metadata, &place.path);
        list.files
            .push(found.map_err(|cause| failed("look at", place.shown(), cause))?);
    }
    Ok(())
}

fn refused(place: &Path, why: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "list", place.display().to_string())
        .at(Locus::Source)
        .cause(why)
}

/// Returns what lies at a path below the root, with no link on the way.
fn look_at(root: &Root, path: &[u8]) -> Result<(Place, Metadata)> {
    let shown = root.shown(path);
    let place = match root.place(path) {
        Err(cause) if Errno::from_io_error(&cause) == Some(Errno::LOOP) => {
            return Err(refused(&shown, "a link is on the way to it"));
        }
        place => place.map_err(|cause| failed("look at", &shown, cause))?,
    };
    let metadata = fs::symlink_metadata(&place.path);
    let metadata = metadata.map_err(|cause| failed("look at", &shown, cause))?;
    Ok((place, metadata))
}

/// Returns a list with its root alone.
fn begin(root: &Root) -> Result<FileList> {
    let mut list = FileList::default();
    let place = root.directory(b"");
    let top = root.metadata()?;
    let top = place.and_then(|place| entry(Vec::new(), FileKind::Directory, &top, &place.path));
    list.files
        .push(top.map_err(|cause| failed("look at", root.path(), cause))?);
    Ok(list)
}

/// Sorts all entries and lays them out in one stream of bytes.
fn lay_out(root: &Root, mut list: FileList) -> Result<FileList> {
    list.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    list.files.dedup_by(|a, b| a.path == b.path);
    join_names(&mut list);
    for file in &mut list.files {
        file.offset = list.bytes;
        list.bytes = list
            .bytes
            .checked_add(file.size)
            .ok_or_else(|| too_much(root, "its files have more than 2^64 bytes"))?;
    }
    Ok(list)
}

/// Joins the names of one file: until now they hold the device that it lies on.
fn join_names(list: &mut FileList) {
    let mut firsts: HashMap<(usize, u64), usize> = HashMap::new();
    for (place, file) in list.files.iter_mut().enumerate() {
        let Some(extra) = &mut file.extra else {
            continue;
        };
        if let Some(device) = extra.same_as.take() {
            let first = *firsts.entry((device, file.inode)).or_insert(place);
            extra.same_as = (first != place).then_some(first);
        }
        if **extra == Extra::default() {
            file.extra = None;
        }
    }
}

/// Lists the directory at that place in the list. Its directories wait to be listed.
fn scan_directory(
    root: &Root,
    place: usize,
    filter: &Filter,
    list: &mut FileList,
    waiting: &mut Vec<usize>,
) -> Result<()> {
    let directory = list.files[place].path.clone();
    let directory = directory.as_slice();
    let full = root.shown(directory);
    let folder = root.directory(directory);
    let folder = folder.map_err(|cause| failed("list", &full, cause));
    // Its entries are reached through it: it stays open.
    let Some(folder) = unless_gone(folder, directory)? else {
        return Ok(());
    };
    let items = fs::read_dir(&folder.path).map_err(|cause| failed("list", &full, cause));
    let Some(items) = unless_gone(items, directory)? else {
        return Ok(());
    };
    for item in items {
        let item = item.map_err(|cause| failed("list", &full, cause))?;
        let path = join(directory, item.file_name().as_bytes());
        let metadata = item.metadata();
        let metadata = metadata.map_err(|cause| failed("look at", &root.shown(&path), cause));
        let Some(metadata) = unless_gone(metadata, &path)? else {
            continue;
        };
        let passes = match metadata.is_dir() {
            true => filter.passes_directory(&path),
            false => filter.passes_file(&path),
        };
        if !passes {
            continue;
        }
        let place = Place::plain(item.path()).called(root.shown(&path));
        let kind = match kind_at(&place, &metadata, &path) {
            // One that may not be read is no reason to keep the others.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && metadata.is_file() => {
                Some(None)
            }
            kind => unless_gone(kind, &path)?,
        };
        let kind = match kind {
            None => continue,
            // In the list it is missed where the rest is.
            Some(kind) => kind.unwrap_or(FileKind::LeftOut),
        };
        hold(root, &path)?;
        let is_directory = kind == FileKind::Directory;
        let found = entry(path.clone(), kind, &metadata, &place.path);
        let found = found.map_err(|cause| failed("look at", place.shown(), cause));
        let Some(found) = unless_gone(found, &path)? else {
            continue;
        };
        if is_directory {
            waiting.push(list.files.len());
        }
        list.files.push(found);
    }
    Ok(())
}

/// Returns `None` for an entry that vanished while its directory was listed, as if it had vanished
/// before. The root may not vanish so.
fn unless_gone<T>(found: Result<T>, path: &[u8]) -> Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_empty() => Ok(None),
        found => found.map(Some),
    }
}

/// Returns the kind of what lies at a place and has this path, if a dataset can contain it: nothing
/// with an unfinished name, which another process may still write.
fn kind_at(place: &Place, metadata: &Metadata, path: &[u8]) -> Result<Option<FileKind>> {
    match is_unfinished(last_name(path)) {
        true => Ok(None),
        false => kind_of(place, metadata),
    }
}

/// Returns the kind of what lies at a place, if a dataset can contain it.
fn kind_of(place: &Place, metadata: &Metadata) -> Result<Option<FileKind>> {
    Ok(if metadata.is_dir() {
        Some(FileKind::Directory)
    } else if metadata.is_symlink() {
        let target = fs::read_link(&place.path);
        let target = target.map_err(|cause| failed("read", place.shown(), cause))?;
        Some(FileKind::Symlink {
            target: target.into_os_string().into_vec(),
        })
    } else if metadata.is_file() {
        // Asks as the later reader: a set-user-ID program and a service that acts for somebody are
        // two users.
        let may = accessat(CWD, &place.path, Access::READ_OK, AtFlags::EACCESS);
        match may {
            // If the kernel can't tell, the read will.
            Ok(()) | Err(Errno::NOSYS) => {}
            Err(cause) => return Err(failed("read", place.shown(), cause.into())),
        }
        Some(FileKind::Regular)
    } else {
        None
    })
}

/// Returns when anything about a file changed last, for [`FileEntry::changed_ns`].
#[must_use]
pub fn changed_ns(metadata: &Metadata) -> i64 {
    let seconds = metadata.ctime().saturating_mul(1_000_000_000);
    seconds.saturating_add(metadata.ctime_nsec())
}

/// Time after which a change of a file has other times than the change before, once a file system's
/// clock has moved on: one span for nanoseconds and one for seconds, of which some file systems
/// keep every other.
const FINE_STEP_NS: i64 = 20_000_000;
const COARSE_STEP_NS: i64 = 2_000_000_000;

impl FileList {
    /// Returns the moment, in nanoseconds since 1970 by the file system's clock, from which a
    /// change of any file shows in its times. An earlier change may get the listed times.
    #[must_use]
    pub fn settled_ns(&self) -> i64 {
        let regular = self.files.iter();
        let regular = regular.filter(|file| file.kind == FileKind::Regular);
        let settled = regular.map(|file| {
            let step = match file.changed_ns % 1_000_000_000 {
                0 => COARSE_STEP_NS,
                _ => FINE_STEP_NS,
            };
            file.changed_ns.saturating_add(step)
        });
        settled.max().unwrap_or(0)
    }
}

/// Returns the entry of what lies at a place.
fn entry(
    path: Vec<u8>,
    kind: FileKind,
    metadata: &Metadata,
    place: &Path,
) -> std::io::Result<FileEntry> {
    Ok(FileEntry {
        extra: Extra::of(place, &kind, metadata)?,
        owner: metadata.uid(),
        group: metadata.gid(),
        path,
        size: if kind == FileKind::Regular {
            metadata.size()
        } else {
            0
        },
        kind,
        mode: metadata.mode() & 0o7777,
        mtime_s: metadata.mtime(),
        mtime_ns: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        inode: metadata.ino(),
        changed_ns: changed_ns(metadata),
        offset: 0,
    })
}

fn failed(operation: &'static str, path: &Path, cause: std::io::Error) -> Error {
    Error::io(operation, path.display().to_string(), cause).at(Locus::Source)
}

/// Counts an entry for the list.
fn hold(root: &Root, path: &[u8]) -> Result<()> {
    let held = root.bounds.hold(path.len());
    held.map_err(|bound| match bound {
        Bound::Unwanted => {
            let shown = root.shown(b"").display().to_string();
            Error::new(ErrorKind::Cancelled, "list", shown).at(Locus::Source)
        }
        Bound::Entries | Bound::Names | Bound::Memory => too_much(root, &bound.to_string()),
        Bound::Others => {
            let shown = root.shown(b"").display().to_string();
            let error = Error::new(ErrorKind::Busy, "list", shown).at(Locus::Source);
            error.cause(bound.to_string()).hint("submit it again later")
        }
    })
}

fn too_much(root: &Root, why: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "list",
        root.shown(b"").display().to_string(),
    )
    .at(Locus::Source)
    .cause(why.to_owned())
    .hint("offload its subdirectories one by one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::{ffi::OsStringExt, fs::symlink, net::UnixListener};

    #[test]
    fn a_list_is_settled_once_a_change_of_its_files_would_show() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "old").unwrap();
        let mut list = scan(root.path()).unwrap();
        let settled = list.settled_ns();
        assert!(list.files.iter().all(|file| file.changed_ns < settled));
        let file = list.files.iter_mut().find(|file| file.size > 0).unwrap();
        file.changed_ns = 7_000_000_000;
        // Whole seconds may be every other.
        assert_eq!(list.settled_ns(), 9_000_000_000);
        list.files.retain(|file| file.kind != FileKind::Regular);
        assert_eq!(list.settled_ns(), 0);
    }

    #[test]
    fn a_tree_is_listed_in_byte_order_with_everything_in_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| {
            root.path()
                .join(std::ffi::OsString::from_vec(name.to_vec()))
        };
        fs::create_dir(at(b"a")).unwrap();
        fs::create_dir(at(b"empty")).unwrap();
        fs::write(at(b"a/inner"), b"12345").unwrap();
        fs::write(at(b"a.txt"), b"123").unwrap();
        fs::write(at(b"new\nline\xff"), b"").unwrap();
        symlink("nowhere", at(b"link")).unwrap();
        let _socket = UnixListener::bind(at(b"socket")).unwrap();
        let list = scan(root.path()).unwrap();
        let paths: Vec<&[u8]> = list.files.iter().map(|file| file.path.as_slice()).collect();
        let expected: [&[u8]; 8] = [
            b"",
            b"a",
            b"a.txt",
            b"a/inner",
            b"empty",
            b"link",
            b"new\nline\xff",
            b"socket",
        ];
        assert_eq!(paths, expected);
        assert_eq!((list.bytes, list.files[3].offset), (8, 3));
        assert_eq!(
            list.files[5].kind,
            FileKind::Symlink {
                target: b"nowhere".to_vec()
            }
        );
        let left_out = list.left_out().map(|file| &file.path[..]);
        assert_eq!(left_out.collect::<Vec<_>>(), [b"socket"]);
        assert_eq!(list, scan(root.path()).unwrap());
    }

    #[test]
    fn what_copies_left_unfinished_is_left_out_and_not_looked_into() {
        let root = tempfile::tempdir().unwrap();
        let draft = "a/.b.posthaste-0123456789ab";
        let pull = ".posthaste-pull-0123456789abcdef";
        for folder in [draft, pull] {
            fs::create_dir_all(root.path().join(folder).join("deep")).unwrap();
            fs::write(root.path().join(folder).join("deep/half"), "12").unwrap();
        }
        let partial = "a/.c.0123456789ab.posthaste-partial";
        for name in [partial, "a/c"] {
            fs::write(root.path().join(name), "1").unwrap();
        }
        let left_out = |list: &FileList| {
            let left_out = list.left_out().map(FileEntry::shown);
            left_out.collect::<Vec<String>>()
        };
        let list = scan(root.path()).unwrap();
        assert_eq!(left_out(&list), [pull, draft, partial]);
        assert_eq!((list.bytes, list.files.len()), (1, 6));
        let named = [
            format!("{draft}/deep/half"),
            format!("{draft}/deep"),
            partial.to_owned(),
            "a/c".to_owned(),
        ];
        let list = scan_files(&Root::open(root.path(), true).unwrap(), &named).unwrap();
        assert_eq!(left_out(&list), [draft, partial]);
        assert_eq!((list.bytes, list.files.len()), (1, 5));
    }

    #[test]
    fn what_a_filter_leaves_out_is_not_looked_into() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["logs", "out/deep", "empty"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for name in ["logs/a.nc", "out/deep/b.nc", "out/c.log", "d.nc"] {
            fs::write(root.path().join(name), b"12").unwrap();
        }
        let listed = |include: &[&str], exclude: &[&str]| {
            let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
            let filter = Filter::new(&owned(include), &owned(exclude)).unwrap();
            let list = scan_passing(&Root::open(root.path(), true).unwrap(), &filter).unwrap();
            assert_eq!(list.bytes, 2 * list.regular_files() as u64);
            let paths = list
                .files
                .into_iter()
                .map(|file| String::from_utf8(file.path).unwrap());
            paths.collect::<Vec<String>>()
        };
        let all = listed(&[], &["/logs/**", "*.log"]);
        assert_eq!(
            all,
            ["", "d.nc", "empty", "out", "out/deep", "out/deep/b.nc"]
        );
        assert_eq!(
            listed(&["/out/**"], &["*.log"]),
            ["", "out", "out/deep", "out/deep/b.nc"]
        );
        assert_eq!(listed(&["*.tif"], &[]), [""]);
    }

    #[test]
    fn named_files_are_all_that_is_listed_of_a_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        for (name, content) in [("b", "123"), ("a", "12"), ("other", "1")] {
            fs::write(root.path().join(name), content).unwrap();
        }
        let open = || Root::open(root.path(), true).unwrap();
        let named = |names: &[&str]| scan_files(&open(), names);
        let list = named(&["b", "a"]).unwrap();
        let paths: Vec<_> = list.files.iter().map(|file| file.path.clone()).collect();
        assert_eq!(paths, [b"".to_vec(), b"a".to_vec(), b"b".to_vec()]);
        assert_eq!((list.bytes, list.files[2].offset), (5, 2));
        let kind = |names: &[&str]| named(names).unwrap_err().kind();
        assert_eq!(kind(&["a", "gone"]), ErrorKind::NotFound);
        assert_eq!(kind(&["folder"]), ErrorKind::Invalid);
    }

    #[test]
    fn named_files_bring_the_directories_on_their_way_and_follow_no_link() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("secret"), "1").unwrap();
        symlink(elsewhere.path(), root.path().join("out")).unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::create_dir(root.path().join("a/other")).unwrap();
        for name in ["a/b/1", "a/b/2", "a/b.x", "top"] {
            fs::write(root.path().join(name), "12").unwrap();
        }
        let open = || Root::open(root.path(), true).unwrap();
        let list = scan_files(&open(), ["top", "a/b/2", "a/b.x", "a/b/1", "top", "out"]);
        let list = list.unwrap();
        let paths: Vec<_> = list.files.iter().map(|file| file.path.clone()).collect();
        let shown: Vec<_> = paths
            .iter()
            .map(|path| String::from_utf8_lossy(path))
            .collect();
        assert_eq!(
            shown,
            ["", "a", "a/b", "a/b.x", "a/b/1", "a/b/2", "out", "top"]
        );
        assert_eq!(list.bytes, 8);
        let kind = |name: &str| scan_files(&open(), [name]).unwrap_err().kind();
        for name in [
            "out/secret",
            "a/b/1/x",
            "",
            "/etc/passwd",
            "a//b",
            "a/../top",
            "./top",
            "a/b/",
        ] {
            assert_eq!(kind(name), ErrorKind::Invalid, "{name}");
        }
        assert_eq!(kind("a/none/1"), ErrorKind::NotFound);
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, b"x").unwrap();
        assert_eq!(scan(&file).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(
            scan(&root.path().join("gone")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
