//! Logs of a running service, relay, mover and gateway, as programs read them.

use std::{collections::BTreeSet, fs, path::Path};

use crate::support::processes::{
    Gateway, Process, Relay, Service, binary, failure, make_tree, text,
};
use serde_json::Value;

const AS_JSON: [&str; 4] = ["--log-format", "json", "--log-level", "debug"];

/// Returns every line of a log, each an object with the common fields.
fn lines(log: &Path) -> Vec<Value> {
    let said = fs::read_to_string(log).unwrap();
    // The last line may be half written.
    let (said, _) = said.rsplit_once('\n').unwrap_or_default();
    let read = |line: &str| -> Value {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "no {key}: {line}");
        }
        let target = line["target"].as_str().unwrap();
        assert!(target.starts_with("posthaste"), "another's: {line}");
        line
    };
    said.lines().map(read).collect()
}

fn offloaded(service: &Service, scratch: &Path) -> String {
    let words = ["offload", scratch.to_str().unwrap(), "--to", "home"];
    let more = [
        "--via",
        "ash",
        "--deadline",
        "10m",
        "--code",
        "1+0",
        "--json",
    ];
    let request = service.json(&[&words[..], &more].concat());
    let id = request["id"].as_str().unwrap().to_owned();
    service.wait_until(&id, |request| request["state"] == "safe");
    id
}

#[test]
fn lines_are_objects_that_say_what_they_are_about_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start_with(folder, "ash", "1G", "8M", &AS_JSON);
    let service = Service::start_with(folder, &AS_JSON);
    let gateway = Gateway::start_with(&folder.join("gateway"), &AS_JSON);
    service.add(&relay);
    let token = folder.join("movers.token");
    let made = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = service.run(&[&made[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let mut mover = binary();
    mover
        .args(["mover", "--json", "--name", "elm"])
        .args(AS_JSON);
    mover.args(["--server", &service.url, "--token-file"]);
    let mover = Process::run(mover.arg(&token), &folder.join("elm.log"));
    let scratch = folder.join("run");
    make_tree(&scratch, 6, 1);
    let id = offloaded(&service, &scratch);
    mover.signal("TERM");

    let said = lines(&folder.join("service.log"));
    let admitted = said.iter().find(|line| line["event"] == "admitted");
    let admitted = admitted.expect("it says what happened");
    assert_eq!(
        (&admitted["request"], &admitted["level"]),
        (&Value::from(id), &"INFO".into())
    );
    let joined = |line: &Value| line["mover"] == "elm" && line["level"] == "INFO";
    assert!(said.iter().any(joined), "{said:#?}");
    let by_mover = lines(&folder.join("elm.log"));
    assert!(by_mover.iter().any(joined), "{by_mover:#?}");

    let mut secrets = BTreeSet::new();
    let ready = &relay.process.ready;
    for file in [
        service.state.join("token"),
        token,
        ready["secret_file"].as_str().unwrap().into(),
        gateway.secret_file().into(),
    ] {
        secrets.insert(fs::read_to_string(file).unwrap().trim().to_owned());
    }
    for log in ["service", "ash", "elm", "gateway"] {
        let log = folder.join(log).with_extension("log");
        lines(&log);
        let said = fs::read_to_string(&log).unwrap();
        for secret in &secrets {
            assert!(!said.contains(secret.as_str()), "{}", log.display());
        }
        assert!(!said.contains("Bearer"), "{}", log.display());
    }
}

#[test]
fn levels_choose_what_is_said_by_module() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start(folder, "ash", "1G", "8M");
    let mut service = Service::start_with(folder, &["--log-level", "info,posthaste::event=warn"]);
    service.add(&relay);
    let scratch = folder.join("run");
    make_tree(&scratch, 2, 1);
    let id = offloaded(&service, &scratch);
    service.kill();
    let said = fs::read_to_string(folder.join("service.log")).unwrap();
    assert!(!said.contains(&id), "{said}");

    let wrong = ["serve", "--log-level", "loud", "--state"];
    let wrong = binary().args(wrong).arg(folder.join("other")).output();
    let wrong = wrong.unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let complained = text(&wrong.stderr);
    assert!(complained.contains("`loud` is no level"), "{complained}");
    let file = folder.join("posthaste.toml");
    fs::write(&file, "[serve]\n\nlog_level = \"loud\"\n").unwrap();
    let wrong = binary().args(["serve", "--config"]).arg(&file).output();
    let (code, complained) = failure(&wrong.unwrap());
    assert_eq!(code, 7);
    assert!(complained.contains("posthaste.toml:3:"), "{complained}");
}
