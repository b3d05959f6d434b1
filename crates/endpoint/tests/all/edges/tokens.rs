//! Servers whose tokens expire.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use posthaste_endpoint::{Checksum, Endpoint, ErrorKind, FileSpec};
use posthaste_testbed::{
    conformance::open,
    odd::{Answer, Asked, Server},
};

use crate::edges::{
    says,
    table::{End, shown},
};

/// WebDAV server that accepts each token a few times. Tokens are numbers, and grow.
struct Office {
    server: Server,
    /// Valid token.
    now: Arc<AtomicU32>,
}

impl Office {
    async fn start() -> Self {
        let now = Arc::new(AtomicU32::new(1));
        let counts = Arc::clone(&now);
        let has_moved = AtomicBool::new(false);
        let server = Server::start(move |asked| match &*asked.target {
            "/token" => give(asked, &counts),
            _ => serve(asked, counts.load(SeqCst), &has_moved),
        })
        .await;
        Self { server, now }
    }

    /// Makes the next token the valid one.
    fn end_token(&self) {
        self.now.fetch_add(1, SeqCst);
    }

    async fn open(&self, profile: &str) -> Arc<dyn Endpoint> {
        let address = self.server.url().replace("http://", "webdav://");
        open(&format!("{address}/t"), &format!("[dav]\n{profile}\n"))
            .await
            .unwrap()
    }
}

/// Returns the current token for the previous refresh token, and a new refresh token.
fn give(asked: &Asked, now: &AtomicU32) -> Answer {
    let form = String::from_utf8_lossy(&asked.body);
    let now = now.load(SeqCst);
    let wanted = ["grant_type=refresh_token", "client_id=posthaste"];
    let is_known = (0..=now).any(|before| form.contains(&format!("refresh_token=r{before}")));
    if !is_known || !wanted.iter().all(|pair| form.contains(pair)) {
        return Answer::sized(400, "", "{\"error\":\"invalid_grant\"}");
    }
    let given = format!("{{\"access_token\":\"t{now}\",\"refresh_token\":\"r{now}\"}}");
    Answer::sized(200, "content-type: application/json\r\n", given)
}

fn serve(asked: &Asked, now: u32, has_moved: &AtomicBool) -> Answer {
    let wanted = format!("Bearer t{now}");
    match (&*asked.method, asked.header("authorization")) {
        (_, shown) if shown != Some(&wanted) => Answer::sized(401, "", ""),
        ("PUT" | "MOVE" | "MKCOL", _) => {
            has_moved.store(asked.method == "MOVE", SeqCst);
            Answer::sized(201, "", "")
        }
        ("PROPFIND", _) if asked.target.contains("partial") && has_moved.load(SeqCst) => {
            Answer::sized(404, "", "")
        }
        ("GET" | "HEAD", _) => Answer::sized(200, "", "hello"),
        _ => Answer::sized(207, "", PROPERTIES),
    }
}

const PROPERTIES: &str = "<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/t/file</D:href>\
    <D:propstat><D:prop><D:getcontentlength>5</D:getcontentlength><D:resourcetype/></D:prop>\
    <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>";

async fn outlives_its_token(office: &Office, dav: &dyn Endpoint, renew: impl Fn(u32)) {
    for _ in 0..3 {
        let entry = dav.stat(b"file", true).await.unwrap().unwrap();
        assert_eq!(entry.size, 5);
        let spec = FileSpec {
            size: 5,
            mtime: None,
            mode: None,
            origin: "test:tokens".into(),
            version: None,
        };
        office.end_token();
        renew(office.now.load(SeqCst));
        let data = vec![Bytes::from_static(b"hello")];
        dav.put(b"file", &spec, data, Checksum::of(b"hello"))
            .await
            .unwrap();
        office.end_token();
        renew(office.now.load(SeqCst));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_others_may_read_is_not_used() {
    let office = Office::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, "t1").unwrap();
    let profile = format!("token_file = \"{}\"", path.display());
    for (mode, is_used) in [(0o644, false), (0o600, true)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let found = office.open(&profile).await.stat(b"a", true).await;
        match is_used {
            true => assert!(found.is_ok(), "{found:?}"),
            false => drop(says(found, "others may read it")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ended_is_renewed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let write = |now: u32| fs::write(&path, format!("t{now}\n")).unwrap();
    write(1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let office = Office::start().await;
    let dav = office
        .open(&format!("token_file = \"{}\"", path.display()))
        .await;
    outlives_its_token(&office, &*dav, write).await;
    write(1);
    let office = Office::start().await;
    let command = format!("token_command = [\"cat\", \"{}\"]", path.display());
    outlives_its_token(&office, &*office.open(&command).await, write).await;
    let office = Office::start().await;
    let uri = office.server.url();
    let grant =
        format!("refresh_token = \"r0\"\nclient_id = \"posthaste\"\ntoken_uri = \"{uri}/token\"");
    outlives_its_token(&office, &*office.open(&grant).await, |_| ()).await;
    shown("WebDAV", "a token ends while its request waits", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_nobody_renews_is_told() {
    let office = Office::start().await;
    let dav = office.open("token = \"t1\"").await;
    dav.stat(b"file", true).await.unwrap();
    office.end_token();
    let Err(error) = dav.stat(b"file", true).await else {
        panic!("it passed");
    };
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let uri = office.server.url();
    let grant =
        format!("refresh_token = \"x\"\nclient_id = \"posthaste\"\ntoken_uri = \"{uri}/token\"");
    let dav = office.open(&grant).await;
    let error = says(dav.stat(b"file", true).await, "invalid_grant");
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    shown("WebDAV", "a token ends and none is to be had", End::Refused);
}
