//! Many requests in one call, with a real service and a real relay.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use crate::support::processes::{Relay, Service, failure, text};
use serde_json::{Value, json};

const LINES: usize = 600;

struct Centre {
    folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

impl Centre {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let service = Service::start(folder.path());
        service.add(&relay);
        fs::write(folder.path().join("one"), "a byte or two").unwrap();
        Self {
            folder,
            _relay: relay,
            service,
        }
    }

    fn line(&self, submission: &str) -> Value {
        let source = self.folder.path().join("one");
        json!({
            "source": source, "to": "home", "via": ["ash"], "code": "1+0", "best_effort": true,
            "deadline": "2099-01-01T00:00:00Z", "submission_id": submission,
        })
    }

    /// Returns so many lines, each with an id of its own.
    fn lines(&self, count: usize) -> Vec<String> {
        let ids = (0..count).map(|number| format!("line-{number}"));
        ids.map(|id| self.line(&id).to_string()).collect()
    }

    fn write(&self, lines: &[String]) -> PathBuf {
        let path = self.folder.path().join("lines");
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path
    }

    /// Sends lines, and closes the connection after so many answers.
    fn send_and_break_off(&self, lines: &[String], answers: usize) {
        let address = self.service.url.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let body = lines.join("\n") + "\n";
        // Half a line is cut off, and more is promised than comes.
        let (body, length) = (&body[..body.len() - 40], body.len() + 100_000);
        let head = format!(
            "POST /v1/requests/bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\r\n",
            self.token(),
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let answered = BufReader::new(&stream).lines().map(Result::unwrap);
        let answered = answered.filter(|line| line.starts_with('{'));
        assert_eq!(answered.take(answers).count(), answers);
    }

    fn token(&self) -> String {
        fs::read_to_string(self.service.state.join("token"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Counts the requests.
    fn count(&self) -> usize {
        let all = self.service.json(&["list", "--json"]);
        all.as_array().unwrap().len()
    }
}

fn answers(output: &[u8]) -> Vec<Value> {
    let text = text(output);
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn many(service: &Service, path: &Path, more: &[&str]) -> std::process::Output {
    let path = path.to_str().unwrap();
    service.run(&[&["offload-many", path], more].concat())
}

#[test]
fn a_bad_line_keeps_no_other_and_what_is_sent_twice_is_taken_once() {
    let centre = Centre::new();
    let mut lines = centre.lines(LINES);
    let (bad, unknown, again) = (LINES / 2, LINES / 2 + 2, LINES - 3);
    lines[bad] = "{\"source\": 7}".to_owned();
    let mut wrong = centre.line("nowhere");
    wrong["via"] = json!(["nobody"]);
    lines[unknown] = wrong.to_string();
    lines[again] = lines[3].clone();
    lines.insert(10, String::new());
    let path = centre.write(&lines);
    let output = many(&centre.service, &path, &["--json"]);
    let (code, said) = failure(&output);
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("2 of 600 lines"), "{said}");
    let told = answers(&output.stdout);
    let numbers: Vec<u64> = told
        .iter()
        .map(|one| one["line"].as_u64().unwrap())
        .collect();
    let expected: Vec<u64> = (1..=LINES as u64 + 1).filter(|line| *line != 11).collect();
    assert_eq!(numbers, expected);
    let refused: Vec<&Value> = told
        .iter()
        .filter(|one| one["problem"].is_object())
        .collect();
    assert_eq!(refused[0]["line"], bad + 2, "{refused:?}");
    assert_eq!(refused[0]["problem"]["code"], "invalid", "{refused:?}");
    assert_eq!(refused[1]["line"], unknown + 2, "{refused:?}");
    assert_eq!(refused[1]["problem"]["code"], "not-found", "{refused:?}");
    assert_eq!(refused.len(), 2);
    assert_eq!(told[again]["id"], told[3]["id"]);
    let known = told.iter().filter(|one| one["known"] == true).count();
    assert_eq!((known, centre.count()), (1, LINES - 3));

    // All of it again, also by somebody who may read alone.
    let output = many(&centre.service, &path, &[]);
    assert_eq!(output.status.code(), Some(6));
    let said = text(&output.stdout);
    assert!(
        said.contains("598 requests taken, 598 of them before, 2 refused"),
        "{said}"
    );
    assert_eq!(centre.count(), LINES - 3);
    let missing = centre.service.run(&["offload-many", "/nowhere/lines"]);
    assert_eq!(failure(&missing).0, 4);
    let last = told.last().unwrap()["id"].as_str().unwrap().to_owned();
    let safe = |request: &Value| request["state"] == "safe" || request["state"] == "moving";
    centre.service.wait_until(&last, safe);
}

#[test]
fn a_dry_run_is_refused_as_submitting_is_however_many_were_before() {
    let centre = Centre::new();
    let mut line = centre.line("one");
    line["code"] = json!("2+1");
    let lines = (0..1010).map(|number| {
        line["submission_id"] = json!(format!("line-{number}"));
        line.to_string()
    });
    let lines: Vec<String> = lines.collect();
    let output = many(&centre.service, &centre.write(&lines), &["--json"]);
    for one in answers(&output.stdout).iter().rev().take(3) {
        let id = one["id"].as_str().unwrap();
        centre
            .service
            .wait_until(id, |request| request["state"] == "refused");
    }
    let source = centre.folder.path().join("one");
    let source = source.to_str().unwrap();
    let offload = ["offload", source, "--to", "home", "--via", "ash"];
    let more = ["--deadline", "10m", "--code", "2+1"];
    for dry in [&[][..], &["--dry-run"]] {
        let asked = [&offload[..], &more, dry].concat();
        let (code, said) = failure(&centre.service.run(&asked));
        assert_eq!(code, 11, "{dry:?}: {said}");
        assert!(said.contains("needs 3 depots"), "{dry:?}: {said}");
    }
}

#[test]
fn a_broken_connection_and_a_kill_lose_nothing_that_was_answered_and_double_nothing() {
    let mut centre = Centre::new();
    let lines = centre.lines(LINES);
    centre.send_and_break_off(&lines[..LINES / 4], LINES / 8);
    assert!(centre.count() >= LINES / 8);
    // Once more, and the service is killed while lines come.
    centre.send_and_break_off(&lines[..LINES / 2], LINES / 3);
    centre.service.kill();
    centre.service.restart();
    assert!(
        (LINES / 3..LINES / 2).contains(&centre.count()),
        "{}",
        centre.count()
    );

    let output = many(&centre.service, &centre.write(&lines), &["--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let told = answers(&output.stdout);
    let ids: BTreeSet<&str> = told.iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!(
        (told.len(), ids.len(), centre.count()),
        (LINES, LINES, LINES)
    );
    for one in [0, LINES / 4, LINES / 3, LINES - 1] {
        let id = told[one]["id"].as_str().unwrap();
        let is_scanned = |request: &Value| request["state"] != "scanning";
        let request = centre.service.wait_until(id, is_scanned);
        assert!(
            request["state"] == "safe" || request["state"] == "moving",
            "{request}"
        );
    }
}
