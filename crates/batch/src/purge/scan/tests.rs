use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    super::{Language, Sum, read},
    *,
};

const DAY: i64 = 86_400;

struct Site {
    folder: tempfile::TempDir,
    tree: PathBuf,
    policy: Policy,
    /// Clock of the tests: long after anything they do.
    now_s: i64,
}

/// Results of one scan, and the files it looked at.
#[derive(Debug)]
struct Seen {
    account: Account,
    looked_at: u64,
    listed: u64,
}

impl Site {
    fn new(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let modified = fs::metadata(&tree).unwrap().mtime();
        Self {
            folder,
            tree,
            policy: read(policy, Language::Toml, &|_| None).unwrap(),
            now_s: modified + 1000,
        }
    }

    /// Makes a file that was last read and written so many days ago.
    fn file(&self, name: &str, bytes: usize, read: i64, written: i64) {
        let path = self.tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; bytes]).unwrap();
        self.set(name, read, written);
    }

    fn set(&self, name: &str, read: i64, written: i64) {
        let ago = |days: i64| -> SystemTime {
            UNIX_EPOCH + Duration::from_secs((self.now_s - days * DAY).try_into().unwrap())
        };
        let times = FileTimes::new()
            .set_accessed(ago(read))
            .set_modified(ago(written));
        File::open(self.tree.join(name))
            .unwrap()
            .set_times(times)
            .unwrap();
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("state/cache")
    }

    fn scan(&self, cache: Option<&Cache>, keeps: bool) -> Seen {
        // The kernel's clock can't distinguish changes within one tick.
        sleep(Duration::from_millis(15));
        let root = Root::open(&self.tree).unwrap();
        let world = World::at(self.now_s, jiff::tz::TimeZone::UTC);
        let new = keeps.then(|| NewCache::begin(&self.cache()).unwrap());
        let tally = Tally::default();
        let days = (1..=14).map(|day| self.now_s + day * DAY).collect();
        let scan = Scan {
            root: &root,
            policy: &self.policy,
            world: &world,
            options: Options {
                at_once: 3,
                until_s: self.now_s + 14 * DAY,
            },
            cache,
            new_cache: new.as_ref(),
            is_safe: &|_, _| false,
            tally: &tally,
        };
        let (account, failures) = scan.run(&Account::new(days, 1)).unwrap();
        assert!(failures.is_empty(), "{failures:?}");
        if let Some(new) = new {
            let fill = root.fill(self.now_s).unwrap();
            new.finish(root.path(), &[fill]).unwrap();
        }
        assert_eq!(tally.files(), account.total.files);
        Seen {
            account,
            looked_at: tally.looked_at(),
            listed: tally.listed(),
        }
    }

    fn open(&self) -> Result<Cache, NoCache> {
        let root = Root::open(&self.tree).unwrap();
        Cache::open(&self.cache(), root.path())
    }

    fn again(&self) -> Seen {
        let cache = self.open().unwrap();
        self.scan(Some(&cache), true)
    }
}

const ATIME_30: &str = "[[rule]]\nclock = \"atime\"\ndays = 30\n";

#[test]
fn what_goes_is_counted_by_day_and_by_directory_and_nothing_is_touched() {
    let site = Site::new(ATIME_30);
    site.file("a/b/old", 10, 29, 40);
    site.file("a/older", 5, 40, 40);
    site.file("c/young", 7, 1, 40);
    std::os::unix::fs::symlink("/nowhere", site.tree.join("c/link")).unwrap();
    let folder = site.tree.join("a/b");
    let times = FileTimes::new().set_accessed(UNIX_EPOCH + Duration::from_secs(1));
    File::open(&folder).unwrap().set_times(times).unwrap();
    let before = fs::metadata(site.tree.join("a/b/old")).unwrap();
    let seen = site.scan(None, false);
    let sum = |files, bytes| Sum { files, bytes };
    assert_eq!(seen.account.total, sum(4, 22 + 8));
    assert_eq!(seen.account.later, sum(2, 7 + 8), "the link is a file too");
    assert_eq!(seen.account.days[0].all, sum(1, 5));
    assert_eq!(seen.account.days[1].all, sum(1, 10));
    let urgent = seen.account.urgent();
    assert_eq!(urgent.len(), 1);
    assert_eq!(
        (urgent[0].0, urgent[0].1.dying),
        (Some(&b"a"[..]), sum(2, 15))
    );
    let after = fs::metadata(site.tree.join("a/b/old")).unwrap();
    assert_eq!(
        (before.atime(), before.ctime_nsec()),
        (after.atime(), after.ctime_nsec())
    );
    assert_eq!(
        fs::metadata(&folder).unwrap().atime(),
        1,
        "directories are listed without a trace"
    );
}

#[test]
fn a_second_scan_looks_only_at_what_might_go() {
    let site = Site::new(ATIME_30);
    for number in 0..40 {
        site.file(&format!("far/{number}"), 1, 2, 2);
    }
    site.file("near/a", 1, 20, 20);
    site.file("near/b", 1, 25, 25);
    let first = site.scan(None, true);
    assert_eq!((first.looked_at, first.listed), (42, 3));
    // Reading the file gives it a new time in an old directory.
    site.set("near/a", 0, 20);
    let second = site.again();
    assert_eq!((second.looked_at, second.listed), (2, 0));
    assert_eq!(
        (second.account.later.files, first.account.later.files),
        (41, 40)
    );
    let third = site.again();
    assert_eq!(
        (third.looked_at, third.listed),
        (1, 0),
        "what was learnt is remembered"
    );
    // A file with old times appears, as from an archive.
    site.file("far/unpacked", 1, 29, 29);
    let fourth = site.again();
    assert_eq!((fourth.looked_at, fourth.listed), (42, 1));
    assert_eq!(fourth.account.days[1].all.files, 1);
}

#[test]
fn what_is_remembered_tells_the_same_as_a_full_scan_whatever_happened_in_between() {
    let mut site = Site::new(
        "[[rule]]\nclock = [\"atime\", \"mtime\"]\ndays = 30\ndays_by_size = [{ from = \"100\", days = 4 }]\n",
    );
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |limit: i64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        i64::try_from(state >> 40).unwrap() % limit
    };
    for number in 0..60 {
        let (read, written) = (random(40), random(40));
        site.file(&format!("d{}/{number}", number % 7), 10, read, written);
    }
    site.scan(None, true);
    for _ in 0..12 {
        site.now_s += random(3) * DAY;
        for _ in 0..5 {
            let name = format!("d{}/{}", random(7), random(60));
            let path = site.tree.join(&name);
            match random(6) {
                0 => drop(fs::remove_file(&path)),
                1 => site.file(&name, 10, random(40), random(40)),
                2 => drop(fs::rename(
                    &path,
                    site.tree.join(format!("d{}/moved", random(7))),
                )),
                3 if path.exists() => site.file(&name, 200, 0, 0),
                4 if path.exists() => site.set(&name, 0, 0),
                _ => site.file(&format!("d{}/new{}/x", random(7), random(9)), 150, 3, 3),
            }
        }
        let remembered = site.again();
        let full = site.scan(None, false);
        assert_eq!(remembered.account, full.account);
        assert!(remembered.looked_at <= full.looked_at);
    }
}

#[test]
fn large_directories_have_several_segments_and_all_of_them_come_back() {
    let site = Site::new(ATIME_30);
    let name = "n".repeat(200);
    for number in 0..2500 {
        fs::write(site.tree.join(format!("{name}{number}")), "").unwrap();
    }
    let first = site.scan(None, true);
    let second = site.again();
    assert_eq!((second.looked_at, second.listed), (0, 0));
    assert_eq!(first.account, second.account);
    let cache = site.open().unwrap();
    let mut segment = Vec::new();
    assert!(
        cache.segment(b"", 1, &mut segment).is_some(),
        "there are two at least"
    );
}

#[test]
fn a_broken_cache_is_never_believed() {
    let site = Site::new(ATIME_30);
    for number in 0..20 {
        site.file(&format!("d/{number}"), 1, number, number);
    }
    let whole = site.scan(None, true).account;
    let bytes = fs::read(site.cache()).unwrap();
    for place in (0..bytes.len()).step_by(7) {
        let mut broken = bytes.clone();
        broken[place] ^= 0x10;
        fs::write(site.cache(), &broken).unwrap();
        match site.open() {
            Ok(cache) => {
                let seen = site.scan(Some(&cache), false);
                assert_eq!(seen.account, whole, "{place}");
                assert!(
                    seen.listed > 0,
                    "{place}: the broken segment is listed again"
                );
            }
            Err(NoCache::Wrong(_)) => {}
            Err(other) => panic!("{place}: {other:?}"),
        }
    }
    for length in [0, 10, bytes.len() / 2, bytes.len() - 1] {
        fs::write(site.cache(), &bytes[..length]).unwrap();
        assert!(matches!(site.open(), Err(NoCache::Wrong(_))), "{length}");
    }
    fs::write(site.cache(), &bytes).unwrap();
    assert!(matches!(
        Cache::open(&site.cache(), b"/another"),
        Err(NoCache::Wrong("it is of another tree"))
    ));
}

#[test]
fn two_scans_do_not_write_one_cache_and_a_failed_one_leaves_the_old() {
    let site = Site::new(ATIME_30);
    site.file("a", 1, 1, 1);
    site.scan(None, true);
    let before = fs::read(site.cache()).unwrap();
    let one = NewCache::begin(&site.cache()).unwrap();
    let two = NewCache::begin(&site.cache()).err().unwrap();
    assert_eq!(two.kind(), io::ErrorKind::WouldBlock);
    one.add(b"", 0, b"half");
    drop(one);
    assert_eq!(fs::read(site.cache()).unwrap(), before);
    assert_eq!(site.again().listed, 0);
}
