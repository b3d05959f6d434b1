//! `posthaste reserve` against stand-ins for OSCARS and NSI.

use std::{
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output},
};

use posthaste_testbed::{NsiStandIn, OscarsStandIn};
use serde_json::Value;
use tempfile::TempDir;

const TOKEN: &str = "a-token-that-nobody-may-see";

struct Site {
    server: OscarsStandIn,
    folder: TempDir,
}

impl Site {
    /// Starts a link of 1 Gbit/s.
    fn open() -> Self {
        let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
        let site = Self {
            server,
            folder: tempfile::tempdir().unwrap(),
        };
        site.show(TOKEN);
        let address = site.server.address();
        let text = format!(
            r#"
            [[circuit]]
            name = "east"
            provider = "oscars"
            address = "{address}"
            token_file = "token"
            leads_to = ["lab"]
            rate_max = "10Gbit"
            patience_s = 60
            ends = [
                {{ junction = "a", port = "a:1", vlan = 3000 }},
                {{ junction = "z", port = "z:1", vlan = 3000 }},
            ]
            "#
        );
        std::fs::write(site.file(), text).unwrap();
        site
    }

    fn show(&self, token: &str) {
        let file = self.folder.path().join("token");
        std::fs::write(&file, token).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("circuits.toml")
    }

    fn reserve(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command
            .env_clear()
            .env("HOME", self.folder.path())
            .arg("reserve");
        command.args(arguments).arg("--circuits").arg(self.file());
        command.output().unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.reserve(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Checks that the command fails with this code and one line that contains `says`.
    fn fails(&self, code: i32, says: &str, arguments: &[&str]) {
        let output = self.reserve(arguments);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {line}");
        assert!(line.contains(says), "{line}");
        assert!(!line.contains(TOKEN), "{line}");
        assert!(output.stdout.is_empty());
    }
}

const HOUR: [&str; 6] = ["--rate", "600Mbit", "--from", "1h", "--until", "2h"];

#[test]
fn bandwidth_is_reserved_shown_changed_and_given_back() {
    let site = Site::open();
    let new = [&["new", "--to", "lab", "--key", "night-7"][..], &HOUR].concat();
    let one = site.json(&new);
    assert_eq!(
        (&one["state"], &one["circuit"]),
        (&"reserved".into(), &"east".into())
    );
    assert_eq!(one["rate_bytes_per_s"], 75_000_000);
    let id = one["id"].as_str().unwrap();
    assert_eq!(
        site.json(&new)["id"],
        one["id"],
        "the same name is the same reservation"
    );
    assert_eq!(site.server.taken(), 1);
    assert_eq!(site.json(&["list"])[0]["key"], "night-7");
    let there = ["--provider", "east", id];
    let changed = site.json(&[&["modify", "--rate", "200Mbit"][..], &there].concat());
    assert_eq!(changed["rate_bytes_per_s"], 25_000_000);
    assert_eq!(site.json(&[&["show"][..], &there].concat()), changed);
    let shown = String::from_utf8(site.reserve(&["list"]).stdout).unwrap();
    assert!(
        shown.starts_with("CIRCUIT") && shown.contains("200 Mbit/s"),
        "{shown}"
    );
    assert!(
        site.reserve(&[&["release"][..], &there].concat())
            .status
            .success()
    );
    assert!(
        site.reserve(&[&["release"][..], &there].concat())
            .status
            .success()
    );
    assert_eq!(site.json(&["list"]), Value::Array(Vec::new()));
    assert_eq!(site.server.taken(), 0);
}

#[test]
fn a_volume_is_tried_out_without_asking() {
    let site = Site::open();
    let wish = [
        "new",
        "--provider",
        "east",
        "--volume",
        "100G",
        "--rate",
        "1Gbit",
        "--dry-run",
    ];
    let terms = site.json(&[&wish[..], &["--deadline", "2h"]].concat());
    assert_eq!(terms["rate_bytes_per_s"], 125_000_000);
    assert!(terms["from"].as_str() < terms["until"].as_str());
    site.fails(
        11,
        "later deadline",
        &[&wish[..], &["--deadline", "10m"]].concat(),
    );
    assert_eq!(site.server.holds(), 0);
}

#[test]
fn a_no_is_told_with_what_would_fit() {
    let site = Site::open();
    site.json(&[&["new", "--provider", "east"][..], &HOUR].concat());
    site.fails(
        11,
        "400 Mbit/s would fit",
        &[&["new", "--provider", "east"][..], &HOUR].concat(),
    );
    assert_eq!(site.server.taken(), 1);
}

#[test]
fn what_makes_no_sense_has_the_codes_of_the_reference() {
    let site = Site::open();
    let east = |more: &[&'static str]| [&["new", "--provider", "east"][..], more].concat();
    site.fails(2, "rate", &east(&["--rate", "fast", "--until", "1h"]));
    site.fails(
        2,
        "has passed",
        &east(&["--rate", "1Gbit", "--until", "2001-01-01T00:00:00Z"]),
    );
    site.fails(
        2,
        "after the start",
        &east(&["--rate", "1Gbit", "--from", "2h", "--until", "1h"]),
    );
    site.fails(2, "--volume", &east(&["--deadline", "1h"]));
    site.fails(
        2,
        "has east",
        &[&["new", "--provider", "west"][..], &HOUR].concat(),
    );
    site.fails(
        2,
        "leads there",
        &[&["new", "--to", "moon"][..], &HOUR].concat(),
    );
    site.fails(
        2,
        "no connection of OSCARS",
        &["show", "--provider", "east", "../x"],
    );
    site.fails(
        4,
        "no connection",
        &["show", "--provider", "east", "phnothere"],
    );
    site.show("another");
    site.fails(
        7,
        "credential",
        &[&["new", "--provider", "east"][..], &HOUR].concat(),
    );
    std::fs::write(site.file(), "[[circuit]]\nname = 7\n").unwrap();
    site.fails(2, "line 2", &["list"]);
    std::fs::remove_file(site.file()).unwrap();
    site.fails(4, "circuits.toml", &["list"]);
}

#[test]
fn a_server_that_is_away_is_worth_another_try() {
    let Site { server, folder } = Site::open();
    drop(server);
    let output = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["reserve", "list", "--circuits"])
        .arg(folder.path().join("circuits.toml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{output:?}");
}

#[test]
fn bandwidth_of_an_nsi_provider_is_reserved_too() {
    let site = Site::open();
    let provider = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let stp = |port: &str| format!("{}{port}?vlan=1780-1790", NsiStandIn::NETWORK);
    let text = format!(
        "[[circuit]]\nname = 'far'\nprovider = 'nsi'\naddress = '{}'\ntoken_file = 'token'\nleads_to = ['lab']\n\
         rate_max = '10Gbit'\npatience_s = 60\nrequester_nsa = '{}'\nprovider_nsa = '{}'\nstps = ['{}', '{}']\n",
        provider.address(),
        NsiStandIn::REQUESTER,
        NsiStandIn::PROVIDER,
        stp("lbl"),
        stp("iu")
    );
    std::fs::write(site.file(), text).unwrap();
    let new = [&["new", "--to", "lab", "--key", "night-7"][..], &HOUR].concat();
    let one = site.json(&new);
    assert_eq!(
        (&one["state"], &one["key"]),
        (&"reserved".into(), &"night-7".into())
    );
    assert_eq!(site.json(&new)["id"], one["id"]);
    let there = ["--provider", "far", one["id"].as_str().unwrap()];
    let changed = site.json(&[&["modify", "--rate", "200Mbit"][..], &there].concat());
    assert_eq!(changed["rate_bytes_per_s"], 25_000_000);
    let more = [
        "new", "--to", "lab", "--rate", "900Mbit", "--from", "1h", "--until", "2h",
    ];
    site.fails(11, "800 Mbit/s would fit", &more);
    assert!(
        site.reserve(&[&["release"][..], &there].concat())
            .status
            .success()
    );
    assert_eq!(site.json(&["list"]), Value::Array(Vec::new()));
    assert_eq!((provider.taken(), provider.left()), (0, 0));
}
