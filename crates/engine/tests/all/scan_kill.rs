//! `kill -9` at random moments of a scan: it continues where it was and reports everything once.
//!
//! This program starts itself: with a folder in its environment it scans into it, and the other
//! half of the test kills it again and again. A whole scan takes longer than any of its lives.

use crate::support::refusing;

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use posthaste_endpoint::{
    Boxed, Capabilities, Endpoint, Entry, Error, ErrorKind, Kind, Listing, Locus, Result, Whole,
    join,
};
use posthaste_engine::scan::{self, News, Options, Scan, Tally};
use refusing::no;

const FOLDER: &str = "POSTHASTE_TEST_SCAN_FOLDER";
const KIND: &str = "POSTHASTE_TEST_SCAN_KIND";
/// Set if the scan may come to its end in this life.
const ENDS: &str = "POSTHASTE_TEST_SCAN_ENDS";

/// Seed of the moments; printed, so that a failure can be replayed.
const SEED: u64 = 20_261_121;

/// Size of the tree that is listed at once, size of its pages, and time of each.
const WHOLE_ENTRIES: usize = 120_000;
const WHOLE_PAGE: usize = 400;
const WHOLE_PAUSE: Duration = Duration::from_millis(12);

/// Directories in each directory, levels of them, and files in each.
const FAN_OUT: usize = 7;
const LEVELS: usize = 4;
const FILES: usize = 5;
const PAUSE: Duration = Duration::from_millis(15);

/// Entries of one flat directory among them, which can only be listed anew.
const FLAT: usize = 20_000;

/// Tree that exists only here, listed slowly.
struct Model {
    whole: bool,
    pauses: bool,
    /// A long listing is reported to its end.
    ends: bool,
    asked: Arc<AtomicUsize>,
}

fn entry(name: String, kind: Kind) -> Entry {
    Entry {
        size: name.len() as u64,
        name: name.into_bytes(),
        kind,
        mtime: None,
        stored: None,
        mode: Some(0o644),
        version: None,
    }
}

/// Lists a directory of the tree that is listed one at a time.
fn inside(path: &[u8]) -> Result<Vec<Entry>> {
    let level = match path {
        b"" => 0,
        path => path.split(|&byte| byte == b'/').count(),
    };
    if path.ends_with(b"denied") {
        return Err(Error::new(ErrorKind::PermissionDenied, "list", "denied").at(Locus::Source));
    }
    if path.ends_with(b"flat") {
        let files = (0..FLAT).map(|number| entry(format!("f{number}"), Kind::File));
        return Ok(files.collect());
    }
    let mut entries: Vec<Entry> = (0..FILES)
        .map(|number| entry(format!("file{number}"), Kind::File))
        .collect();
    if level < LEVELS {
        entries.extend((0..FAN_OUT).map(|number| entry(format!("d{number}"), Kind::Directory)));
    }
    if level == 1 {
        entries.push(entry("denied".to_owned(), Kind::Directory));
    }
    if path == b"d3" {
        entries.push(entry("flat".to_owned(), Kind::Directory));
    }
    Ok(entries)
}

struct Told {
    entries: std::vec::IntoIter<Entry>,
    page: usize,
    pause: Option<Duration>,
    /// Entries listed, if marks are left.
    told: Option<usize>,
    ends: bool,
}

impl Listing for Told {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(async {
            if let Some(pause) = self.pause {
                tokio::time::sleep(pause).await;
            }
            let page: Vec<Entry> = self.entries.by_ref().take(self.page).collect();
            if page.is_empty() && !self.ends {
                std::future::pending::<()>().await;
            }
            if let Some(told) = &mut self.told {
                *told += page.len();
            }
            Ok(page)
        })
    }

    fn mark(&self) -> Option<Vec<u8>> {
        // Like real listings, it leaves none at its beginning.
        let told = self.told.filter(|told| *told > 2 * WHOLE_PAGE);
        told.map(|told| told.to_string().into_bytes())
    }
}

impl Model {
    fn told(&self, entries: Vec<Entry>, from: Option<usize>) -> Box<dyn Listing> {
        self.asked.fetch_add(1, Relaxed);
        let pause = if from.is_some() { WHOLE_PAUSE } else { PAUSE };
        let ends = self.ends || entries.len() < FLAT;
        let entries: Vec<Entry> = entries.into_iter().skip(from.unwrap_or(0)).collect();
        Box::new(Told {
            ends,
            page: if from.is_some() { WHOLE_PAGE } else { 1_000 },
            pause: self.pauses.then_some(pause),
            entries: entries.into_iter(),
            told: from,
        })
    }

    fn all() -> Vec<Entry> {
        let all = (0..WHOLE_ENTRIES).map(|number| entry(format!("key{number}"), Kind::File));
        all.collect()
    }
}

impl Endpoint for Model {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            lists: true,
            listing_marks: self.whole,
            ..Capabilities::least("model")
        }
    }

    fn show(&self, path: &[u8]) -> String {
        format!("model:{}", String::from_utf8_lossy(path))
    }

    fn stat<'a>(&'a self, _path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        no()
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async { Ok(self.told(inside(path)?, None)) })
    }

    fn list_tree<'a>(&'a self, _path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        let told = self.whole.then(|| self.told(Self::all(), Some(0)));
        Box::pin(async { Ok(told) })
    }

    fn list_on<'a>(
        &'a self,
        _path: &'a [u8],
        mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        let from: usize = std::str::from_utf8(mark).unwrap().parse().unwrap();
        Box::pin(async move { Ok(self.told(Self::all(), Some(from))) })
    }

    fn get<'a>(&'a self, _path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        no()
    }

    refuse_the_rest!();
}

fn model(kind: &str, pauses: bool, ends: bool) -> Arc<Model> {
    Arc::new(Model {
        whole: kind == "whole",
        pauses,
        ends,
        asked: Arc::default(),
    })
}

/// Runs the half that is killed. Without a folder it has nothing to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_scans() {
    #[expect(clippy::disallowed_methods, reason = "the other half says what to do")]
    let [Ok(folder), Ok(kind), ends] = [FOLDER, KIND, ENDS].map(env::var) else {
        return;
    };
    let model = model(&kind, true, ends.is_ok());
    let scan = Scan::open(Path::new(&folder), model, Options::default()).unwrap();
    let on_failure: Arc<scan::OnFailure> = Arc::new(|_: &Error| ());
    Arc::new(scan).run(&on_failure).await.unwrap();
}

/// Notes all paths and their sizes; each may come once.
fn note(found: &mut BTreeMap<Vec<u8>, u64>, told: scan::Found) {
    for entry in told.entries {
        let path = join(&told.directory, &entry.name);
        assert_eq!(entry.mode, Some(0o644));
        let twice = found.insert(path.clone(), entry.size);
        assert!(twice.is_none(), "{} twice", String::from_utf8_lossy(&path));
    }
}

fn truth(kind: &str) -> BTreeMap<Vec<u8>, u64> {
    let mut found = BTreeMap::new();
    if kind == "whole" {
        let entries = Model::all();
        let directory = Vec::new();
        note(&mut found, scan::Found { directory, entries });
        return found;
    }
    let mut open = vec![Vec::new()];
    while let Some(directory) = open.pop() {
        let Ok(entries) = inside(&directory) else {
            continue;
        };
        let below = entries.iter().filter(|entry| entry.kind == Kind::Directory);
        open.extend(below.map(|entry| join(&directory, &entry.name)));
        note(&mut found, scan::Found { directory, entries });
    }
    found
}

fn survives_kills(kind: &str) {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let mut random = SEED;
    let mut kills = 0;
    let finished = loop {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args(["--exact", "scan_kill::a_child_scans", "--nocapture"])
            .env(FOLDER, &spool)
            .env(KIND, kind)
            .stdout(Stdio::null());
        // The first life does not end by itself, however late it is killed.
        if kills > 0 {
            command.env(ENDS, "");
        }
        let mut child = command.spawn().unwrap();
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // On a slow machine a life must be longer to come to anything.
        let longer = kills * 50;
        thread::sleep(Duration::from_millis(200 + longer + (random >> 33) % 2_000));
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
                assert!(kills < 60, "it does not go on, seed {SEED}");
            }
        }
    };
    assert!(finished.success(), "{finished}, seed {SEED}");
    assert!(kills >= 1, "it was too quick to be killed");
    let scan = Scan::open(&spool, model(kind, false, true), Options::default()).unwrap();
    assert!(scan.is_finished());
    let mut found = BTreeMap::new();
    for told in scan.entries().unwrap() {
        note(&mut found, told.unwrap());
    }
    assert!(found == truth(kind), "after {kills} kills, seed {SEED}");
    let failures = if kind == "whole" { 0 } else { FAN_OUT as u64 };
    assert_eq!(scan.tally().failures(), failures);
    assert_eq!(scan.tally().entries(), found.len() as u64);
    scan.remove().unwrap();
    assert!(!spool.exists());
}

#[test]
fn a_scan_of_a_whole_tree_survives_kills() {
    survives_kills("whole");
}

#[test]
fn a_scan_of_many_directories_survives_kills() {
    survives_kills("directories");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_tells_the_same() {
    for kind in ["whole", "directories"] {
        let (sender, mut news) = tokio::sync::mpsc::channel(4);
        let tally = Arc::new(Tally::default());
        let endpoint: Arc<dyn Endpoint> = model(kind, false, true);
        let listing = scan::list(&endpoint, Options::default(), &tally, sender);
        let reading = async {
            let (mut found, mut denied) = (BTreeMap::new(), BTreeSet::new());
            while let Some(one) = news.recv().await {
                match one {
                    News::Found(told) => note(&mut found, told),
                    News::Failed(error) => {
                        denied.insert(error.to_string());
                        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                    }
                }
            }
            (found, denied)
        };
        let (ended, (found, denied)) = tokio::join!(listing, reading);
        ended.unwrap();
        assert!(found == truth(kind));
        assert_eq!(denied.len(), usize::from(kind == "directories"));
        assert_eq!(tally.entries(), found.len() as u64);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_ends_when_nobody_listens() {
    let (sender, news) = tokio::sync::mpsc::channel(1);
    drop(news);
    let model = model("directories", false, true);
    let asked = Arc::clone(&model.asked);
    let endpoint: Arc<dyn Endpoint> = model;
    let tally = Arc::new(Tally::default());
    scan::list(&endpoint, Options::default(), &tally, sender)
        .await
        .unwrap();
    assert!(asked.load(Relaxed) < 10);
}
