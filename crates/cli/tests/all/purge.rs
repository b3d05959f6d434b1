//! `posthaste purge-report` on real trees: what is purged when, what is safe elsewhere, and that
//! nothing is changed.

use std::{
    fs::{self, File, FileTimes},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, SystemTime},
};

use crate::support::processes::{Relay, Service, text};
use serde_json::Value;

const DAY: Duration = Duration::from_secs(86_400);
/// Kills until some must have come in the middle.
const KILLS_MAX: usize = 1_000;

const ATIME_30: &str = "[[rule]]\nname = \"old\"\nclock = \"atime\"\ndays = 30\n";

#[expect(
    clippy::disallowed_methods,
    reason = "the program under test reads the real clock"
)]
fn days_ago(days: u32) -> SystemTime {
    SystemTime::now() - DAY * days
}

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        fs::write(folder.path().join("policy"), policy).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a file below `tree` that was last read and written so many days ago, less an hour.
    fn file(&self, name: &str, read: u32, written: u32) {
        let path = self.path("tree").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "0123456789").unwrap();
        let ago = |days: u32| days_ago(days) + Duration::from_secs(3600);
        let times = FileTimes::new()
            .set_accessed(ago(read))
            .set_modified(ago(written));
        File::open(&path).unwrap().set_times(times).unwrap();
    }

    fn command(&self, more: &[&str]) -> Command {
        self.command_on(&self.path("tree"), more)
    }

    fn command_on(&self, path: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command
            .env("XDG_STATE_HOME", self.path("state"))
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("TZ", "UTC")
            .arg("purge-report")
            .arg(path)
            .args(more);
        command
    }

    fn report(&self, more: &[&str]) -> Output {
        let policy = self.path("policy");
        let mut command = self.command(more);
        command.arg("--policy").arg(policy).output().unwrap()
    }

    fn json(&self, more: &[&str]) -> Value {
        let output = self.report(&[more, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Returns all times of a file or directory but that of its creation.
fn times(path: &Path) -> [i64; 6] {
    let now = fs::symlink_metadata(path).unwrap();
    [
        now.atime(),
        now.atime_nsec(),
        now.mtime(),
        now.mtime_nsec(),
        now.ctime(),
        now.ctime_nsec(),
    ]
}

#[test]
fn a_report_says_what_goes_when_and_what_to_offload_first_and_touches_nothing() {
    let site = Site::new(ATIME_30);
    site.file("run 7/a.h5", 29, 40);
    site.file("run 7/b.h5", 20, 40);
    site.file("run8/c.h5", 28, 1);
    site.file("run8/young", 1, 1);
    let tree = site.path("tree");
    let all = ["run 7/a.h5", "run 7", "run8/c.h5", "run8", "."].map(|name| tree.join(name));
    let before: Vec<[i64; 6]> = all.iter().map(|path| times(path)).collect();
    let said = site.report(&[]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let told = text(&said.stdout);
    for wanted in [
        "4 files, 40 B in 3 directories",
        "later       1      10 B",
        "To offload first:",
        "30 d after atime",
        "posthaste offload '",
        "/tree/run 7' --to NAME --via DEPOT,DEPOT --deadline 20",
    ] {
        assert!(told.contains(wanted), "{wanted}\n{told}");
    }
    let (seven, eight) = (told.find("run 7").unwrap(), told.find("run8").unwrap());
    assert!(seven < eight, "the first to go comes first\n{told}");
    let after: Vec<[i64; 6]> = all.iter().map(|path| times(path)).collect();
    assert_eq!(before, after);
    // Directories that changed a moment before they were listed are listed again.
    let mut reports = (0..50).map(|_| {
        sleep(Duration::from_millis(200));
        site.json(&["--within", "3d"])
    });
    let json = reports.find(|json| json["scan"]["listed"] == 0).unwrap();
    assert_eq!(json["days"].as_array().unwrap().len(), 2);
    assert_eq!(json["later"]["files"], 2);
    assert_eq!(json["directories"][0]["dying"]["bytes"], 10);
    assert_eq!(
        json["scan"]["looked_at"], 2,
        "what is far away is left alone"
    );
    assert_eq!(site.json(&["--full", "--summary"])["scan"]["looked_at"], 4);
    assert_eq!(
        site.json(&["--depth", "0"])["directories"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn one_file_is_told_of_by_itself() {
    let site = Site::new(ATIME_30);
    site.file("run/old.h5", 20, 40);
    let file = site.path("tree/run/old.h5");
    let before = times(&file);
    let policy = site.path("policy");
    let ask = |path: &Path, more: &[&str]| {
        let mut command = site.command_on(path, more);
        command.arg("--policy").arg(&policy).output().unwrap()
    };
    // A link to it is about what it leads to, as one to a directory is.
    let link = site.path("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link] {
        let said = text(&ask(path, &[]).stdout);
        let shown = file.to_str().unwrap();
        for words in [
            &format!("{shown}: 10 B, last read "),
            "goes certainly from ",
            "rule `old` (line 1)",
            &format!("posthaste offload {shown} --to NAME"),
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    let output = ask(&file, &["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let goes: jiff::Timestamp = json["goes"].as_str().unwrap().parse().unwrap();
    let wanted = before[0] + 30 * 86_400;
    assert_eq!(goes.as_second(), wanted, "{json}");
    assert_eq!(
        (&json["rule"], &json["safe"]),
        (&"old".into(), &false.into())
    );

    fs::write(&policy, "exempt = [\"*.h5\"]\n".to_owned() + ATIME_30).unwrap();
    let said = text(&ask(&file, &[]).stdout);
    assert!(
        said.contains("no rule of") && !said.contains("offload"),
        "{said}"
    );
    let missing = ask(&site.path("tree/run/gone.h5"), &[]);
    assert_eq!(missing.status.code(), Some(3));
    let said = text(&missing.stderr);
    assert!(said.contains("name a directory or a file"), "{said}");
    assert_eq!(times(&file), before);
    assert!(!site.path("state").exists(), "nothing is remembered");
}

#[test]
fn policies_of_robinhood_and_scale_are_taken_and_a_wrong_line_is_named() {
    let robinhood = "fileclass keep { definition { name == \"*.keep\" } }\n\
        cleanup_rules {\n ignore_fileclass = keep;\n rule default { condition { last_access > 10d } }\n}\n\
        cleanup_trigger { trigger_on = scheduled; check_interval = 1d; }\nhook_rules { x = 1; }\n";
    let scale = "RULE 'keep' EXCLUDE WHERE NAME LIKE '%.keep'\n\
        RULE 'old' DELETE WHERE (DAYS(CURRENT_TIMESTAMP) - DAYS(ACCESS_TIME) > 10)\nRULE 'm' MIGRATE TO POOL 'x'\n";
    for (policy, language, remark) in [
        (robinhood, "robinhood", "line 7"),
        (scale, "scale", "line 3"),
    ] {
        let site = Site::new(policy);
        site.file("a", 20, 0);
        site.file("b.keep", 20, 0);
        site.file("c", 1, 0);
        let said = site.report(&["--json"]);
        assert!(
            text(&said.stderr).contains(remark),
            "{}",
            text(&said.stderr)
        );
        let json: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(json["policy"]["language"], language);
        assert_eq!(
            (&json["days"][0]["all"]["files"], &json["never"]["files"]),
            (&1.into(), &1.into())
        );
    }
    let wrong = Site::new("[[rule]]\nclock = \"atime\"\ndayz = 30\n").report(&[]);
    let said = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        said.contains("line 3: ") && said.contains("dayz") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn without_a_policy_it_is_said_how_to_write_one_and_that_line_works() {
    let site = Site::new(ATIME_30);
    site.file("a", 100, 0);
    let said = site.command(&[]).output().unwrap();
    let line = text(&said.stderr);
    assert_eq!(
        (said.status.code(), line.lines().count()),
        (Some(2), 1),
        "{line}"
    );
    let rule = line.split('`').nth(1).unwrap();
    fs::create_dir_all(site.path("config/posthaste")).unwrap();
    fs::write(site.path("config/posthaste/purge.toml"), rule).unwrap();
    let said = site.command(&["--json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(json["days"][0]["all"]["files"], 1, "{}", text(&said.stderr));
    let missing = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["purge-report", "/nowhere/at/all", "--policy"])
        .arg(site.path("policy"))
        .output()
        .unwrap();
    assert_eq!(
        (missing.status.code(), text(&missing.stderr).lines().count()),
        (Some(3), 1)
    );
}

#[test]
fn a_cache_lies_never_in_the_tree_and_a_broken_one_is_said() {
    let site = Site::new(ATIME_30);
    site.file("a", 1, 1);
    let inside = site.path("tree/cache");
    let refused = site.report(&["--cache", inside.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(!inside.exists());
    let cache = site.path("cache");
    let named = ["--cache", cache.to_str().unwrap()];
    site.json(&named);
    let mut bytes = fs::read(&cache).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&cache, bytes).unwrap();
    let said = site.report(&named);
    assert_eq!(said.status.code(), Some(0));
    assert!(
        text(&said.stderr).contains("is not believed"),
        "{}",
        text(&said.stderr)
    );
    assert_eq!(text(&site.report(&named).stderr), "", "it was written anew");
}

#[test]
fn killed_in_the_middle_it_leaves_what_was_remembered_whole() {
    let site = Site::new(ATIME_30);
    for number in 0..6000 {
        let path = site.path(&format!("tree/d{}", number % 300));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(number.to_string()), "").unwrap();
    }
    let cache = site.path("cache");
    let arguments = ["--cache", cache.to_str().unwrap(), "--json", "--policy"];
    let beside = site.path("cache.new");
    let whole = site.json(&["--cache", cache.to_str().unwrap()]);
    assert_eq!(whole["total"]["files"], 6000);
    let mut in_the_middle = 0;
    // On a busy machine most kills come too late.
    for turn in (0..40).cycle().take(KILLS_MAX) {
        let before = fs::metadata(&cache).unwrap().ino();
        let mut child = site
            .command(&arguments)
            .arg(site.path("policy"))
            .args(["--full", "--at-once", "1"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        while !beside.exists() && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_micros(200));
        }
        sleep(Duration::from_micros(500 * turn));
        child.kill().unwrap();
        child.wait().unwrap();
        let is_unchanged = fs::metadata(&cache).unwrap().ino() == before;
        in_the_middle += u32::from(is_unchanged && beside.exists());
        let said = site.report(&["--cache", cache.to_str().unwrap(), "--json"]);
        assert_eq!(
            text(&said.stderr),
            "",
            "turn {turn}: what is remembered is whole"
        );
        let json: Value = serde_json::from_slice(&said.stdout).unwrap();
        assert_eq!(json["total"], whole["total"], "turn {turn}");
        if in_the_middle == 3 {
            return;
        }
    }
    panic!("it was never killed in the middle");
}

#[test]
fn what_a_service_made_safe_is_safe_elsewhere_until_it_changes() {
    let site = Site::new(ATIME_30);
    for name in ["run/a", "run/b", "other/c"] {
        site.file(name, 29, 40);
    }
    let folder = site.folder.path();
    let relays: Vec<Relay> = ["ash", "birch"]
        .iter()
        .map(|name| Relay::start(folder, name, "1G", "100M"))
        .collect();
    let service = Service::start(folder);
    relays.iter().for_each(|relay| service.add(relay));
    let run = site.path("tree/run");
    let arguments = [
        "offload",
        run.to_str().unwrap(),
        "--to",
        "home",
        "--deadline",
        "10m",
        "--via",
        "ash,birch",
        "--code",
        "1+1",
        "--wait",
        "--json",
    ];
    service.json(&arguments);
    // It was read: that is as good as a new life to this purge, so the times are put back.
    site.file("other/c", 29, 40);
    for name in ["run/a", "run/b"] {
        let path = site.path("tree").join(name);
        let old = days_ago(29);
        let times = FileTimes::new().set_accessed(old);
        File::open(&path).unwrap().set_times(times).unwrap();
    }
    let tree = site.path("tree");
    let policy = site.path("policy");
    let cache = site.path("cache");
    let report = |path: &Path| {
        service.json(&[
            "purge-report",
            path.to_str().unwrap(),
            "--policy",
            policy.to_str().unwrap(),
            "--cache",
            cache.to_str().unwrap(),
            "--json",
        ])
    };
    let one = report(&run.join("a"));
    assert_eq!(
        (&one["safe"], &one["offload"]),
        (&true.into(), &Value::Null)
    );
    let json = report(&tree);
    let days = json["days"].as_array().unwrap();
    let safe: u64 = days
        .iter()
        .map(|day| day["safe"]["files"].as_u64().unwrap())
        .sum();
    assert_eq!(safe, 2, "{json}");
    let directories = json["directories"].as_array().unwrap();
    assert_eq!(directories.len(), 1);
    let line = directories[0]["offload"].as_str().unwrap();
    assert!(line.contains("/other --to home --via ash,birch"), "{line}");
    // One is written again: what is elsewhere is not what is here.
    site.file("run/a", 29, 35);
    let json = report(&tree);
    assert_eq!(json["directories"].as_array().unwrap().len(), 2, "{json}");
}
