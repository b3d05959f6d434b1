//! Substitutes for Google beside its storage: the token service, and its clients.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use rustls_pki_types::{PrivatePkcs8KeyDer, alg_id, pem::PemObject};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinSet,
};

/// Key of an account that never existed, public in this repository.
const KEY: &str = include_str!("account.pem");

pub const EMAIL: &str = "copier@testbed.iam.gserviceaccount.com";

/// Reads the head and the bytes after it that came with it.
async fn read_head(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return Some((String::from_utf8(read).unwrap(), rest));
        }
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then_some(value.trim())
    })
}

async fn read_body(stream: &mut TcpStream, head: &str, mut body: Vec<u8>) -> Vec<u8> {
    let len = header(head, "content-length").map_or(0, |len| len.parse().unwrap());
    while body.len() < len {
        stream.read_buf(&mut body).await.unwrap();
    }
    body
}

async fn answer(stream: &mut TcpStream, status: &str, headers: &str, body: &str) {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Starts a server that gives every request this answer.
pub async fn always(status: &'static str, headers: &'static str, body: &'static str) -> Server {
    serve(move |_| (status, headers, body)).await
}

/// Starts a server that answers with these bodies in turn, the last of them repeatedly.
pub async fn in_turn(bodies: &'static [&'static str]) -> Server {
    serve(|turn| ("200 OK", "", bodies[turn.min(bodies.len() - 1)])).await
}

async fn serve(
    answers: impl Fn(usize) -> (&'static str, &'static str, &'static str) + Send + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heads = Arc::clone(&asked);
    let mut chores = JoinSet::new();
    chores.spawn(async move {
        for turn in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            if let Some((head, body)) = read_head(&mut stream).await {
                read_body(&mut stream, &head, body).await;
                heads.lock().unwrap().push(head);
                let (status, headers, body) = answers(turn);
                answer(&mut stream, status, headers, body).await;
            }
        }
    });
    Server {
        address,
        asked,
        _chores: chores,
    }
}

pub struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    _chores: JoinSet<()>,
}

impl Server {
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the heads of the requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// Token service and gate: tokens require an assertion signed with the key, and access to the store
/// requires the newest token.
pub struct Google {
    tokens: SocketAddr,
    gate: SocketAddr,
    given: Arc<AtomicU64>,
    valid: Arc<AtomicU64>,
    revoked: Arc<Notify>,
    /// Number of connections admitted now.
    inside: watch::Sender<usize>,
    folder: tempfile::TempDir,
    _chores: JoinSet<()>,
}

/// Admitted connection.
struct Inside(watch::Sender<usize>);

impl Inside {
    fn new(inside: &watch::Sender<usize>) -> Self {
        inside.send_modify(|count| *count += 1);
        Self(inside.clone())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Google {
    pub async fn start(store: SocketAddr) -> Self {
        let tokens = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let google = Self {
            tokens: tokens.local_addr().unwrap(),
            gate: gate.local_addr().unwrap(),
            given: Arc::default(),
            valid: Arc::new(AtomicU64::new(1)),
            revoked: Arc::default(),
            inside: watch::Sender::new(0),
            folder,
            _chores: JoinSet::new(),
        };
        let mut chores = JoinSet::new();
        let (given, audience) = (Arc::clone(&google.given), google.token_uri());
        chores.spawn(async move {
            while let Ok((stream, _)) = tokens.accept().await {
                give(stream, &given, &audience).await;
            }
        });
        let (valid, revoked) = (Arc::clone(&google.valid), Arc::clone(&google.revoked));
        let inside = google.inside.clone();
        chores.spawn(async move {
            let mut visits = JoinSet::new();
            while let Ok((stream, _)) = gate.accept().await {
                let (valid, revoked) = (Arc::clone(&valid), Arc::clone(&revoked));
                let inside = inside.clone();
                visits.spawn(async move {
                    tokio::select! {
                        () = let_through(stream, store, &valid, &inside) => {}
                        () = revoked.notified() => {}
                    }
                });
            }
        });
        Self {
            _chores: chores,
            ..google
        }
    }

    pub fn token_uri(&self) -> String {
        format!("http://{}/token", self.tokens)
    }

    /// Returns the address of the store behind the gate.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.gate)
    }

    /// Returns the number of tokens issued so far.
    pub fn given(&self) -> u64 {
        self.given.load(SeqCst)
    }

    /// Revokes the last token, and ends all connections that it opened. When this returns, no
    /// connection is left on which it could still be used.
    pub async fn revoke(&self) {
        self.valid.fetch_add(1, SeqCst);
        self.revoked.notify_waiters();
        let mut inside = self.inside.subscribe();
        inside.wait_for(|count| *count == 0).await.unwrap();
    }

    /// Returns an account's key file.
    pub fn key_file(&self, token_uri: &str, key: &str) -> PathBuf {
        let text = json!({
            "type": "service_account",
            "project_id": "testbed",
            "private_key_id": "k1",
            "private_key": key,
            "client_email": EMAIL,
            "token_uri": token_uri,
        });
        let path = self.folder.path().join(format!("key-{}.json", key.len()));
        fs::write(&path, text.to_string()).unwrap();
        path
    }

    /// Returns a profile of the account behind the gate.
    pub fn profile(&self) -> String {
        let path = self.key_file(&self.token_uri(), KEY);
        profile(&self.endpoint(), &path)
    }
}

pub fn profile(endpoint: &str, key_file: &std::path::Path) -> String {
    let path = key_file.display();
    format!("[g]\nendpoint = \"{endpoint}\"\nservice_account_file = \"{path}\"\n")
}

async fn let_through(
    mut stream: TcpStream,
    store: SocketAddr,
    valid: &AtomicU64,
    inside: &watch::Sender<usize>,
) {
    let Some((head, rest)) = read_head(&mut stream).await else {
        return;
    };
    let wanted = format!("Bearer token-{}", valid.load(SeqCst));
    if header(&head, "authorization") != Some(&wanted) {
        let body = r#"{"error":{"code":401,"message":"Invalid Credentials","errors":[
            {"domain":"global","reason":"authError","message":"Invalid Credentials"}]}}"#;
        answer(&mut stream, "401 Unauthorized", "", body).await;
        return;
    }
    // Dropped in reverse: the connection is closed once it no longer counts as admitted.
    let _inside = Inside::new(inside);
    let mut stream = stream;
    let mut behind = TcpStream::connect(store).await.unwrap();
    behind.write_all(head.as_bytes()).await.unwrap();
    behind.write_all(&rest).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut behind).await;
}

async fn give(mut stream: TcpStream, given: &AtomicU64, audience: &str) {
    let Some((head, body)) = read_head(&mut stream).await else {
        return;
    };
    let body = read_body(&mut stream, &head, body).await;
    match check(&String::from_utf8(body).unwrap(), audience) {
        Ok(()) => {
            let number = given.fetch_add(1, SeqCst) + 1;
            let token = format!("token-{number}");
            let body = json!({"access_token": token, "expires_in": 3600, "token_type": "Bearer"});
            answer(&mut stream, "200 OK", "", &body.to_string()).await;
        }
        Err(why) => {
            let body = json!({"error": "invalid_grant", "error_description": why});
            answer(&mut stream, "400 Bad Request", "", &body.to_string()).await;
        }
    }
}

fn check(form: &str, audience: &str) -> Result<(), String> {
    let field = |name: &str| {
        let mut pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    };
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
    if field("grant_type") != Some(grant) {
        return Err("another grant".to_owned());
    }
    let assertion = field("assertion").ok_or("no assertion")?;
    let (signed, signature) = assertion.rsplit_once('.').ok_or("no signature")?;
    let (head, claims) = signed.split_once('.').ok_or("no claims")?;
    let read = |text: &str| -> Value { serde_json::from_slice(&decoded(text)).unwrap() };
    if read(head)["alg"] != "RS256" || !is_signed(signed.as_bytes(), &decoded(signature)) {
        return Err("Invalid JWT Signature.".to_owned());
    }
    let claims = read(claims);
    #[expect(
        clippy::disallowed_methods,
        reason = "a service has a clock of its own"
    )]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until = claims["exp"].as_u64().unwrap();
    let scope = "https://www.googleapis.com/auth/devstorage.read_write";
    let is_right = claims["iss"] == EMAIL
        && claims["aud"] == audience
        && claims["scope"] == scope
        && claims["iat"].as_u64().unwrap().abs_diff(now.as_secs()) < 60
        && until.abs_diff(now.as_secs() + 3600) < 60;
    if is_right {
        Ok(())
    } else {
        Err(format!("wrong claims: {claims}"))
    }
}

fn decoded(text: &str) -> Vec<u8> {
    let mut text = text.replace('-', "+").replace('_', "/");
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    reqsign_core::hash::base64_decode(&text).unwrap()
}

fn is_signed(message: &[u8], signature: &[u8]) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    let key = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let key = provider.key_provider.load_private_key(key.into());
    let key = key.unwrap();
    let public = key.public_key().unwrap();
    // The key itself comes after the head of its description (RFC 5280, section 4.1), which for
    // 2,048 bits is 24 bytes long.
    let public = &public[24..];
    let algorithms = provider.signature_verification_algorithms.all;
    let algorithm = algorithms.iter().find(|algorithm| {
        algorithm.signature_alg_id() == alg_id::RSA_PKCS1_SHA256
            && algorithm.public_key_alg_id() == alg_id::RSA_ENCRYPTION
    });
    let verified = algorithm
        .unwrap()
        .verify_signature(public, message, signature);
    verified.is_ok()
}
