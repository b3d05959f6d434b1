//! Removes a source from scratch: only files in the sealed list, only while unchanged, and only
//! after the depots hold all that is needed to restore it.

mod caught;
mod directories;
mod own;
mod sealed;
mod staying;

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use posthaste_core::contract::{Fault, Input};
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result,
    posix::{HeldLease, Lease, Place, lies_in_memory},
};
use posthaste_engine::{
    dataset::{FileEntry, FileKind, FileList, Root},
    sealed::Sealed,
};
use posthaste_journal::RequestRecord;
use posthaste_types::{RequestId, Timestamp};

use tokio::sync::mpsc;

use crate::{depots::Depots, driver::Arrival, store::Store};
use directories::remove_directory;
use sealed::{is_as_sealed, is_older, is_only_moved, is_touched};
use staying::Staying;

/// Stores the manifest at depots, then removes the source.
///
/// # Errors
/// [`ErrorKind::Unreachable`] if too few depots stored the manifest, and nothing was removed;
/// [`ErrorKind::Changed`] if a file changed, which then stays.
pub(crate) async fn release(
    request: RequestId,
    sealed: &Arc<Sealed>,
    store: &Arc<Store>,
    depots: &Depots,
) -> Result<()> {
    store_manifest(request, sealed, store, depots).await?;
    let sealed = Arc::clone(sealed);
    let record = tokio::task::block_in_place(|| store.request(request))?;
    // If files of a directory were named, only they are to go.
    let keeps_root = record.is_of_some();
    let backup = tokio::task::block_in_place(|| store.backup_of(request));
    let actor = sealed.seal().actor.clone();
    // The list includes later omissions: omitted files stay.
    let list = tokio::task::block_in_place(|| store.list(request))?;
    let released = actor.blocking(move || {
        read_again(&sealed, &list).map_err(all_stays)?;
        remove(&sealed.seal().root, &list, keeps_root, backup)
    });
    released.await
}

/// Compares a source that lies in memory with what was sent: stores through a mapping don't show in
/// the times of its files, as they do on a disk. One that nobody has mapped now can't change
/// unnoticed from then on.
///
/// # Errors
/// [`ErrorKind::Busy`] if somebody has a file open for writing, or mapped so; those of
/// [`Sealed::compare`].
fn read_again(sealed: &Sealed, list: &FileList) -> Result<()> {
    let root = &sealed.seal().root;
    if !lies_in_memory(root) {
        return Ok(());
    }
    let directory = match Root::of(root, list) {
        // Everything has gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let regular = list.files.iter();
    for entry in regular.filter(|entry| entry.kind == FileKind::Regular) {
        let shown = entry.below(root).display().to_string();
        let place = place(&directory, entry, &shown)?;
        if place.is_some_and(|place| matches!(Lease::take(&place.path), Lease::InUse)) {
            return Err(in_use(shown));
        }
    }
    sealed.compare()
}

/// Says that a file keeps its whole source.
fn all_stays(error: Error) -> Error {
    let why = error.cause_text();
    error.cause(format!(
        "{why}; it lies in memory, where times don't show each change, so all of its source stays"
    ))
}

/// Returns the fault of a release as the mind needs it: where a read would fail at the source, a
/// file can't be removed, for good or for now.
pub(crate) fn fault_of(error: &Error, fault: Fault) -> Fault {
    if error.locus() != Locus::Source {
        return fault;
    }
    if fault == Fault::SourceUnreadable {
        return Fault::Unremovable;
    }
    match matches!(fault, Fault::SourceStalled | Fault::Busy | Fault::Other) {
        true => Fault::SourceBusy,
        false => fault,
    }
}

/// Tells the mind which file stays, as far as it is one that keeps the source.
pub(crate) async fn tell_kept(inputs: &mpsc::Sender<Arrival>, request: RequestId, error: &Error) {
    if error.locus() == Locus::Source {
        let what = error.to_string();
        let told = Input::SourceFileKept { request, what };
        let _ = inputs.send(Arrival::bare(told)).await;
    }
}

/// Returns the number of depots that must keep the manifest before the source is removed. Without
/// the manifest the fragments are noise, and the journal may be lost with its host. So one copy has
/// to survive the losses that the code survives.
pub(crate) fn keepers(record: &RequestRecord) -> usize {
    (usize::from(record.code.parity()) + 1).min(record.via.len().max(1))
}

async fn store_manifest(
    request: RequestId,
    sealed: &Sealed,
    store: &Arc<Store>,
    depots: &Depots,
) -> Result<()> {
    let seal = sealed.seal();
    let manifest = tokio::task::block_in_place(|| store.manifest_bytes(request))?;
    let digest = posthaste_engine::stripe::digest_of(&manifest);
    let manifest = bytes::Bytes::from(manifest);
    let mut kept = 0;
    let mut last = None;
    let record = tokio::task::block_in_place(|| store.request(request))?;
    let holders = record.holders();
    for depot in holders.filter_map(|name| depots.of_request(&record, name)) {
        let client = &depot.client;
        match client
            .put_manifest(&seal.dataset, manifest.clone(), digest, seal.expires)
            .await
        {
            Ok(()) => kept += 1,
            Err(error) => last = Some(error),
        }
    }
    if kept >= keepers(&record) {
        return Ok(());
    }
    Err(last.unwrap_or_else(|| {
        Error::new(
            ErrorKind::Unreachable,
            "store",
            format!("the manifest of {}", request),
        )
    }))
}

/// Removes everything in the list that is unchanged and that nobody has open for writing. For a
/// request from a backup, only files older than the backup are removed.
///
/// # Errors
/// [`ErrorKind::Changed`] if a file changed, which then stays; [`ErrorKind::Busy`] if one is in
/// use; and the operating system's. All that stay are named.
pub(crate) fn remove(
    root: &Path,
    list: &FileList,
    keeps_root: bool,
    backup: Option<Timestamp>,
) -> Result<()> {
    let directory = match Root::of(root, list) {
        // Everything has gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut remover = Remover {
        root,
        directory,
        backup,
        without_leases: BTreeSet::new(),
    };
    let mut staying = Staying::default();
    // Removing one name of a file alters its other names' change time, which is no change of the
    // file: all are compared before the first is removed.
    let mut names: HashMap<u64, Vec<&FileEntry>> = HashMap::new();
    for entry in &list.files {
        let extra = entry.extra.as_deref();
        if extra.is_some_and(|extra| extra.same_as.is_some()) {
            names.entry(entry.inode).or_default();
        }
    }
    for entry in list.files.iter().filter(|entry| is_file(entry)) {
        if let Some(names) = names.get_mut(&entry.inode) {
            names.push(entry);
        }
    }
    let is_to_go = |entry: &&FileEntry| !keeps_root || !entry.path.is_empty();
    let own = own::folders(root, list);
    // Children follow their directory in the list, so the reverse order empties each first.
    for entry in list.files.iter().rev().filter(is_to_go) {
        if own::is_of(&own, &entry.path) {
            if is_file(entry) {
                staying.note(own::stays(remover.shown(entry)));
            }
            continue;
        }
        let of_file = match is_file(entry) {
            true => names.get_mut(&entry.inode).map(std::mem::take),
            false => None,
        };
        let removed = match of_file {
            Some(names) => remover.remove_names(&names),
            None => remover.remove_entry(entry, Judged::Now),
        };
        if let Err(error) = removed {
            staying.note(error);
        }
    }
    staying.told()
}

fn is_file(entry: &FileEntry) -> bool {
    match entry.kind {
        FileKind::Regular | FileKind::Symlink { .. } => true,
        FileKind::Directory | FileKind::LeftOut => false,
    }
}

/// Comparison of a file with its sealed state before its first name was removed.
#[derive(Clone, Copy)]
enum Judged<'l> {
    /// Compared now.
    Now,
    /// Compared before, with this lease: the removed name changed its change time since.
    Before(Option<&'l HeldLease>),
}

/// Removal of what lies below a directory.
struct Remover<'a> {
    root: &'a Path,
    directory: Root,
    backup: Option<Timestamp>,
    /// Devices whose file systems have no leases.
    without_leases: BTreeSet<u64>,
}

impl Remover<'_> {
    fn shown(&self, entry: &FileEntry) -> String {
        entry.below(self.root).display().to_string()
    }

    /// Removes all names of a file if none of them changed and nobody writes to it, and otherwise
    /// none.
    fn remove_names(&mut self, names: &[&FileEntry]) -> Result<()> {
        self.judge_names(names)?;
        let mut lease = None;
        for entry in names {
            if lease.is_none() {
                lease = self.lease(entry)?;
            }
        }
        // Nobody begins to write from here on.
        self.judge_names(names)?;
        if let (Some(first), Some(lease)) = (names.first(), &lease) {
            refuse_disturbed(lease, &self.shown(first))?;
        }
        for entry in names {
            self.remove_entry(entry, Judged::Before(lease.as_ref()))?;
        }
        Ok(())
    }

    fn judge_names(&self, names: &[&FileEntry]) -> Result<()> {
        let mut there = Vec::new();
        for entry in names {
            let shown = self.shown(entry);
            let found = look(&self.directory, entry, &shown)?;
            there.extend(found.map(|(_, found)| (*entry, found, shown)));
        }
        let is_one_gone = there.len() < names.len();
        for (entry, found, shown) in there {
            if is_one_gone && is_as_sealed(entry, &found) && is_touched(entry, &found) {
                let why = "another of its names is gone, so nothing tells whether it changed too, and it stays";
                return Err(changed(shown).cause(why));
            }
            judge(entry, &found, &shown, self.backup)?;
        }
        Ok(())
    }

    /// Takes a lease on a file that is as it was sealed; none where there are no leases, or no file.
    fn lease(&mut self, entry: &FileEntry) -> Result<Option<HeldLease>> {
        let shown = self.shown(entry);
        let looked = look(&self.directory, entry, &shown)?;
        let Some((place, found)) = looked.filter(|_| entry.kind == FileKind::Regular) else {
            return Ok(None);
        };
        if self.without_leases.contains(&found.dev()) {
            return Ok(None);
        }
        match Lease::take(&place.path) {
            Lease::Held(held) => {
                let is_it = |of: fs::Metadata| (of.dev(), of.ino()) == (found.dev(), found.ino());
                match held.metadata().is_ok_and(is_it) {
                    true => Ok(Some(held)),
                    false => Err(changed(shown)),
                }
            }
            Lease::InUse => Err(in_use(shown)),
            Lease::Unknown => Ok(None),
            Lease::Unsupported => {
                self.without_leases.insert(found.dev());
                Ok(None)
            }
        }
    }

    fn remove_entry(&mut self, entry: &FileEntry, judged: Judged<'_>) -> Result<()> {
        let shown = self.shown(entry);
        if entry.path.is_empty() {
            return remove_directory(self.root, &shown);
        }
        match &entry.kind {
            FileKind::Directory => match place(&self.directory, entry, &shown)? {
                Some(place) => remove_directory(&place.path, &shown),
                None => Ok(()),
            },
            // No other copy exists.
            FileKind::LeftOut => Ok(()),
            FileKind::Regular | FileKind::Symlink { .. } => self.remove_file(entry, &shown, judged),
        }
    }

    fn remove_file(&mut self, entry: &FileEntry, shown: &str, judged: Judged<'_>) -> Result<()> {
        let judge = |found: &fs::Metadata, backup| match judged {
            Judged::Now => judge(entry, found, shown, backup),
            Judged::Before(_) if is_as_sealed(entry, found) => Ok(()),
            Judged::Before(_) => Err(changed(shown)),
        };
        let failed = |cause| Error::io("remove", shown, cause).at(Locus::Source);
        // A service that was killed in the middle of this left it beside its name.
        if let Some(place) = place(&self.directory, entry, shown)? {
            if matches!(judged, Judged::Now) && self.remove_left(entry, &place, shown)? {
                return Ok(());
            }
            let is_sealed = |found: &fs::Metadata| is_as_sealed(entry, found);
            caught::put_back(&place.path, is_sealed).map_err(failed)?;
        }
        let Some((place, found)) = look(&self.directory, entry, shown)? else {
            return Ok(());
        };
        judge(&found, self.backup)?;
        let lease = match judged {
            Judged::Now => self.lease(entry)?,
            Judged::Before(_) => None,
        };
        if let Some(lease) = &lease {
            // Nobody begins to write from here on.
            let Some((_, found)) = look(&self.directory, entry, shown)? else {
                return Ok(());
            };
            judge(&found, self.backup)?;
            refuse_disturbed(lease, shown)?;
        }
        let held = match judged {
            Judged::Now => lease.as_ref(),
            Judged::Before(held) => held,
        };
        // Who opened it just before it was moved aside waits to write to it; nobody else finds it.
        let is_it = |found: &fs::Metadata| {
            is_as_sealed(entry, found) && held.is_none_or(HeldLease::is_undisturbed)
        };
        if caught::remove(&place.path, is_it).map_err(failed)? {
            return Ok(());
        }
        Err(self.why_it_stays(entry, shown))
    }

    /// Removes a file that a killed service moved aside, if it is as it was sealed and nobody writes
    /// to it. Returns whether it did.
    fn remove_left(&self, entry: &FileEntry, place: &Place, shown: &str) -> Result<bool> {
        let Some(aside) = caught::left_aside(&place.path) else {
            return Ok(false);
        };
        let is_it = || {
            let found = fs::symlink_metadata(&aside);
            found.is_ok_and(|found| is_only_moved(entry, &found))
        };
        // Its change time is ours, so nothing tells whether it is older than a backup.
        if self.backup.is_some() || !is_it() {
            return Ok(false);
        }
        let lease = Lease::take(&aside);
        let is_held = match &lease {
            Lease::Held(held) => is_it() && held.is_undisturbed(),
            Lease::InUse => false,
            Lease::Unknown | Lease::Unsupported => true,
        };
        if is_held {
            let failed = |cause| Error::io("remove", shown, cause).at(Locus::Source);
            return fs::remove_file(&aside).map(|()| true).map_err(failed);
        }
        caught::put_back(&place.path, |_| false)
            .map_err(|cause| Error::io("put back", shown, cause).at(Locus::Source))?;
        Err(self.why_it_stays(entry, shown))
    }

    /// Returns why a file that was put back stays. If it is as it was sealed, somebody waits to write
    /// to it: the next attempt may remove it.
    fn why_it_stays(&self, entry: &FileEntry, shown: &str) -> Error {
        match look(&self.directory, entry, shown) {
            Ok(Some((_, found))) if is_only_moved(entry, &found) => {
                caught::note_back(&found);
                in_use(shown)
            }
            Ok(_) => changed(shown),
            Err(error) => error,
        }
    }
}

/// Refuses to remove a file that somebody waits to write to.
fn refuse_disturbed(lease: &HeldLease, shown: &str) -> Result<()> {
    match lease.is_undisturbed() {
        true => Ok(()),
        false => Err(in_use(shown)),
    }
}

/// Returns the error that a file stays because somebody may write to it.
pub(crate) fn in_use(shown: impl Into<String>) -> Error {
    Error::new(ErrorKind::Busy, "release", shown)
        .at(Locus::Source)
        .cause("another process has it open for writing, so it stays for now")
}

/// Returns the place of an entry; none if its directory is gone.
fn place(directory: &Root, entry: &FileEntry, shown: &str) -> Result<Option<Place>> {
    match directory.place(&entry.path) {
        Ok(place) => Ok(Some(place)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::io("look at", shown, cause).at(Locus::Source)),
    }
}

/// Returns the entry's metadata; none if it is gone.
fn look(directory: &Root, entry: &FileEntry, shown: &str) -> Result<Option<(Place, fs::Metadata)>> {
    let Some(place) = place(directory, entry, shown)? else {
        return Ok(None);
    };
    match fs::symlink_metadata(&place.path) {
        Ok(found) => Ok(Some((place, found))),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::io("look at", shown, cause).at(Locus::Source)),
    }
}

/// Compares a file with its sealed state, and with a backup's time.
fn judge(
    entry: &FileEntry,
    found: &fs::Metadata,
    shown: &str,
    backup: Option<Timestamp>,
) -> Result<()> {
    let is_older = backup.is_none_or(|made| is_older(found, made));
    let is_touched = is_touched(entry, found) && !caught::is_only_back(found);
    match is_as_sealed(entry, found) && !is_touched && is_older {
        true => Ok(()),
        false => Err(changed(shown)),
    }
}

fn changed(shown: impl Into<String>) -> Error {
    Error::new(ErrorKind::Changed, "release", shown)
        .at(Locus::Source)
        .cause("it changed after the dataset was sealed, so it stays")
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{BufRead, BufReader, Write},
        os::unix::fs::PermissionsExt,
        process::{Child, Command, Stdio},
    };

    use posthaste_endpoint::Actor;
    use posthaste_engine::{
        dataset::{DatasetId, changed_ns, scan},
        sealed::{Encryption, Seal},
    };
    use posthaste_types::{Bytes, ChunkIndex, Code, FragmentIndex};

    use super::*;

    #[test]
    fn folders_of_a_service_and_of_a_relay_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("home");
        let own = [
            "state/journal.db",
            "state/token",
            "state/secrets/ash",
            "relay/lock",
            "relay/identity/secret",
        ];
        for name in own.iter().chain(&["run/out", "relayed"]) {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "content").unwrap();
        }
        let list = scan(&root).unwrap();
        let error = remove(&root, &list, false, None).unwrap_err().to_string();
        assert!(
            error.contains("of posthaste itself") && error.contains("4 more stay"),
            "{error}"
        );
        assert!(own.iter().all(|name| root.join(name).exists()));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2);
    }

    #[test]
    fn what_changed_in_any_way_stays_and_all_names_of_one_that_did_not_go() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        fs::create_dir(&root).unwrap();
        let path = |name: &str| root.join(name);
        for name in ["bytes", "mode", "one"] {
            fs::write(path(name), name).unwrap();
        }
        fs::hard_link(path("one"), path("another")).unwrap();
        for name in ["two", "half"] {
            fs::write(path(name), name).unwrap();
            fs::hard_link(path(name), path(&format!("{name}-too"))).unwrap();
        }
        let list = scan(&root).unwrap();
        let modified = fs::metadata(path("bytes")).unwrap().modified().unwrap();
        // Until the file system's clock advances, a change looks like the one before.
        let is_told = |name: &str| {
            let listed = list.files.iter().find(|file| file.path == name.as_bytes());
            listed.unwrap().changed_ns != changed_ns(&fs::metadata(path(name)).unwrap())
        };
        let two = File::options().write(true).open(path("two")).unwrap();
        let before = two.metadata().unwrap().modified().unwrap();
        fs::remove_file(path("half")).unwrap();
        while !["bytes", "mode", "two", "half-too"]
            .iter()
            .all(|name| is_told(name))
        {
            fs::write(path("bytes"), "BYTES").unwrap();
            fs::write(path("two"), "TWO").unwrap();
            two.set_modified(before).unwrap();
            fs::hard_link(path("half-too"), path("half")).unwrap();
            fs::remove_file(path("half")).unwrap();
            fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let bytes = File::options().write(true).open(path("bytes")).unwrap();
        bytes.set_modified(modified).unwrap();
        let error = remove(&root, &list, false, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        let said = error.to_string();
        for name in ["bytes", "half-too", "mode", "two"] {
            assert!(
                said.contains(path(name).to_str().unwrap()),
                "{name}: {said}"
            );
        }
        assert!(said.contains("3 more stay: "), "{said}");
        let mut left: Vec<_> = fs::read_dir(&root)
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["bytes", "half-too", "mode", "two", "two-too"]);
    }

    #[test]
    fn what_a_killed_service_moved_aside_goes_at_the_next_attempt_unless_it_changed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        fs::create_dir(&root).unwrap();
        let path = |name: &str| root.join(name);
        let aside = |name: &str| {
            let name = posthaste_endpoint::leaving_name(name.as_bytes());
            root.join(String::from_utf8(name).unwrap())
        };
        let names = ["bytes", "link", "mode", "same"];
        for name in ["bytes", "mode", "same"] {
            fs::write(path(name), name).unwrap();
        }
        std::os::unix::fs::symlink("same", path("link")).unwrap();
        let list = scan(&root).unwrap();
        for name in names {
            fs::rename(path(name), aside(name)).unwrap();
        }
        fs::write(aside("bytes"), "longer than before").unwrap();
        fs::set_permissions(aside("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        let error = remove(&root, &list, false, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        let left: BTreeSet<_> = fs::read_dir(&root)
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(left, ["bytes", "mode"].map(str::to_owned).into());
    }

    #[test]
    fn what_was_put_back_for_one_who_waits_to_write_is_in_use_and_goes_later() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        fs::create_dir(&root).unwrap();
        let path = root.join("file");
        fs::write(&path, "contents").unwrap();
        let list = scan(&root).unwrap();
        let entry = list.files.iter().find(|entry| is_file(entry)).unwrap();
        let there = || fs::symlink_metadata(&path).unwrap();
        let aside = root.join("aside");
        while changed_ns(&there()) == entry.changed_ns {
            fs::rename(&path, &aside).unwrap();
            fs::rename(&aside, &path).unwrap();
        }
        let why = || {
            let directory = Root::of(&root, &list).unwrap();
            let remover = Remover {
                root: &root,
                directory,
                backup: None,
                without_leases: BTreeSet::new(),
            };
            remover.why_it_stays(entry, "file").kind()
        };
        // Nobody said that this was ours.
        assert!(judge(entry, &there(), "file", None).is_err());
        assert_eq!(why(), ErrorKind::Busy);
        judge(entry, &there(), "file", None).unwrap();
        fs::write(&path, "CONTENTS and more").unwrap();
        assert_eq!(why(), ErrorKind::Changed);
        assert!(remove(&root, &list, false, None).is_err());
    }

    /// Starts a program that tells once it has done what it was started for. It ends with its input.
    fn beside(program: &str, path: &Path) -> Child {
        let mut child = Command::new("python3")
            .args(["-c", program])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.as_mut().unwrap());
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        child
    }

    #[test]
    fn a_file_that_another_process_writes_or_has_mapped_stays_until_it_does_no_more() {
        const OPENS: &str = "import sys\n\
            file = open(sys.argv[1], 'r+b')\n\
            print('ready', flush=True)\n\
            sys.stdin.read()\n";
        // Not with Python's own, which keeps a descriptor.
        const MAPS: &str = "import ctypes, os, sys\n\
            file = os.open(sys.argv[1], os.O_RDWR)\n\
            libc = ctypes.CDLL(None)\n\
            libc.mmap.restype = ctypes.c_void_p\n\
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
            assert libc.mmap(None, 8, 3, 1, file, 0) not in (None, 2**64 - 1)\n\
            os.close(file)\n\
            print('ready', flush=True)\n\
            sys.stdin.read()\n";
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("run");
        fs::create_dir(&root).unwrap();
        let path = |name: &str| root.join(name);
        for name in ["mapped", "of-two", "open", "rest"] {
            fs::write(path(name), "contents").unwrap();
        }
        fs::hard_link(path("of-two"), path("of-two-too")).unwrap();
        let list = scan(&root).unwrap();
        let names = || {
            let items = fs::read_dir(&root).unwrap();
            let names = items.map(|item| item.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        let mut children = [
            beside(OPENS, &path("open")),
            beside(OPENS, &path("of-two-too")),
            beside(MAPS, &path("mapped")),
        ];
        let error = remove(&root, &list, false, None).unwrap_err();
        assert_eq!(names(), ["mapped", "of-two", "of-two-too", "open"]);
        assert_eq!(fault_of(&error, Fault::SourceStalled), Fault::SourceBusy);
        let said = error.to_string();
        assert!(
            said.contains("another process has it open for writing"),
            "{said}"
        );
        assert!(said.contains("2 more stay: "), "{said}");
        for child in &mut children {
            drop(child.stdin.take());
            assert!(child.wait().unwrap().success());
        }
        remove(&root, &list, false, None).unwrap();
        assert!(!root.exists());
    }

    /// Maps a file, stores to it, and stores once more after a line of its input, until that ends.
    const STORES: &str = "import ctypes, os, sys\n\
        libc = ctypes.CDLL(None)\n\
        libc.mmap.restype = ctypes.c_void_p\n\
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]\n\
        file = os.open(sys.argv[1], os.O_RDWR)\n\
        bytes = (ctypes.c_char * 8).from_address(libc.mmap(None, 8, 3, 1, file, 0))\n\
        os.close(file)\n\
        bytes[0] = b'C'\n\
        print('ready', flush=True)\n\
        sys.stdin.readline()\n\
        bytes[1] = b'O'\n\
        print('stored', flush=True)\n\
        sys.stdin.read()\n";

    fn sealed_of(root: &Path, list: &FileList) -> Arc<Sealed> {
        let seal = Seal {
            dataset: DatasetId::new([1; 16]),
            root: root.to_owned(),
            code: Code::NONE,
            chunk_size: Bytes::mebi(1),
            expires: Timestamp::default(),
            encryption: Encryption::None,
            actor: Actor::oneself(),
        };
        Arc::new(Sealed::new(seal, Arc::new(list.clone()), []))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_lies_in_memory_and_was_stored_to_after_it_was_read_stays() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "contents").unwrap();
        let mut child = beside(STORES, &path);
        let list = scan(folder.path()).unwrap();
        let sealed = sealed_of(folder.path(), &list);
        let (first, whole) = (ChunkIndex::new(0), FragmentIndex::WHOLE);
        let (read, _) = sealed.fragment(first, whole).await.unwrap();
        assert_eq!(read.bytes, b"Contents"[..]);
        let kind = || {
            let error = all_stays(read_again(&sealed, &list).unwrap_err());
            let said = error.to_string();
            assert!(said.contains("so all of its source stays"), "{said}");
            error.kind()
        };
        assert_eq!(kind(), ErrorKind::Busy, "it is mapped");
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.as_mut().unwrap());
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "stored\n");
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert_eq!(fs::read(&path).unwrap(), b"COntents");
        assert_eq!(kind(), ErrorKind::Changed);
        fs::write(&path, "Contents").unwrap();
        let list = scan(folder.path()).unwrap();
        let sealed = sealed_of(folder.path(), &list);
        sealed.fragment(first, whole).await.unwrap();
        read_again(&sealed, &list).unwrap();
    }

    #[test]
    fn what_may_be_removed_later_is_told_before_what_never_can() {
        let error = |kind, name: &str| Error::new(kind, "release", name).at(Locus::Source);
        let mut staying = Staying::default();
        staying.note(error(ErrorKind::PermissionDenied, "/s/0"));
        assert!(!staying.first.as_ref().unwrap().is_temporary());
        staying.note(in_use("/s/1"));
        for file in 2..15 {
            staying.note(error(ErrorKind::Changed, &format!("/s/{file}")));
        }
        let told = staying.told().unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Busy);
        let said = told.to_string();
        assert!(
            said.contains("can't release /s/1: another process"),
            "{said}"
        );
        assert!(said.contains("14 more stay: /s/0, /s/2, "), "{said}");
        assert!(said.ends_with("/s/10 and 4 more"), "{said}");
        let refused = error(ErrorKind::PermissionDenied, "/s/0");
        assert_eq!(
            fault_of(&refused, Fault::SourceUnreadable),
            Fault::Unremovable
        );
    }
}
