//! File systems: refusals, rounding, and late errors.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown, symlink},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind, Unkept, Writer,
    posix::{Draft, DraftRules, Place, Posix, PosixListing},
};
use posthaste_testbed::{
    noise,
    odd::{Call, Deed, Files, Habits},
};

use crate::edges::{
    says,
    table::{End, shown},
};

/// Error numbers of errno(3).
const EPERM: i32 = 1;
const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
const ESTALE: i32 = 116;
const EDQUOT: i32 = 122;

/// Errors with which file systems report that they do not keep an attribute.
const REFUSALS: [i32; 4] = [EPERM, EINVAL, ENOSYS, EOPNOTSUPP];

const MTIME: FileTime = FileTime {
    secs: 1_500_000_001,
    nanos: 987_654_321,
};

fn spec(size: u64) -> FileSpec {
    FileSpec {
        size,
        mtime: Some(MTIME),
        mode: Some(0o640),
        origin: "test".into(),
        version: None,
    }
}

fn posix(files: &Files, fsync: bool) -> Posix {
    let rules = DraftRules {
        fsync,
        ..DraftRules::default()
    };
    Posix::new(files.path(), rules)
}

async fn put(end: &Posix, path: &str, data: &[u8]) -> posthaste_endpoint::Result<()> {
    let pieces = vec![Bytes::copy_from_slice(data)];
    let spec = spec(data.len() as u64);
    let put = end.put(path.as_bytes(), &spec, pieces, Checksum::of(data));
    put.await
}

/// Writes a file in segments, the last one first.
async fn write(end: &Posix, path: &str, data: &[u8]) -> posthaste_endpoint::Result<()> {
    let writer = end
        .create(path.as_bytes(), &spec(data.len() as u64))
        .await?;
    let size = usize::try_from(writer.segment_size()).unwrap();
    let segments: Vec<_> = data.chunks(size).enumerate().collect();
    for (index, segment) in segments.into_iter().rev() {
        let start = (index * size) as u64;
        let bytes = Bytes::copy_from_slice(segment);
        let body: ByteStream = Box::pin(stream::iter([Ok(bytes)]));
        let range = start..start + segment.len() as u64;
        writer.write(index as u64, range, body).await?;
    }
    writer.finish(Checksum::of(data)).await
}

#[tokio::test]
async fn what_is_told_when_a_file_is_closed_or_flushed_is_heard() {
    for (deed, fsync) in [(Deed::Close, false), (Deed::Sync, true)] {
        for (errno, kind) in [(EDQUOT, ErrorKind::Full), (EIO, ErrorKind::Other)] {
            let fails = move |call: &Call| (call.deed == deed && call.end > 0).then_some(errno);
            let files = Files::mount(Habits::refusing(fails));
            let end = posix(&files, fsync);
            let small = put(&end, "small", &noise(0, 5000)).await.unwrap_err();
            let large = write(&end, "large", &noise(0, 3 << 20)).await.unwrap_err();
            assert_eq!([small.kind(), large.kind()], [kind; 2]);
            assert!(!files.behind().join("small").exists());
            assert!(!files.behind().join("large").exists());
        }
    }
    shown(
        "files",
        "that a write failed is told when the file is closed",
        End::Refused,
    );
}

#[tokio::test]
async fn files_arrive_where_no_modes_or_times_are_kept() {
    for (deed, unkept) in [
        (Deed::SetMode, Unkept { modes: 3, times: 0 }),
        (Deed::SetTimes, Unkept { modes: 0, times: 3 }),
    ] {
        for errno in REFUSALS {
            let refuses = move |call: &Call| (call.deed == deed).then_some(errno);
            let files = Files::mount(Habits::refusing(refuses));
            let end = posix(&files, false);
            put(&end, "d/small", b"abc").await.unwrap_err();
            assert!(end.make_directory(b"d").await.unwrap());
            put(&end, "d/small", b"abc").await.unwrap();
            write(&end, "d/large", &noise(0, 3 << 20)).await.unwrap();
            let directory = end.stat(b"d", false).await.unwrap().unwrap();
            end.seal_directory(b"d", &directory, false).await.unwrap();
            assert_eq!(fs::read(files.behind().join("d/small")).unwrap(), b"abc");
            let large = fs::read(files.behind().join("d/large")).unwrap();
            assert_eq!(large, noise(0, 3 << 20));
            assert_eq!(end.unkept(), unkept, "{errno}");
        }
    }
    shown("files", "no modes or times are kept", End::Right);
}

#[tokio::test]
async fn a_link_that_is_refused_is_one_link() {
    for errno in REFUSALS {
        let refuses = move |call: &Call| (call.deed == Deed::MakeLink).then_some(errno);
        let files = Files::mount(Habits::refusing(refuses));
        let made = posix(&files, false)
            .make_link(b"link", b"target", &spec(0))
            .await;
        let error = says(made, "--links follow");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(fs::read_dir(files.behind()).unwrap().count(), 0);
    }
    shown("files", "no symbolic links are kept", End::LeftOut);
}

#[tokio::test]
async fn how_exactly_times_are_kept_is_learnt() {
    for (step_s, forgets_times, step_ns) in [
        (0, false, Some(1)),
        (1, false, Some(1_000_000_000)),
        (2, false, Some(2_000_000_000)),
        (0, true, None),
    ] {
        let files = Files::mount(Habits {
            step_s,
            forgets_times,
            ..Habits::default()
        });
        let end = posix(&files, false);
        put(&end, "file", b"abc").await.unwrap();
        assert_eq!(end.time_step_ns(b"file").unwrap(), step_ns);
        assert_eq!(fs::read_dir(files.behind()).unwrap().count(), 1);
        let there = end.stat(b"file", false).await.unwrap().unwrap();
        let agrees = |step_ns| there.mtime.unwrap().agrees(MTIME, step_ns);
        assert_eq!(step_ns.is_some_and(agrees), step_ns.is_some());
    }
    let refuses = |call: &Call| (call.deed == Deed::SetTimes).then_some(EPERM);
    let files = Files::mount(Habits::refusing(refuses));
    let end = posix(&files, false);
    put(&end, "file", b"abc").await.unwrap();
    assert_eq!(end.time_step_ns(b"file").unwrap(), None);
    shown(
        "files",
        "times are kept in whole seconds, or in two",
        End::Right,
    );
}

#[tokio::test]
async fn a_name_that_is_refused_is_one_file() {
    let refuses = |call: &Call| {
        let makes = matches!(call.deed, Deed::Create | Deed::MakeDirectory);
        (makes && call.has(":")).then_some(EINVAL)
    };
    let files = Files::mount(Habits::refusing(refuses));
    let end = posix(&files, false);
    let error = put(&end, "a:b", b"abc").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    put(&end, "ab", b"abc").await.unwrap();
    shown("files", "a name can't be", End::LeftOut);
}

#[tokio::test]
async fn one_file_that_can_t_be_looked_at_hides_no_others() {
    let refuses = |call: &Call| (call.deed == Deed::Look && call.has("bad")).then_some(ESTALE);
    let files = Files::mount(Habits::refusing(refuses));
    for name in ["a", "bad1", "bad2", "z"] {
        fs::write(files.behind().join(name), "x").unwrap();
    }
    let mut listing = posix(&files, false).list(b"", false).await.unwrap();
    let page = listing.next_page().await.unwrap();
    let names: Vec<_> = page.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [b"a", b"z"]);
    for _ in 0..2 {
        let next = listing.next_page().await;
        says(next, "Stale file handle (os error 116) (and 1 more there)");
    }
    assert!(PosixListing::open(files.path().into(), false).is_ok());
    shown("files", "one file can't be looked at", End::LeftOut);
}

fn draft(path: &Path, data: &[u8]) -> Draft {
    let draft = Draft::small(
        &Place::plain(path.into()),
        &spec(data.len() as u64),
        DraftRules::default(),
    )
    .unwrap();
    draft.write_at(&data[..2], 0).unwrap();
    draft
}

#[test]
fn two_writers_to_one_name_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let end = |draft: &Draft, data: &[u8]| {
        draft.write_at(&data[2..], 2).unwrap();
        draft.publish(&spec(data.len() as u64))
    };
    let (mine, theirs) = (draft(&path, b"mine"), draft(&path, b"theirs"));
    // The second writer has published first.
    end(&theirs, b"theirs").unwrap();
    let error = says(end(&mine, b"mine"), "another posthaste wrote it meanwhile");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    drop(mine);
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    // A killed writer leaves a file, which the next successful one removes.
    std::mem::forget(draft(&path, b"killed"));
    let (first, second) = (draft(&path, b"first"), draft(&path, b"second"));
    end(&second, b"second").unwrap();
    end(&first, b"first").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    shown("files", "two write to one name at once", End::Refused);
}

#[tokio::test]
async fn two_writers_of_a_large_file_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let end = Arc::new(Posix::new(folder.path(), DraftRules::default()));
    let data = noise(0, 3 << 20);
    let first = end
        .create(b"large", &spec(data.len() as u64))
        .await
        .unwrap();
    let second = end.create(b"large", &spec(data.len() as u64)).await;
    says(second, "another posthaste writes it");
    drop(first);
    write(&end, "large", &data).await.unwrap();
    assert_eq!(fs::read(folder.path().join("large")).unwrap(), data);
}

#[tokio::test]
async fn what_is_told_once_is_told_for_good() {
    let was_told = AtomicBool::new(false);
    let fails = move |call: &Call| {
        let tells = call.deed == Deed::Close && call.end > 0 && call.has("large");
        (tells && !was_told.swap(true, Ordering::Relaxed)).then_some(EIO)
    };
    let files = Files::mount(Habits::refusing(fails));
    let end = posix(&files, false);
    let data = noise(0, 3 << 20);
    let writer = end
        .create(b"large", &spec(data.len() as u64))
        .await
        .unwrap();
    let body: ByteStream = Box::pin(stream::iter([Ok(Bytes::copy_from_slice(&data))]));
    writer.write(0, 0..data.len() as u64, body).await.unwrap();
    for kind in [ErrorKind::Other, ErrorKind::Conflict] {
        let error = writer.finish(Checksum::of(&data)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    drop(writer);
    assert_eq!(fs::read_dir(files.behind()).unwrap().count(), 0);
    write(&end, "large", &data).await.unwrap();
    assert_eq!(fs::read(files.behind().join("large")).unwrap(), data);
    shown(
        "files",
        "that a write failed is told once, when the file is closed",
        End::Refused,
    );
}

/// Writes the first segments of a large file, up to `until`.
async fn write_some(end: &Posix, spec: &FileSpec, data: &[u8], until: usize) -> Arc<dyn Writer> {
    let writer = end.create(b"large", spec).await.unwrap();
    write_from(&*writer, data, 0..until).await;
    writer
}

async fn write_from(writer: &dyn Writer, data: &[u8], which: std::ops::Range<usize>) {
    let size = usize::try_from(writer.segment_size()).unwrap();
    for (index, segment) in data.chunks(size).enumerate() {
        if which.contains(&index) {
            let start = (index * size) as u64;
            let body: ByteStream = Box::pin(stream::iter([Ok(Bytes::copy_from_slice(segment))]));
            let range = start..start + segment.len() as u64;
            writer.write(index as u64, range, body).await.unwrap();
        }
    }
}

#[tokio::test]
async fn two_writers_do_not_mix_where_neither_sees_the_other_s_locks() {
    let here = Files::mount(Habits::default());
    let there = here.mount_again(Habits::default());
    let (mine, theirs) = (noise(0, 3 << 20), vec![7; 3 << 20]);
    let spec_of_theirs = FileSpec {
        mtime: Some(FileTime { secs: 1, nanos: 0 }),
        ..spec(3 << 20)
    };
    let (one, other) = (posix(&here, false), posix(&there, false));
    let first = write_some(&one, &spec(3 << 20), &mine, 1).await;
    let second = write_some(&other, &spec_of_theirs, &theirs, 2).await;
    write_from(&*first, &mine, 1..usize::MAX).await;
    write_from(&*second, &theirs, 2..usize::MAX).await;
    second.finish(Checksum::of(&theirs)).await.unwrap();
    let late = first.finish(Checksum::of(&mine)).await;
    let error = says(late, "another posthaste wrote it meanwhile");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(fs::read(here.behind().join("large")).unwrap() == theirs);
    shown(
        "files",
        "two write to one name at once, and locks hold on one host alone",
        End::Refused,
    );
}

#[tokio::test]
async fn who_finishes_a_large_file_second_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let end = Posix::new(folder.path(), DraftRules::default());
    let (mine, theirs) = (noise(0, 3 << 20), vec![7; 3 << 20]);
    let spec_of_theirs = FileSpec {
        origin: "elsewhere".into(),
        ..spec(3 << 20)
    };
    let first = write_some(&end, &spec(3 << 20), &mine, usize::MAX).await;
    let second = write_some(&end, &spec_of_theirs, &theirs, usize::MAX).await;
    second.finish(Checksum::of(&theirs)).await.unwrap();
    let late = first.finish(Checksum::of(&mine)).await;
    let error = says(late, "something else got this name meanwhile");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(fs::read(folder.path().join("large")).unwrap() == theirs);
    // A second time, the replaced file is known.
    drop(first);
    let again = end.create(b"large", &spec(3 << 20)).await.unwrap();
    assert_eq!(again.kept().len(), 3);
    again.finish(Checksum::of(&mine)).await.unwrap();
    assert!(fs::read(folder.path().join("large")).unwrap() == mine);
}

#[tokio::test]
async fn what_others_put_under_a_foretold_name_is_left_alone() {
    let data = noise(0, 3 << 20);
    for large in [true, false] {
        for plant in [
            |place: &Path, victim: &Path| fs::hard_link(victim, place),
            |place: &Path, victim: &Path| std::os::unix::fs::symlink(victim, place),
            |place: &Path, _: &Path| {
                fs::write(place, "theirs")?;
                // Only root can; the leftover is then a file of this user, which is accepted.
                let _ = chown(place, Some(4711), None);
                Ok(())
            },
            |place: &Path, _: &Path| fs::create_dir(place),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let end = Posix::new(folder.path().join("d"), DraftRules::default());
            fs::create_dir(folder.path().join("d")).unwrap();
            let (victim, path) = (folder.path().join("victim"), folder.path().join("d/file"));
            fs::write(&victim, "precious").unwrap();
            let place = Draft::partial_path(&path, "test");
            plant(&place, &victim).unwrap();
            let record = place.to_string_lossy().replace("-partial", "-progress");
            plant(Path::new(&record), &victim).unwrap();
            if large {
                write(&end, "file", &data).await.unwrap();
            } else {
                put(&end, "file", &data).await.unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), data);
            assert_eq!(fs::read(&victim).unwrap(), b"precious");
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.nlink(), found.mode() & 0o777), (1, 0o640));
            assert_eq!(found.uid(), fs::metadata(folder.path()).unwrap().uid());
        }
    }
}

#[tokio::test]
async fn a_directory_that_became_a_link_is_not_read_through() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (path, text) in [
        ("root/sub/f", "ours"),
        ("other/f", "theirs"),
        ("other/sub/f", "theirs"),
    ] {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), text).unwrap();
    }
    let end = Posix::new(at("root"), DraftRules::default());
    let entry = end.stat(b"sub/f", false).await.unwrap().unwrap();
    let text = async || {
        end.get(b"sub/f", &entry)
            .await
            .map(|whole| whole.data.concat())
    };
    assert_eq!(text().await.unwrap(), b"ours");
    fs::rename(at("root/sub"), at("root/away")).unwrap();
    symlink("../other", at("root/sub")).unwrap();
    // A file opened a moment ago is read on.
    let mut read = text().await;
    while read.is_ok() {
        assert_eq!(read.unwrap(), b"ours");
        tokio::time::sleep(Duration::from_millis(50)).await;
        read = text().await;
    }
    let refused = says(read, "a symbolic link or a file came to be on the way");
    assert_eq!(refused.kind(), ErrorKind::Changed);
    says(
        end.open(b"sub/f", &entry).await.map(|_| ()),
        "symbolic link",
    );
    says(end.list(b"sub", false).await.map(|_| ()), "symbolic link");
    fs::remove_file(at("root/sub")).unwrap();
    fs::rename(at("root/away"), at("root/sub")).unwrap();
    // The file opened first is read, whatever takes its name.
    fs::rename(at("root"), at("moved")).unwrap();
    symlink("other", at("root")).unwrap();
    assert_eq!(text().await.unwrap(), b"ours");
    // After its removal, a link under its name is one that nobody named.
    fs::remove_dir_all(at("moved")).unwrap();
    let mut read = text().await;
    while read.is_ok() {
        assert_eq!(read.unwrap(), b"ours");
        tokio::time::sleep(Duration::from_millis(50)).await;
        read = text().await;
    }
    says(read, "");
    // Followed links are.
    let end = Posix::new(at("other"), DraftRules::default());
    symlink("sub", at("other/link")).unwrap();
    let mut listing = end.list(b"", true).await.unwrap();
    assert_eq!(listing.next_page().await.unwrap().len(), 3);
    assert!(end.get(b"link/f", &entry).await.is_ok());
    shown(
        "files",
        "a directory becomes a link while it is read",
        End::Refused,
    );
}

#[tokio::test]
async fn when_something_was_read_last_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let end = Posix::new(folder.path(), DraftRules::default());
    put(&end, "file", b"abc").await.unwrap();
    end.make_directory(b"directory").await.unwrap();
    let entry = Entry {
        mtime: Some(MTIME),
        ..Entry::bare(Vec::new(), Kind::Directory)
    };
    end.seal_directory(b"directory", &entry, true)
        .await
        .unwrap();
    end.make_link(b"link", b"file", &spec(4)).await.unwrap();
    for name in ["file", "directory", "link"] {
        let found = fs::symlink_metadata(folder.path().join(name)).unwrap();
        assert_eq!(found.mtime(), MTIME.secs, "{name}");
        assert!(found.atime() > MTIME.secs, "{name}: purges go by that");
    }
}

#[tokio::test]
async fn nobody_reads_a_file_before_it_has_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let end = Posix::new(folder.path(), DraftRules::default());
    let data = noise(0, 3 << 20);
    let plain = FileSpec {
        mode: None,
        ..spec(data.len() as u64)
    };
    let _writer = write_some(&end, &plain, &data, 1).await;
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "a draft and its record");
    for left in left {
        assert_eq!(left.metadata().unwrap().mode() & 0o777, 0o600, "{left:?}");
    }
    // At the end it is as private as any file that is made there.
    let pieces = vec![Bytes::from_static(b"abc")];
    let small = FileSpec {
        mode: None,
        ..spec(3)
    };
    let put = end.put(b"small", &small, pieces, Checksum::of(b"abc"));
    put.await.unwrap();
    fs::write(folder.path().join("any"), "").unwrap();
    let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode();
    assert_eq!(mode("small"), mode("any"));
}
