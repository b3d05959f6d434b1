//! Paths on web servers, with the credentials for them.

use std::{
    fmt,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;

use super::{
    About, STALLED_AFTER, Sent, Web,
    bearer::Bearer,
    decode, drain, encode,
    gate::Gate,
    kind_of_status, read_refusal,
    redirect::{is_same_origin, is_trusted, next_of},
    refused, text_of,
};
use crate::{
    Error, ErrorKind, Protocol, Result, Server,
    access::Chosen,
    config::{self, Login},
    reach::Reach,
};

/// Most redirects followed in a row: as many as RFC 7231 once advised.
const REDIRECTS_MAX: u32 = 5;

/// Longest reported excerpt of an error page, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// States of how a server accepts a body: unknown, asks for the body and writes it itself, stays
/// silent until it has the body.
const UNKNOWN: u8 = 0;
const WRITES: u8 = 1;
const SILENT: u8 = 2;

/// Path on a web server.
#[derive(Debug)]
pub(crate) struct Place {
    web: Web,
    /// Scheme as people wrote it: `https`, `webdav`.
    scheme: &'static str,
    /// Origin `https://host:port`.
    origin: String,
    /// Absolute path without a slash at the end; empty for the root.
    root: Vec<u8>,
    /// True if the root was written with a slash at its end.
    slash: bool,
    /// Query of a signed address, which is valid for this path only, and a secret.
    query: Option<String>,
    credentials: Credentials,
    /// Hosts that get the credentials too if the server redirects to them.
    trusted: Vec<String>,
    thought: AtomicU8,
}

/// A request to a server.
pub(crate) struct Call {
    pub method: &'static str,
    /// Path and query of the request.
    pub target: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Sent,
    pub about: About,
    /// Longest time the server may work before it answers.
    pub patience: Duration,
}

impl Call {
    pub(crate) fn new(method: &'static str, target: String, about: About) -> Self {
        Self {
            method,
            target,
            headers: Vec::new(),
            body: Sent::nothing(),
            about,
            patience: STALLED_AFTER,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: Sent) -> Self {
        self.body = body;
        self
    }

    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// A server's answer, the address that gave it, and whether the server redirected from `name` to
/// `name/`, or to another name.
pub(crate) struct Answer {
    pub response: Response<Incoming>,
    pub from: Uri,
    pub is_directory: bool,
    pub is_renamed: bool,
}

impl Place {
    /// Opens the place `server` names, with the credentials of the profile chosen, of the address's
    /// user or of `~/.netrc`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for credentials that make no header.
    pub(crate) fn open(server: &Server, chosen: Option<&Chosen>, reach: Reach) -> Result<Self> {
        let scheme = server.protocol.scheme();
        let web_scheme = match server.protocol {
            Protocol::Https | Protocol::WebDavs => "https",
            Protocol::Http
            | Protocol::WebDav
            | Protocol::Ftp
            | Protocol::Ftps
            | Protocol::Posthaste => "http",
        };
        let host = if server.host.contains(':') {
            format!("[{}]", server.host)
        } else {
            server.host.clone()
        };
        let port = server
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        let profile = chosen.and_then(|chosen| chosen.ours.as_ref());
        let ca_file = profile.and_then(|profile| profile.ca_file.as_deref());
        let login = config::login_for(&server.host, server.user.as_deref(), chosen)?;
        Ok(Self {
            web: Web::reaching(reach, ca_file)?,
            scheme,
            origin: format!("{web_scheme}://{host}{port}"),
            root: server.path.clone(),
            slash: server.slash,
            query: server.query.clone(),
            credentials: login.map_or(Ok(Credentials::None), Credentials::of)?,
            trusted: profile.map_or_else(Vec::new, |profile| profile.credentials_for.clone()),
            thought: AtomicU8::new(UNKNOWN),
        })
    }

    /// Returns the round-trip time to the server, once a connection was made.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.web.round_trip()
    }

    /// The address of `path` for people, without its query, and without what follows `?` elsewhere: that may be a signature.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        self.show_full(&self.full(path))
    }

    /// Returns the address of an absolute path for people.
    pub(crate) fn show_full(&self, full: &[u8]) -> String {
        let (_, host) = self.origin.split_once("://").unwrap_or_default();
        // What follows `?` in an address opens what it names, perhaps.
        let mark = self.root.iter().position(|byte| *byte == b'?');
        let below = full.strip_prefix(&self.root[..]);
        let (full, mark, below) = match mark.zip(below) {
            Some((mark, below)) => (&self.root[..mark], "?…", below),
            None => (full, "", &b""[..]),
        };
        let [full, below] = [full, below].map(String::from_utf8_lossy);
        format!("{}://{host}{full}{mark}{below}", self.scheme)
    }

    /// Returns `https://host:port`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the absolute path of a relative one; empty for the root of the server.
    pub(crate) fn full(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() {
            return self.root.clone();
        }
        [&self.root, &b"/"[..], path].concat()
    }

    /// Returns whether the address was written as that of a folder.
    pub(crate) fn is_folder(&self, path: &[u8]) -> bool {
        path.is_empty() && self.slash
    }

    /// Returns a path as requests name it.
    pub(crate) fn target(&self, path: &[u8]) -> String {
        let mut target = encode(&self.full(path), true);
        if self.is_folder(path) {
            target.push('/');
        }
        match &self.query {
            Some(query) if path.is_empty() => format!("{target}?{query}"),
            Some(_) | None if target.is_empty() => "/".to_owned(),
            Some(_) | None => target,
        }
    }

    /// Returns the path of a directory as requests name it.
    pub(crate) fn folder_target(&self, path: &[u8]) -> String {
        format!("{}/", encode(&self.full(path), true))
    }

    /// Makes the request, follows redirections and returns the server's answer, good or bad. A file
    /// is written only at the end of a redirection.
    ///
    /// # Errors
    /// The errors of [`Web::send`]; [`ErrorKind::Other`] for endless redirections;
    /// [`ErrorKind::Unsupported`] for a redirection that can't be followed.
    pub(crate) async fn send(&self, mut call: Call) -> Result<Answer> {
        let (about, patience) = (call.about.clone(), call.patience);
        let mut uri = self.uri(&call.target, &about)?;
        let start = uri.path().to_owned();
        let mut body = std::mem::replace(&mut call.body, Sent::nothing());
        let mut is_renewed = false;
        for hop in 0..=REDIRECTS_MAX {
            let shown = match self.is_ours(&uri) {
                true => self.credentials.header(&self.web).await?,
                false => None,
            };
            let spare = body.again();
            let (sent, gate) = if call.method == "PUT" && self.waits(&body) {
                let (sent, gate) = body.held();
                (sent, Some(gate))
            } else {
                (body, None)
            };
            let request = self.request(&uri, &call, sent, (shown.as_ref(), gate.as_ref()))?;
            let response = self.web.send(request, &about, patience).await?;
            if let Some(gate) = &gate {
                gate.end();
            }
            let (status, headers) = (response.status(), response.headers());
            let next = next_of(&uri, call.method, status, headers, &about)?;
            if let Some(gate) = &gate {
                self.learn(gate, hop == 0 && next.is_none());
            }
            // A token may have expired while its request waited.
            let is_refused = status == StatusCode::UNAUTHORIZED && !is_renewed;
            if let Some(shown) = shown.filter(|_| is_refused)
                && next.is_none()
                && self.credentials.forget(&shown).await
            {
                let left = gate.as_ref().map_or(spare, Gate::take_back);
                if let Some(left) = left {
                    drain(response.into_body()).await;
                    (body, is_renewed) = (left, true);
                    continue;
                }
                // The next attempt uses a new one.
                let error = about.fail(ErrorKind::Busy);
                return Err(error.cause("the token has ended"));
            }
            let Some(next) = next else {
                let is_directory = uri.path().strip_suffix('/') == Some(&*start);
                let name_in = |path: &str| decode(path.trim_end_matches('/').rsplit('/').next()?);
                let is_renamed = name_in(uri.path()) != name_in(&start);
                return Ok(Answer {
                    response,
                    from: uri,
                    is_directory,
                    is_renamed,
                });
            };
            drain(response.into_body()).await;
            let left = match gate {
                Some(gate) => gate.take_back(),
                None => spare,
            };
            body = left.ok_or_else(|| {
                self.thought.store(UNKNOWN, Relaxed);
                let error = about.fail(ErrorKind::Busy);
                error.cause("the server said too late where the file is to go")
            })?;
            uri = next;
        }
        Err(about
            .fail(ErrorKind::Other)
            .cause("the server sends us from address to address"))
    }

    /// Returns the request to one address, with the credentials if they are for it.
    fn request(
        &self,
        uri: &Uri,
        call: &Call,
        body: Sent,
        (shown, gate): (Option<&HeaderValue>, Option<&Gate>),
    ) -> Result<Request<Sent>> {
        let mut request = Request::builder().method(call.method).uri(uri);
        for (name, value) in &call.headers {
            // The server that moves a file gets the new name as an address of its own.
            let own = match (*name, value.strip_prefix(&self.origin), uri.authority()) {
                ("destination", Some(path), Some(host)) => {
                    format!("{}://{host}{path}", uri.scheme_str().unwrap_or_default())
                }
                _ => value.clone(),
            };
            request = request.header(*name, own);
        }
        if let Some(shown) = shown {
            request = request.header(header::AUTHORIZATION, shown);
        }
        if gate.is_some() {
            request = request.header(header::EXPECT, "100-continue");
        }
        let mut request = request
            .header(
                header::USER_AGENT,
                concat!("posthaste/", env!("CARGO_PKG_VERSION")),
            )
            .body(body)
            .map_err(|cause| call.about.fail(ErrorKind::Invalid).cause(cause))?;
        if let Some(gate) = gate {
            let gate = gate.clone();
            hyper::ext::on_informational(&mut request, move |said| {
                if said.status() == StatusCode::CONTINUE {
                    gate.open();
                }
            });
        }
        Ok(request)
    }

    /// Returns whether a body waits until the server wants it. A body that can't be sent twice
    /// waits wherever servers answer, others until this server is known to write itself.
    fn waits(&self, body: &Sent) -> bool {
        match self.thought.load(Relaxed) {
            SILENT => false,
            WRITES => body.again().is_none(),
            _ => body.len() > 0,
        }
    }

    fn learn(&self, gate: &Gate, is_final: bool) {
        if gate.was_unheard() {
            self.thought.store(SILENT, Relaxed);
        } else if gate.was_wanted() && is_final {
            self.thought.store(WRITES, Relaxed);
        }
    }

    /// Returns whether the credentials are for the server of this address too.
    fn is_ours(&self, uri: &Uri) -> bool {
        let Ok(origin) = Uri::try_from(&self.origin) else {
            return false;
        };
        let is_as_safe = uri.scheme_str() == Some("https") || origin.scheme_str() == Some("http");
        is_same_origin(uri, &origin)
            || (is_as_safe && is_trusted(uri.host().unwrap_or_default(), &self.trusted))
    }

    /// Sends a request as [`Place::send`] does, but returns only an answer that means success.
    ///
    /// # Errors
    /// The server's refusal, by its status.
    pub(crate) async fn ask(&self, call: Call) -> Result<Response<Incoming>> {
        let about = call.about.clone();
        let answer = self.send(call).await?;
        self.success(answer, &about).await
    }

    /// Returns an answer that means success.
    ///
    /// # Errors
    /// The server's refusal, by its status.
    pub(crate) async fn success(
        &self,
        answer: Answer,
        about: &About,
    ) -> Result<Response<Incoming>> {
        match answer.response.status().is_success() {
            true => Ok(answer.response),
            false => Err(self.refusal(answer.response, about).await),
        }
    }

    /// Returns the error that an answer means.
    pub(crate) async fn refusal(&self, response: Response<Incoming>, about: &About) -> Error {
        let (head, body) = response.into_parts();
        let text = read_refusal(body).await;
        let cause = excerpt(&head.headers, &text)
            .map(|text| format!("{}: {text}", head.status))
            .unwrap_or_default();
        let kind = kind_of_status(head.status);
        refused(about, head.status, &head.headers, kind, cause)
    }

    fn uri(&self, target: &str, about: &About) -> Result<Uri> {
        Uri::try_from(format!("{}{target}", self.origin))
            .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))
    }
}

/// Credentials for a server.
enum Credentials {
    None,
    Password(HeaderValue),
    Token(Bearer),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

impl Credentials {
    fn of(login: Login) -> Result<Self> {
        let (user, password) = match login {
            Login::Password { user, password } => (user, password),
            Login::Token(source) => return Bearer::new(source).map(Self::Token),
        };
        let pair = format!("{user}:{}", password.reveal());
        let text = reqsign_core::hash::base64_encode(pair.as_bytes());
        let mut value = HeaderValue::try_from(format!("Basic {text}")).map_err(|_| {
            Error::new(ErrorKind::Invalid, "use", "the credentials")
                .cause("they have characters no header can carry")
        })?;
        value.set_sensitive(true);
        Ok(Self::Password(value))
    }

    async fn header(&self, web: &Web) -> Result<Option<HeaderValue>> {
        match self {
            Self::None => Ok(None),
            Self::Password(value) => Ok(Some(value.clone())),
            Self::Token(bearer) => bearer.header(web).await.map(Some),
        }
    }

    /// Forgets refused credentials. Returns whether there may be others to show.
    async fn forget(&self, shown: &HeaderValue) -> bool {
        match self {
            Self::None | Self::Password(_) => false,
            Self::Token(bearer) => bearer.forget(shown).await,
        }
    }
}

/// Returns the start of an error page, if it is readable text.
fn excerpt(headers: &HeaderMap, text: &Bytes) -> Option<String> {
    let is_plain = text_of(headers, HeaderName::from_static("content-type").as_str())
        .is_some_and(|kind| kind.starts_with("text/plain"));
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    is_plain.then(|| line.trim().chars().take(EXCERPT_CHARS_MAX).collect())
}
