//! Trees that an endpoint lists at once, in any order and with any names.

use crate::support::refusing;

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use posthaste_endpoint::{
    Boxed, Capabilities, Checksum, Endpoint, Entry, Error, ErrorKind, FileTime, Kind, Listing,
    Result, Whole,
    posix::{DraftRules, Posix},
};
use posthaste_engine::copy::{
    self, Ending, Filter, Links, Notice, Options, Place, Progress, Source, Throttle,
};
use posthaste_plan::tuner::Method;
use refusing::no;

/// Reaction to the request for the next page.
enum Turn {
    Page(Vec<Entry>),
    Failure(ErrorKind),
}

/// Source that lists a tree; a file holds its own path.
struct Teller {
    turns: Mutex<Option<VecDeque<Turn>>>,
}

struct Tale(VecDeque<Turn>);

impl Listing for Tale {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            match self.0.pop_front() {
                None => Ok(Vec::new()),
                Some(Turn::Page(page)) => Ok(page),
                Some(Turn::Failure(kind)) => Err(Error::new(kind, "list", "the tale")),
            }
        })
    }
}

fn entry(name: &str, kind: Kind, mtime: i64) -> Entry {
    Entry {
        name: name.as_bytes().to_vec(),
        kind,
        size: if kind == Kind::File {
            name.len() as u64
        } else {
            0
        },
        mtime: Some(FileTime {
            secs: mtime,
            nanos: 0,
        }),
        stored: None,
        mode: Some(0o750),
        version: None,
    }
}

impl Endpoint for Teller {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            byte_names: true,
            lists: true,
            mtimes_listed: true,
            ..Capabilities::least("tale")
        }
    }

    fn show(&self, path: &[u8]) -> String {
        format!("tale:{}", String::from_utf8_lossy(path))
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let found = path.is_empty().then(|| entry("", Kind::Directory, 1));
        Box::pin(async { Ok(found) })
    }

    fn list<'a>(&'a self, _path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        no()
    }

    fn list_tree<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        let turns = self.turns.lock().unwrap().take().unwrap();
        Box::pin(async { Ok(Some(Box::new(Tale(turns)) as Box<dyn Listing>)) })
    }

    fn get<'a>(&'a self, path: &'a [u8], found: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async move {
            Ok(Whole {
                entry: found.clone(),
                data: vec![Bytes::copy_from_slice(path)],
                checksum: Checksum::of(path),
            })
        })
    }

    refuse_the_rest!();
}

/// Copies the listing and returns the lines about failures.
async fn copy_tale(turns: Vec<Turn>, to: &Path) -> (Ending, Vec<String>) {
    let rules = DraftRules::default();
    let teller = Teller {
        turns: Mutex::new(Some(turns.into())),
    };
    let source = Source {
        place: Place::remote(Arc::new(teller)),
        name: b"tale".to_vec(),
        content: true,
    };
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&lines);
    let options = Options {
        filter: Filter::default(),
        method: Method::Auto,
        history: BTreeMap::new(),
        throttle: Throttle::default(),
        links: Links::Keep,
        rules,
        again: false,
        update: false,
        modes: false,
        verify: false,
        dry_run: false,
        continues: false,
        has_begun: false,
        written: None,
        transfer_max: None,
        duration_max: None,
        help: None,
        on_notice: Arc::new(move |notice| {
            if let Notice::Failed(error) = notice {
                told.lock().unwrap().push(error.to_string());
            }
        }),
    };
    let progress = Arc::new(Progress::default());
    let destination = Place::local(Posix::new(to, rules));
    let ending = copy::copy(vec![source], destination, false, options, progress).await;
    let lines = lines.lock().unwrap().clone();
    (ending, lines)
}

fn page(names: &[&str]) -> Turn {
    let entries = names.iter().map(|name| match name.strip_suffix('/') {
        Some(name) => entry(name, Kind::Directory, 1_000_000_000),
        None => entry(name, Kind::File, 1_100_000_000),
    });
    Turn::Page(entries.collect())
}

fn count(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_lead_elsewhere_stay_out() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("in/there");
    let deep = format!("{}x", "d/".repeat(300));
    let turns = vec![
        page(&["good/", "good/file", "../evil", "good/../../evil", "/abs"]),
        page(&["a//b", "./dot", "..", "good/..", "../", "../further"]),
        page(&[&deep, "good/other"]),
    ];
    let (ending, lines) = copy_tale(turns, &to).await;
    assert!(ending.fatal.is_none(), "{:?}", ending.fatal);
    assert_eq!(fs::read(to.join("good/file")).unwrap(), b"good/file");
    assert_eq!(fs::read(to.join("good/other")).unwrap(), b"good/other");
    assert_eq!(ending.figures.files, 2, "{lines:?}");
    assert_eq!(count(folder.path()), 1, "something is outside");
    assert_eq!(count(&folder.path().join("in")), 1, "something is beside");
    assert_eq!(count(&to), 1, "only good was good");
    assert!(
        lines.iter().all(|line| line.starts_with("can't ")),
        "{lines:#?}"
    );
    assert_eq!(lines.len(), 9, "each is told once: {lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn directories_nobody_told_of_are_made() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("there");
    let turns = vec![
        page(&["a/b/c/file", "x", "a/", "a/b/"]),
        page(&["a/b/c/more", "a/b/c/"]),
    ];
    let (ending, lines) = copy_tale(turns, &to).await;
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(ending.figures.files, 3);
    assert_eq!(fs::read(to.join("a/b/c/more")).unwrap(), b"a/b/c/more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_fails_for_now_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("there");
    let turns = vec![
        page(&["a/", "a/one"]),
        Turn::Failure(ErrorKind::Unreachable),
        page(&["a/two"]),
    ];
    let (ending, lines) = copy_tale(turns, &to).await;
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(ending.figures.files, 2);
    let to = folder.path().join("elsewhere");
    let turns = vec![
        page(&["a/", "a/one"]),
        Turn::Failure(ErrorKind::PermissionDenied),
    ];
    let (ending, lines) = copy_tale(turns, &to).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!((ending.figures.files, ending.left_out), (1, 1));
}

/// Lists more directories than are kept by path, branch by branch and two branches at once, like
/// parallel listings.
#[tokio::test(flavor = "multi_thread")]
async fn every_directory_gets_its_attributes_when_its_files_are_there() {
    const EACH: i64 = 2_600;
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("there");
    let mut turns = vec![Turn::Page(vec![
        entry("0", Kind::Directory, 500),
        entry("1", Kind::Directory, 501),
    ])];
    for first in (0..EACH).step_by(100) {
        for branch in 0..2 {
            let mut told = Vec::new();
            for index in first..first + 100 {
                let name = format!("{branch}/{index}");
                told.push(entry(&name, Kind::Directory, index + 1_000));
                if index % 16 == 0 {
                    told.push(entry(&format!("{name}/file"), Kind::File, 9));
                }
            }
            turns.push(Turn::Page(told));
        }
    }
    let (ending, lines) = copy_tale(turns, &to).await;
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(ending.figures.files, 2 * EACH.unsigned_abs().div_ceil(16));
    for branch in 0..2 {
        for index in 0..EACH {
            let found = fs::metadata(to.join(format!("{branch}/{index}"))).unwrap();
            let wanted = (index + 1_000, 0o750);
            assert_eq!(
                (found.mtime(), found.mode() & 0o7777),
                wanted,
                "{branch}/{index}"
            );
        }
        let above = fs::metadata(to.join(branch.to_string())).unwrap();
        assert_eq!(above.mtime(), 500 + branch);
    }
}
