//! A file of settings: checked, and its effect on real services and relays.

use std::{fs, path::Path, process::Command};

use crate::support::processes::{Process, binary, failure, text};
use posthaste_testbed::install;

fn write(folder: &Path, content: &str) -> String {
    let file = folder.join("posthaste.toml");
    fs::write(&file, content).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_file_is_checked_with_all_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let alarms = folder.path().join("alarms.toml");
    fs::write(&alarms, "").unwrap();
    let file = write(
        folder.path(),
        &format!(
            "[serve]\nscratch = \"/scratch\"\nalarms = {alarms:?}\n[relay]\ncapacity = \"1G\"\n"
        ),
    );
    let checked = binary().args(["check-config", &file]).output().unwrap();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("3 settings"));
    // A relay's directory may be typed.
    assert!(text(&checked.stdout).contains("still needs --dir"));

    fs::write(&alarms, "[[alarm]]\nnaem = 1\n").unwrap();
    let (code, said) = failure(&binary().args(["check-config", &file]).output().unwrap());
    assert!(said.contains("alarms.toml"), "{said}");
    assert_ne!(code, 0);
    let file = write(folder.path(), "[serve]\nsource_url = \"https://x\"\n");
    let checked = binary().args(["check-config", &file]).output().unwrap();
    assert!(text(&checked.stdout).contains("still needs --source-listen"));
    let file = write(folder.path(), "[serve]\nlisten = 5\n\nqueue = \"lsf\"\n");
    for command in [&["check-config", &file][..], &["serve", "--config", &file]] {
        let said = text(&binary().args(command).output().unwrap().stderr);
        assert!(said.contains("posthaste.toml:2: `listen`"), "{said}");
        assert!(said.contains("posthaste.toml:4: `queue`"), "{said}");
    }
    for missing in ["check-config", "serve"] {
        let asked: &[&str] = match missing {
            "serve" => &["serve", "--config", "/nowhere.toml"],
            _ => &["check-config", "/nowhere.toml"],
        };
        let (_, said) = failure(&binary().args(asked).output().unwrap());
        assert!(said.contains("can't read /nowhere.toml"), "{said}");
    }
}

#[test]
fn a_service_and_a_relay_start_with_their_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (state, dir) = (path("state"), path("relay"));
    let file = write(
        folder.path(),
        &format!(
            "[serve]\nstate = {state:?}\nlisten = \"127.0.0.1:0\"\n[relay]\ndir = {dir:?}\ncapacity = \"1G\"\n\
             listen = \"127.0.0.1:0\"\nname = \"settled\"\nhours = \"20-06\"\n"
        ),
    );
    let mut command = binary();
    let service = Process::run(
        command.args(["serve", "--json", "--config", &file]),
        &path("service.log"),
    );
    assert_eq!(
        service.ready["token_file"],
        state.join("token").to_str().unwrap()
    );
    let mut command = binary();
    let typed = format!("--config={file}");
    let relay = Process::run(
        command.args(["relay", "--json", &typed, "--name", "typed"]),
        &path("relay.log"),
    );
    assert_eq!(relay.ready["name"], "typed");
    assert_eq!(relay.ready["hours"], "20-06");
    assert!(dir.join("identity").is_dir());
}

#[test]
fn the_units_of_systemd_start_what_there_is() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
    for unit in fs::read_dir(units).unwrap() {
        let unit = fs::read_to_string(unit.unwrap().path()).unwrap();
        let starts = unit
            .lines()
            .filter_map(|line| line.strip_prefix("ExecStart"));
        for start in starts {
            let (_, words) = start.split_once("/usr/bin/posthaste ").unwrap();
            let words: Vec<&str> = words.split(' ').collect();
            let help = binary().args([words[0], "--help"]).output().unwrap();
            let help = text(&help.stdout);
            for option in words.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(option), "{option}: {help}");
            }
        }
    }
}

#[test]
fn the_units_are_such_as_systemd_takes() {
    let systemd_analyze = install::find_debian_program(install::SYSTEMD_ANALYZE).unwrap();
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
    let folder = tempfile::tempdir().unwrap();
    let mut verifying = Command::new(systemd_analyze);
    verifying.args(["verify", "--man=no"]);
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        // What is not installed here stands where the tests have it.
        let text = fs::read_to_string(unit.path()).unwrap();
        let text = text.replace("/usr/bin/posthaste", env!("CARGO_BIN_EXE_posthaste"));
        let copy = folder.path().join(unit.file_name());
        fs::write(&copy, text).unwrap();
        verifying.arg(copy);
    }
    let verified = verifying.output().unwrap();
    let said = text(&verified.stderr);
    assert!(verified.status.success() && said.is_empty(), "{said}");
}
