//! The purge date of offloaded data follows from the site's rules if nobody gives one, with a real
//! service and real relays.

use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, now, text};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Service that follows the rules of a purge, and the files that they concern.
struct Site {
    folder: tempfile::TempDir,
    service: Service,
    _relays: Vec<Relay>,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        write_rules(&root, "a month", 30.0);
        let policy = root.join("purge.toml").display().to_string();
        let service = Service::start_with(folder.path(), &["--purge-policy", &policy]);
        let relays = ["ash", "birch"].map(|name| Relay::start(folder.path(), name, "1G", "10M"));
        relays.iter().for_each(|relay| service.add(relay));
        Self {
            folder,
            service,
            _relays: relays.into(),
        }
    }

    /// Replaces the rules.
    fn rules(&self, name: &str, days: f64) {
        write_rules(&fs::canonicalize(self.folder.path()).unwrap(), name, days);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file that was last written so long ago.
    fn file(&self, name: &str, bytes: usize, age_s: i64) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![7; bytes]).unwrap();
        let then = Timestamp::now() - SignedDuration::from_secs(age_s);
        let times = FileTimes::new().set_modified(then.into());
        File::open(&path).unwrap().set_times(times).unwrap();
    }

    /// Returns when a file is so many days old, by its own times.
    fn days_after(&self, name: &str, days: i64) -> Timestamp {
        let written_s = fs::metadata(self.path(name)).unwrap().mtime();
        Timestamp::from_second(written_s + days * DAY).unwrap()
    }

    /// Offloads a directory that must be safe in five hours and needs a quarter of one.
    fn offload(&self, name: &str, more: &[&str]) -> Value {
        let path = self.path(name);
        let asked = ["offload", path.to_str().unwrap(), "--json"];
        let terms = ["--deadline", "5h", "--bwlimit", "2K"];
        self.service.json(&[&asked[..], &terms, more].concat())
    }

    /// Offloads a directory over depots, and waits until it moves.
    fn moving(&self, name: &str, more: &[&str]) -> Value {
        let over = ["--to", "home", "--via", "ash,birch", "--code", "1+1"];
        let request = self.offload(name, &[&over, more].concat());
        let is_moving = |request: &Value| request["state"] == "moving";
        self.service.wait_until(id(&request), is_moving)
    }

    /// Waits until the explanation contains these words.
    fn wait_for_words(&self, id: &str, words: &[&str]) {
        let start = now();
        loop {
            let told = text(&self.service.run(&["explain", id]).stdout);
            if words.iter().all(|word| told.contains(word)) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{words:?}: {told}");
            sleep(Duration::from_millis(200));
        }
    }
}

/// Writes the rule of that name, for files in `scratch`.
fn write_rules(root: &Path, name: &str, days: f64) {
    let scratch = root.join("scratch").display().to_string();
    let rule = format!(
        "[[rule]]\nname = \"{name}\"\npaths = [\"{scratch}/**\"]\nclock = \"mtime\"\ndays = {days}\n"
    );
    fs::write(root.join("purge.new"), rule).unwrap();
    fs::rename(root.join("purge.new"), root.join("purge.toml")).unwrap();
}

fn id(request: &Value) -> &str {
    request["id"].as_str().unwrap()
}

/// Returns a moment of a request, if it has one.
fn moment(request: &Value, key: &str) -> Option<Timestamp> {
    request[key].as_str().map(|at| at.parse().unwrap())
}

/// Returns the source's purge and the request's deadline.
fn dates(request: &Value) -> (Option<Timestamp>, Timestamp) {
    (
        moment(request, "purge_at"),
        moment(request, "deadline").unwrap(),
    )
}

fn in_hours(hours: i64) -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second() + hours * HOUR).unwrap()
}

/// Returns whether the request is due in five hours, as asked.
fn is_due_as_asked(request: &Value) -> bool {
    let left = moment(request, "deadline").unwrap().as_second() - Timestamp::now().as_second();
    (4 * HOUR..=5 * HOUR).contains(&left)
}

#[test]
fn the_rules_of_the_purge_bind_offloads_until_their_users_say_otherwise() {
    let mut site = Site::start();
    site.file("scratch/run/a.h5", 1 << 20, 30 * DAY - HOUR);
    site.file("scratch/run/b.h5", 1 << 19, 20 * DAY);
    site.file("kept/run/a.h5", 1 << 20, 300 * DAY);
    let first = site.days_after("scratch/run/a.h5", 30);

    let bound = site.moving("scratch/run", &[]);
    assert_eq!(dates(&bound), (Some(first), first), "{bound}");
    let rehearsed = site.offload(
        "scratch/run",
        &["--to", "home", "--via", "ash", "--dry-run"],
    );
    assert_eq!(dates(&rehearsed), (Some(first), first), "{rehearsed}");
    let said = in_hours(2);
    let own = site.moving("scratch/run", &["--purge-at", &said.to_string()]);
    assert_eq!(dates(&own), (Some(said), said), "{own}");
    let free = site.moving("kept/run", &[]);
    assert_eq!(free["purge_at"], Value::Null, "{free}");
    assert!(is_due_as_asked(&free), "{free}");

    // Only of those files that were named one by one.
    let list = site.path("list");
    fs::write(&list, "run/b.h5\n").unwrap();
    let named = site.moving("scratch", &["--files-from", list.to_str().unwrap()]);
    let second = site.days_after("scratch/run/b.h5", 30);
    assert_eq!(moment(&named, "purge_at"), Some(second), "{named}");
    assert!(is_due_as_asked(&named), "{named}");

    site.wait_for_words(
        id(&bound),
        &["run/a.h5", "`a month` (line 1)", "purge.toml"],
    );
    site.wait_for_words(id(&free), &["by no rule of"]);

    // Whose user says it later goes by that, and by no rule any more.
    let changed = site.moving("scratch/run", &[]);
    let later = in_hours(3);
    let modify = ["modify", id(&changed), "--purge-at", &later.to_string()];
    let modified = site.service.run(&modify);
    assert!(modified.status.success(), "{}", text(&modified.stderr));
    let by_user = (Some(later), later);
    let status = site.service.status(id(&changed));
    assert_eq!(dates(&status), by_user, "{status}");

    site.service.kill();
    site.service.restart();
    let dates_of = |id: &str| dates(&site.service.status(id));
    assert_eq!(dates_of(id(&bound)), (Some(first), first));
    assert_eq!(dates_of(id(&own)), (Some(said), said));
    assert_eq!(dates_of(id(&changed)), by_user);
    assert_eq!(dates_of(id(&free)).0, None);

    // Other rules move what nobody said, and nothing else.
    site.rules("a month and a day", 31.0);
    let next = site.days_after("scratch/run/a.h5", 31);
    let has_moved = |request: &Value| moment(request, "purge_at") == Some(next);
    let moved = site.service.wait_until(id(&bound), has_moved);
    assert!(is_due_as_asked(&moved), "{moved}");
    site.wait_for_words(id(&bound), &["`a month and a day` (line 1)"]);
    // It is told of after those before it.
    let next = site.days_after("scratch/run/b.h5", 31);
    let has_moved = |request: &Value| moment(request, "purge_at") == Some(next);
    site.service.wait_until(id(&named), has_moved);
    assert_eq!(dates_of(id(&own)), (Some(said), said));
    let last = site.moving("scratch/run", &[]);
    site.wait_for_words(id(&last), &["`a month and a day` (line 1)"]);
    assert_eq!(dates_of(id(&changed)), by_user);
}

#[test]
fn what_goes_straight_to_an_address_is_bound_when_it_is_taken() {
    let site = Site::start();
    site.file("scratch/run/a.h5", 10, 30 * DAY - HOUR);
    site.file("kept/run/a.h5", 10, 300 * DAY);
    let first = site.days_after("scratch/run/a.h5", 30);
    let straight = |from: &str, to: &str, more: &[&str]| {
        let to = site.path(to).display().to_string();
        let request = site.offload(from, &[&["--to", &to], more].concat());
        let id = id(&request).to_owned();
        match more.contains(&"--dry-run") {
            true => request,
            false => (site.service).wait_until(&id, |request| request["state"] == "arrived"),
        }
    };
    let rehearsed = straight("scratch/run", "one", &["--dry-run"]);
    assert_eq!(dates(&rehearsed), (Some(first), first), "{rehearsed}");
    let bound = straight("scratch/run", "one", &[]);
    assert_eq!(dates(&bound), (Some(first), first), "{bound}");
    let said = in_hours(2);
    let own = straight("scratch/run", "two", &["--purge-at", &said.to_string()]);
    assert_eq!(dates(&own), (Some(said), said), "{own}");
    let free = straight("kept/run", "three", &[]);
    assert_eq!(free["purge_at"], Value::Null, "{free}");
    assert!(is_due_as_asked(&free), "{free}");
}
