//! What users name never leads a service to what trusts its own machine.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use crate::support::processes::{Service, binary, text};
use posthaste_testbed::odd::{Answer, Server};

/// A server that says to everybody where to go next, and counts who asks.
async fn counting(headers: String, status: u16, asked: &Arc<AtomicU64>) -> Server {
    let asked = Arc::clone(asked);
    Server::start(move |_| {
        asked.fetch_add(1, SeqCst);
        Answer::sized(status, &headers, "bytes")
    })
    .await
}

/// Somebody's token for a directory.
fn token_of(service: &Service, folder: &Path, owner: &str) -> std::path::PathBuf {
    let file = folder.join(owner);
    let below = folder.join("data");
    let made = service.run(&[
        "token",
        "add",
        owner,
        "--scope",
        "submit",
        "--owner",
        owner,
        "--below",
        below.to_str().unwrap(),
        "--output",
        file.to_str().unwrap(),
    ]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    file
}

/// Asks for it as an operator does, for this owner.
fn stage_in(service: &Service, owner: &str, from: &str, to: &Path) -> Output {
    let what = ["stage-in", from, to.to_str().unwrap(), "--wait"];
    let owner = ["--owner", owner];
    let owner = if owner[1].is_empty() { &[] } else { &owner[..] };
    service.run(&[&what[..], &["--deadline", "10m"], owner].concat())
}

/// What is said of a place that somebody's own credential opens.
fn checked(service: &Service, folder: &Path, token: &Path, endpoint: &str) -> String {
    let secrets = folder.join("secrets");
    fs::write(&secrets, "secret_access_key = \"secret\"\n").unwrap();
    fs::set_permissions(&secrets, fs::Permissions::from_mode(0o600)).unwrap();
    let endpoint = format!("endpoint={endpoint}");
    let given = ["add", "inner", "--url", "s3://bucket", "--set", &endpoint];
    let more = [
        "--set",
        "access_key_id=key",
        "--secrets",
        secrets.to_str().unwrap(),
    ];
    let as_owner = |words: &[&str]| {
        let mut command = binary();
        command.arg("credential").args(words);
        command.args(["--service", &service.url, "--token-file"]);
        command.arg(token).output().unwrap()
    };
    let added = as_owner(&[&given[..], &more].concat());
    assert!(added.status.success(), "{}", text(&added.stderr));
    let checked = as_owner(&["check", "inner"]);
    assert!(!checked.status.success());
    text(&checked.stderr) + &text(&checked.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_users_name_leads_nowhere_that_trusts_the_services_machine() {
    let asked = Arc::new(AtomicU64::new(0));
    let secret = counting(String::new(), 200, &asked).await;
    let to = format!("location: {}/f\r\n", secret.url());
    let led = Arc::new(AtomicU64::new(0));
    let leads = counting(to, 302, &led).await;
    tokio::task::block_in_place(|| {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let url = secret.url();
        let (_, port) = url.rsplit_once(':').unwrap();
        let allowed = leads.url().trim_start_matches("http://").to_owned();
        let service = Service::start_with(folder.path(), &["--allow-address", &allowed]);
        let alice = token_of(&service, folder.path(), "alice");
        for address in [
            format!("http://127.0.0.1:{port}/f"),
            format!("http://localhost:{port}/f"),
            format!("http://[::ffff:7f00:1]:{port}/f"),
            format!("http://[64:ff9b::7f00:1]:{port}/f"),
            format!("http://0.0.0.0:{port}/f"),
            format!("http://2130706433:{port}/f"),
            format!("webdav://127.1:{port}/f"),
            format!("ftp://127.0.0.1:{port}/f"),
            format!("sftp://localhost:{port}/f"),
            format!("localhost:{port}/f"),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            // Where it may go, and is sent on from.
            format!("{}/f", leads.url()),
        ] {
            let output = stage_in(&service, "alice", &address, &data.join("in"));
            let said = text(&output.stderr);
            assert!(
                said.contains("is of this machine, its link or its cloud's own"),
                "{address}: {said}"
            );
            assert!(said.contains("--allow-address"), "{address}: {said}");
            assert!(!output.status.success(), "{address}");
        }
        let said = checked(&service, folder.path(), &alice, &secret.url());
        assert!(said.contains("is of this machine"), "{said}");
        assert_eq!(asked.load(SeqCst), 0);
        assert!(led.load(SeqCst) > 0);
        // Who operates it may, for nobody in particular.
        let from = format!("{}/f", secret.url());
        let output = stage_in(&service, "", &from, &data.join("operators"));
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(asked.load(SeqCst) > 0);
        let name = ["serve", "--allow-address", "localhost:80", "--state"];
        let wrong = binary()
            .args(name)
            .arg(folder.path().join("other"))
            .output();
        let said = text(&wrong.unwrap().stderr);
        assert!(said.contains("it is no address"), "{said}");
    });
}
