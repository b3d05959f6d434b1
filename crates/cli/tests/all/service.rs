//! The service from the outside: permissions, answers to invalid calls, and its start.

use std::{io::Write, net::TcpStream, os::unix::fs::PermissionsExt, path::Path};

use crate::support::ask::{ask, raw};
use crate::support::processes::{Relay, Service, binary, failure, make_tree, text};

#[test]
fn nothing_but_health_is_told_without_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let token = std::fs::read_to_string(service.state.join("token")).unwrap();
    let token = token.trim();
    assert!(ask(&service, "GET", "/v1/health", None, "").starts_with("HTTP/1.1 200"));
    for path in [
        "/v1/depots",
        "/v1/paths",
        "/v1/requests",
        "/v1/events",
        "/v1/metrics",
        "/v1/requests/r1/manifest",
    ] {
        for wrong in [None, Some("wrong"), Some("")] {
            let answer = ask(&service, "GET", path, wrong, "");
            assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
            assert!(answer.contains("\"unauthenticated\""), "{answer}");
            assert!(answer.contains("\nwww-authenticate: Bearer"), "{answer}");
            assert!(!answer.contains(token));
        }
    }
    assert!(ask(&service, "GET", "/v1/depots", Some(token), "").starts_with("HTTP/1.1 200"));
    for private in ["token", "journal.db", "secrets"] {
        let mode = std::fs::metadata(service.state.join(private))
            .unwrap()
            .permissions()
            .mode();
        let directory = std::fs::metadata(&service.state)
            .unwrap()
            .permissions()
            .mode();
        assert!(
            mode & 0o077 == 0 || directory & 0o077 == 0,
            "{private} {mode:o}"
        );
    }
}

const UNKNOWN_OPTIMIZER: &str = r#"{"source": "/", "to": "home", "via": [], "code": "1+0",
    "deadline": "2100-01-01T00:00:00Z", "optimizer": "best"}"#;

#[test]
fn nonsense_is_answered_in_our_words_and_the_service_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let token = std::fs::read_to_string(service.state.join("token")).unwrap();
    let token = Some(token.trim());
    for (method, path, body, status) in [
        ("POST", "/v1/requests", "{", "400"),
        ("POST", "/v1/requests", "{}", "422"),
        ("POST", "/v1/requests", "{\"sauce\": 1}", "422"),
        ("POST", "/v1/requests", UNKNOWN_OPTIMIZER, "422"),
        ("POST", "/v1/depots", "[1,2", "422"),
        ("PUT", "/v1/depots", "", "405"),
        ("GET", "/v1/requests/r99", "", "404"),
        ("GET", "/v1/requests/banana", "", "422"),
        ("GET", "/v1/requests?state=late", "", "422"),
        ("GET", "/v1/requests?fields=id,stat", "", "422"),
        ("GET", "/v1/requests?before=banana", "", "422"),
        ("GET", "/v1/requests?limit=all", "", "400"),
        ("GET", "/v1/events?after=x", "", "400"),
        ("GET", "/nowhere", "", "404"),
        ("DELETE", "/v1/depots/nobody", "", "404"),
        ("POST", "/v1/paths/nobody/probe", "", "404"),
    ] {
        let answer = ask(&service, method, path, token, body);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{method} {path}: {answer}"
        );
        assert!(
            answer.contains("\"detail\":\"can't "),
            "{method} {path}: {answer}"
        );
    }
    let answer = ask(&service, "POST", "/v1/requests", token, UNKNOWN_OPTIMIZER);
    assert!(answer.contains("`best` is no optimizer"), "{answer}");
    for garbage in [
        &b"\x16\x03\x01\x00\xff nonsense"[..],
        b"GET",
        b"",
        b"\0\0\0\0",
        b"GET / HTTP/9.9\r\n\r\n",
    ] {
        raw(&service, garbage, true);
    }
    let unfinished = "POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"sou";
    raw(&service, unfinished.as_bytes(), true);
    let huge = format!(
        "POST /v1/depots HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    let _ = TcpStream::connect(service.url.trim_start_matches("http://"))
        .and_then(|mut connection| connection.write_all(huge.as_bytes()));
    assert!(ask(&service, "GET", "/v1/health", None, "").starts_with("HTTP/1.1 200"));
}

#[test]
fn a_service_that_can_not_start_says_why_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let taken = service.url.trim_start_matches("http://");
    let other = folder.path().join("other");
    let serve =
        |arguments: &[&str]| failure(&binary().arg("serve").args(arguments).output().unwrap());
    let (code, line) = serve(&["--listen", taken, "--state", other.to_str().unwrap()]);
    assert!(
        code == 1 && line.contains("choose another with --listen"),
        "{code} {line}"
    );
    let (code, line) = serve(&[
        "--listen",
        "127.0.0.1:0",
        "--state",
        service.state.to_str().unwrap(),
    ]);
    assert!(code == 1 && line.contains("locked"), "{code} {line}");
    let (code, line) = serve(&["--listen", "0.0.0.0:0", "--state", other.to_str().unwrap()]);
    assert!(code == 2 && line.contains("--behind-tls"), "{code} {line}");
    // An address that documents are written with, and no machine has.
    let nobodys = ["--listen", "192.0.2.1:0", "--behind-tls", "--state"];
    let (code, line) = serve(&[&nobodys[..], &[other.to_str().unwrap()]].concat());
    assert!(
        code == 5 && line.contains("it is no address of this machine: choose another"),
        "{code} {line}"
    );
    let (code, line) = serve(&["--listen", "127.0.0.1:0", "--state", "/proc/nothing"]);
    assert!(
        code != 0 && line.starts_with("posthaste: can't create /proc/nothing"),
        "{code} {line}"
    );
}

#[test]
fn clients_say_what_to_do_when_there_is_no_service() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    let list_of = |url: &str| {
        let mut list = binary();
        list.args(["list", "--service", url, "--token-file"]);
        failure(&list.arg(&token).output().unwrap())
    };
    let list = || list_of("http://127.0.0.1:9");
    let (code, line) = list();
    assert!(
        code == 7 && line.contains("start `posthaste serve`"),
        "{code} {line}"
    );
    std::fs::write(&token, "secret-token").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (code, line) = list();
    assert!(code == 7 && line.contains("chmod 600"), "{code} {line}");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (code, line) = list();
    assert!(
        code == 5 && line.contains("is `posthaste serve` running?"),
        "{code} {line}"
    );
    assert!(!line.contains("secret-token"));
    for url in [
        "nowhere",
        "localhost:7420",
        "ftp://localhost",
        "http:/x",
        "",
    ] {
        let (code, line) = list_of(url);
        let hint = "write http://HOST:PORT or https://HOST:PORT";
        assert!(code == 2 && line.contains(hint), "{url}: {code} {line}");
    }
    let relay = Relay::start(folder.path(), "ash", "1M", "1M");
    let url = relay.process.ready["url"].as_str().unwrap();
    let (code, line) = list_of(&url.replace("https", "http"));
    assert!(
        code == 5 && line.contains("write https://"),
        "{code} {line}"
    );
    let (code, line) = list_of(url);
    assert!(code == 5 && line.contains("SSL_CERT_FILE"), "{code} {line}");
}

#[test]
fn the_committed_openapi_document_is_what_the_program_generates() {
    let folder = tempfile::tempdir().unwrap();
    let output = binary()
        .args(["generate", "openapi"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/posthaste.json");
    let committed = std::fs::read_to_string(committed).unwrap_or_default();
    let generated = std::fs::read_to_string(folder.path().join("posthaste.json")).unwrap();
    assert!(
        committed == generated,
        "openapi/ drifted: run `cargo xtask generate`"
    );
    assert!(generated.contains("\"openapi\": \"3.1.0\""));
}

#[test]
fn completions_and_man_pages_are_generated_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for what in ["completions", "man"] {
        let output = binary()
            .args(["generate", what])
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    for file in [
        "posthaste.bash",
        "_posthaste",
        "posthaste.1",
        "posthaste-cp.1",
        "posthaste-pull.1",
    ] {
        assert!(folder.path().join(file).exists(), "{file} is missing");
    }
}

#[test]
fn listings_choose_and_go_on_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let relay = Relay::start(folder, "ash", "1G", "300k");
    let service = Service::start(folder);
    service.add(&relay);
    let small = folder.join("small");
    std::fs::create_dir(&small).unwrap();
    std::fs::write(small.join("file"), "bytes").unwrap();
    let large = folder.join("large");
    make_tree(&large, 24, 1);
    let submit = |source: &Path, to: &str| {
        let source = source.to_str().unwrap();
        let asked = [
            "offload",
            source,
            "--to",
            to,
            "--via",
            "ash",
            "--deadline",
            "30m",
            "--code",
            "1+0",
            "--json",
        ];
        service.json(&asked)["id"].as_str().unwrap().to_owned()
    };
    for id in ["r1", "r2", "r3"] {
        assert_eq!(submit(&small, "home"), id);
        service.wait_until(id, |request| request["state"] == "safe");
    }
    assert_eq!(submit(&large, "away"), "r4");
    let listed = |more: &[&str]| {
        let found = service.json(&[&["list", "--json"], more].concat());
        let ids = found.as_array().unwrap().iter();
        ids.map(|one| one["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["r4", "r3", "r2", "r1"]);
    assert_eq!(listed(&["--state", "open"]), ["r4"]);
    assert_eq!(listed(&["--state", "safe", "--limit", "2"]), ["r3", "r2"]);
    assert_eq!(listed(&["--state", "moving,safe", "--to", "home"]).len(), 3);
    assert_eq!(listed(&["--to", "nowhere"]).len(), 0);
    assert!(text(&service.run(&["status"]).stdout).contains(", 1 requests open"));
    let token = std::fs::read_to_string(service.state.join("token")).unwrap();
    let page = "/v1/requests?limit=2&before=r4&to=home";
    let page = ask(&service, "GET", page, Some(token.trim()), "");
    assert!(page.contains("\"r3\"") && page.contains("\"r2\"") && !page.contains("\"r1\""));
    let next = "link: </v1/requests?limit=2&before=r2&to=home>; rel=\"next\"";
    assert!(page.contains(next), "{page}");
    let page = "/v1/requests?limit=2&before=r4&fields=id,state";
    let page = ask(&service, "GET", page, Some(token.trim()), "");
    assert!(
        page.contains("{\"id\":\"r3\",\"state\":\"safe\"}"),
        "{page}"
    );
    assert!(
        page.contains("&fields=id%2Cstate>") || page.contains("&fields=id,state>"),
        "{page}"
    );
    let late = service.run(&["list", "--state", "late"]);
    assert_eq!(late.status.code(), Some(2));
    let said = text(&late.stderr);
    assert!(said.contains("no request is ever `late`"), "{said}");
}
