//! A running service loads other settings, or none if one is wrong.

use std::{fs, path::PathBuf, thread, time::Duration};

use crate::support::processes::{PATIENCE, Relay, Service, make_tree, now, text};

struct Scene {
    folder: tempfile::TempDir,
    service: Service,
    _relay: Relay,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let write =
            |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
        write("alarms.toml", &alarm(&folder.path().join("first")));
        let alarms = folder.path().join("alarms.toml");
        write("posthaste.toml", &format!("[serve]\nalarms = {alarms:?}\n"));
        let settings = folder.path().join("posthaste.toml");
        let service = Service::start_with(folder.path(), &["--config", settings.to_str().unwrap()]);
        service.add(&relay);
        make_tree(&folder.path().join("run"), 3, 1);
        Self {
            folder,
            service,
            _relay: relay,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes settings after the fixed ones, reloads them, and waits until the log says so.
    fn reload(&self, more: &str, told: &str) {
        let alarms = self.path("alarms.toml");
        let settings = format!("[serve]\nalarms = {alarms:?}\n{more}");
        fs::write(self.path("posthaste.toml"), settings).unwrap();
        let before = self.log().len();
        self.service.process.signal("HUP");
        wait(told, || self.log()[before..].contains(told));
        // In one line.
        let log = self.log();
        let line = log[before..]
            .lines()
            .find(|line| line.contains(told))
            .unwrap();
        assert!(line.contains("settings"), "{line}");
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("service.log")).unwrap()
    }

    /// Submits a request, and waits until the alarm's program was called.
    fn is_told(&self, file: &str) {
        let source = self.path("run");
        let what = ["offload", source.to_str().unwrap(), "--to", "home"];
        let how = [
            "--deadline",
            "10m",
            "--via",
            "ash",
            "--code",
            "1+0",
            "--json",
        ];
        let request = self.service.json(&[&what[..], &how].concat());
        let id = request["id"].as_str().unwrap();
        let line = format!("{id}\n");
        wait(file, || {
            let told = fs::read_to_string(self.path(file));
            told.is_ok_and(|told| told.contains(&line))
        });
    }
}

/// Returns an alarm that records admitted requests.
fn alarm(to: &std::path::Path) -> String {
    let script = format!("echo $POSTHASTE_REQUEST >> {}", to.display());
    format!(
        "[[alarm]]\nname = \"siren\"\non = [\"admitted\"]\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\n"
    )
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let start = now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what} never comes");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn alarms_and_other_settings_change_while_a_service_runs() {
    let scene = Scene::new();
    scene.is_told("first");
    let first = fs::read_to_string(scene.path("first")).unwrap();
    fs::write(scene.path("alarms.toml"), alarm(&scene.path("second"))).unwrap();
    let audit = format!("audit = {:?}\n", scene.path("audit"));
    let more = format!("{audit}way_out = \"80M\"\nbehind_tls = true\n");
    scene.reload(
        &more,
        "changed alarms, audit, way_out; a restart is needed for",
    );
    scene.is_told("second");
    // The one before hears nothing any more, nor is anything told twice.
    assert_eq!(fs::read_to_string(scene.path("first")).unwrap(), first);
    let second = fs::read_to_string(scene.path("second")).unwrap();
    assert_eq!(second.lines().count(), 1, "{second}");
    let noted = fs::read_to_string(scene.path("audit")).unwrap();
    let calls = noted.lines().filter(|line| line.contains("\"method\""));
    assert_eq!(calls.count(), 1, "{noted}");
    scene.reload(&more, "a restart is needed for behind_tls");
    // Whoever is told no more may be told again.
    fs::write(scene.path("alarms.toml"), "").unwrap();
    scene.reload(&audit, "changed alarms, way_out");
    fs::write(scene.path("alarms.toml"), alarm(&scene.path("third"))).unwrap();
    scene.reload(&audit, "changed alarms");
    scene.is_told("third");
}

#[test]
fn what_is_said_changes_while_a_service_runs() {
    let scene = Scene::new();
    let calls = || scene.log().matches("method=").count();
    let ask = || assert!(scene.service.run(&["whoami"]).status.success());
    ask();
    assert_eq!(calls(), 0, "{}", scene.log());
    scene.reload("log_level = \"debug\"\n", "changed log_level");
    ask();
    assert!(calls() > 0, "{}", scene.log());
    let more = "log_level = \"debug\"\nlog_format = \"json\"\ntraces = \"http://127.0.0.1:9\"\n";
    scene.reload(more, "again; a restart is needed for log_format, traces");
    // The line that says so is the last for a while, and the one that says that others follow is
    // the first.
    scene.reload("log_level = \"error\"\n", "changed log_level");
    let before = scene.log();
    ask();
    assert_eq!(scene.log(), before);
    scene.reload("", "changed log_level");
    ask();
    assert_eq!(scene.log().lines().count(), before.lines().count() + 1);
}

#[test]
fn a_setting_that_is_wrong_changes_nothing() {
    let scene = Scene::new();
    let audit = format!("audit = {:?}\n", scene.path("audit"));
    let line = format!("{}:4: `way_out`", scene.path("posthaste.toml").display());
    scene.reload(&format!("{audit}way_out = \"much\"\n"), &line);
    let wrong = "[oidc]\nissuer = \"http://id.example\"\nclient_id = \"p\"\n";
    scene.reload(&format!("{audit}{wrong}"), "posthaste.toml:5:");
    scene.reload(
        &format!("{audit}scratch = \"/nowhere/at/all\"\n"),
        "/nowhere/at/all",
    );
    let wrong = alarm(&scene.path("second")).replace("admitted", "admited");
    fs::write(scene.path("alarms.toml"), wrong).unwrap();
    scene.reload(&audit, "alarms.toml");
    assert!(!scene.path("audit").exists());
    scene.is_told("first");
    assert!(!scene.path("audit").exists());
    assert!(!scene.path("second").exists());
    let said = text(&scene.service.run(&["whoami"]).stdout);
    assert!(said.contains("operate"), "{said}");
    // Standing still is no reason to complain.
    fs::write(scene.path("alarms.toml"), alarm(&scene.path("first"))).unwrap();
    scene.reload("", "nothing is new");
}
