//! A server that records everything receives no password of a service's profile, wherever it
//! stands.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt,
    sync::{Arc, Mutex},
    thread,
};

use crate::support::ask::ask;
use crate::support::processes::{Service, text};

const PASSWORD: &str = "open-sesame";
/// Text `ali:open-sesame`, as a server receives it.
const SHOWN: &str = "YWxpOm9wZW4tc2VzYW1l";

/// Text that a server received so far.
type Heard = Arc<Mutex<String>>;

/// Starts a server that records every head and answers each with `answer`; it ends with the test's
/// process.
fn server(answer: String) -> (SocketAddr, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Heard::default());
    let hears = Arc::clone(&heard);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            hears.lock().unwrap().push_str(&(head.join("\n") + "\n\n"));
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, heard)
}

#[test]
fn a_password_goes_to_its_own_server_alone() {
    let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"all of yours\"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (stranger, heard) = server(refusal.to_owned());
    let on = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{stranger}/there/\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    let (own, heard_by_own) = server(on);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config/posthaste");
    fs::create_dir_all(&config).unwrap();
    let login = format!("user = \"ali\"\npassword = \"{PASSWORD}\"\n");
    let profile = format!("[vault]\nurl = \"http://{own}/data\"\n{login}[open]\n{login}");
    let profiles = config.join("profiles.toml");
    fs::write(&profiles, profile).unwrap();
    fs::set_permissions(&profiles, fs::Permissions::from_mode(0o600)).unwrap();
    let service = Service::start(folder.path());
    let file = folder.path().join("token");
    let words = [
        "token", "add", "alice", "--scope", "submit", "--owner", "alice",
    ];
    let places = [
        "--below",
        folder.path().to_str().unwrap(),
        "--profile",
        "vault",
    ];
    let output = ["--profile", "open", "--output", file.to_str().unwrap()];
    let made = service.run(&[&words[..], &places, &output].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    let token = fs::read_to_string(&file).unwrap();
    let ask = |method: &str, path: &str, body: &str| {
        ask(&service, method, path, Some(token.trim()), body)
    };
    // Asked to show it to a stranger, by name, by another port, and by what only begins like its
    // own place.
    let elsewhere = [
        format!("http://{stranger}/"),
        format!("http://{own}@{stranger}/data"),
        format!("http://{own}/database/"),
    ];
    for (address, profile) in elsewhere
        .iter()
        .flat_map(|to| [(to, "vault"), (to, "open")])
    {
        let listed = format!("/v1/listing?address={address}&profile={profile}");
        let answer = ask("GET", &listed, "");
        assert!(answer.starts_with("HTTP/1.1 4"), "{address}: {answer}");
        let body = serde_json::json!({
            "sources": [address], "to": folder.path().join("in"), "deadline": "2099-01-01T00:00:00Z",
        });
        let answer = ask("POST", "/v1/stage-ins", &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 4"), "{address}: {answer}");
    }
    // Its own server hears it, and leads to the stranger, who does not.
    let listed = format!("/v1/listing?address=http://{own}/data/&profile=vault");
    ask("GET", &listed, "");
    let heard_by_own = heard_by_own.lock().unwrap().clone();
    assert!(heard_by_own.contains(SHOWN), "{heard_by_own}");
    let heard = heard.lock().unwrap().clone();
    assert!(
        !heard.contains(SHOWN) && !heard.contains(PASSWORD),
        "{heard}"
    );
    assert!(!heard.to_lowercase().contains("authorization"), "{heard}");
}
