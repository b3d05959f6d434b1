//! A path on a web server, with the credentials for it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::body::Incoming;

use super::{
    About, STALLED_AFTER, Sent, Web, drain, encode, kind_of_status, read_refusal, refused, text_of,
};
use crate::{
    Error, ErrorKind, Protocol, Result, Server,
    access::Chosen,
    config::{self, Login},
};

/// Redirections followed in a row: as many as RFC 7231 once advised, and enough.
const REDIRECTS_MAX: u32 = 5;

/// The longest excerpt of an error page that is told, in characters.
const EXCERPT_CHARS_MAX: usize = 120;

/// A path on a web server.
#[derive(Debug)]
pub(crate) struct Place {
    web: Web,
    /// The scheme people wrote: `https`, `webdav`.
    scheme: &'static str,
    /// `https://host:port`.
    origin: String,
    /// Absolute, without a slash at the end; empty for the root.
    root: Vec<u8>,
    /// A signed address works for this path alone, and is a secret.
    query: Option<String>,
    authorization: Option<HeaderValue>,
}

/// What to ask of a server.
pub(crate) struct Call {
    pub method: &'static str,
    /// The path and query of the request.
    pub target: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Sent,
    pub about: About,
    /// How long the server may work before it answers.
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

/// A server's answer, and whether it sent us on from `name` to `name/`.
pub(crate) struct Answer {
    pub response: Response<Incoming>,
    pub is_directory: bool,
}

impl Place {
    /// The place `server` names, with the credentials of the profile chosen, of the address's user
    /// or of `~/.netrc`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for credentials that make no header.
    pub(crate) fn open(server: &Server, chosen: Option<&Chosen>) -> Result<Self> {
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
        let ca_file = chosen.and_then(|chosen| chosen.ours.as_ref()?.ca_file.as_deref());
        let login = config::login_for(&server.host, server.user.as_deref(), chosen)?;
        Ok(Self {
            web: Web::new(ca_file)?,
            scheme,
            origin: format!("{web_scheme}://{host}{port}"),
            root: server.path.clone(),
            query: server.query.clone(),
            authorization: login.map(|login| authorization(&login)).transpose()?,
        })
    }

    /// The way to the server and back, once something connected.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.web.round_trip()
    }

    /// The address of `path` for people, without its query: that may be a signature.
    pub(crate) fn show(&self, path: &[u8]) -> String {
        self.show_full(&self.full(path))
    }

    /// The address of an absolute path for people.
    pub(crate) fn show_full(&self, full: &[u8]) -> String {
        let (_, host) = self.origin.split_once("://").unwrap_or_default();
        format!("{}://{host}{}", self.scheme, String::from_utf8_lossy(full))
    }

    /// `https://host:port`.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// The absolute path of a relative one; empty for the root of the server.
    pub(crate) fn full(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() {
            return self.root.clone();
        }
        [&self.root, &b"/"[..], path].concat()
    }

    /// A path as requests name it.
    pub(crate) fn target(&self, path: &[u8]) -> String {
        let target = encode(&self.full(path), true);
        match &self.query {
            Some(query) if path.is_empty() => format!("{target}?{query}"),
            Some(_) | None if target.is_empty() => "/".to_owned(),
            Some(_) | None => target,
        }
    }

    /// The path of a directory as requests name it.
    pub(crate) fn folder_target(&self, path: &[u8]) -> String {
        format!("{}/", encode(&self.full(path), true))
    }

    /// Makes the request, follows redirections and returns what the server says, good or bad.
    ///
    /// # Errors
    /// As [`Web::send`]; [`ErrorKind::Other`] for redirections without end.
    pub(crate) async fn send(&self, call: Call) -> Result<Answer> {
        let about = call.about.clone();
        let mut uri = self.uri(&call.target, &about)?;
        let start = uri.path().to_owned();
        let mut body = Some(call.body);
        for _ in 0..=REDIRECTS_MAX {
            let is_home = uri.to_string().starts_with(&self.origin);
            let mut request = Request::builder().method(call.method).uri(&uri);
            for (name, value) in &call.headers {
                request = request.header(*name, value);
            }
            if let Some(authorization) = self.authorization.as_ref().filter(|_| is_home) {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let sent = body.take().unwrap_or_else(Sent::nothing);
            let request = request
                .header(
                    header::USER_AGENT,
                    concat!("posthaste/", env!("CARGO_PKG_VERSION")),
                )
                .body(sent)
                .map_err(|cause| about.fail(ErrorKind::Invalid).cause(cause))?;
            let response = self.web.send(request, &about, call.patience).await?;
            let next = next_of(&uri, call.method, response.status(), response.headers());
            match next {
                None => {
                    let is_directory = uri.path().strip_suffix('/') == Some(&*start);
                    return Ok(Answer {
                        response,
                        is_directory,
                    });
                }
                Some(next) => {
                    drain(response.into_body()).await;
                    uri = next;
                }
            }
        }
        Err(about
            .fail(ErrorKind::Other)
            .cause("the server sends us from address to address"))
    }

    /// As [`Place::send`], but only for an answer that means success.
    ///
    /// # Errors
    /// What the server refuses, by its status.
    pub(crate) async fn ask(&self, call: Call) -> Result<Response<Incoming>> {
        let about = call.about.clone();
        let response = self.send(call).await?.response;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response, &about).await)
    }

    /// The error an answer means.
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

fn authorization(login: &Login) -> Result<HeaderValue> {
    let text = match login {
        Login::Password { user, password } => {
            let pair = format!("{user}:{}", password.reveal());
            format!(
                "Basic {}",
                reqsign_core::hash::base64_encode(pair.as_bytes())
            )
        }
        Login::Token(token) => format!("Bearer {}", token.reveal()),
    };
    let mut value = HeaderValue::try_from(text).map_err(|_| {
        Error::new(ErrorKind::Invalid, "use", "the credentials")
            .cause("they have characters no header can carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Where a redirection leads; `None` for any other answer, and for what must not be followed: a
/// write, or from TLS to plain text.
fn next_of(from: &Uri, method: &str, status: StatusCode, headers: &HeaderMap) -> Option<Uri> {
    let is_safe = matches!(method, "GET" | "HEAD" | "PROPFIND");
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) || !is_safe {
        return None;
    }
    let to = text_of(headers, "location")?;
    let to = to.split('#').next().unwrap_or_default();
    let (scheme, authority) = (from.scheme_str()?, from.authority()?);
    let text = if to.contains("://") {
        to.to_owned()
    } else if to.starts_with("//") {
        format!("{scheme}:{to}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let folder = from
            .path()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{to}")
    };
    let next = Uri::try_from(text).ok()?;
    let is_downgrade = scheme == "https" && next.scheme_str() != Some("https");
    (!is_downgrade).then_some(next)
}

/// The start of an error page, where it is text people may read.
fn excerpt(headers: &HeaderMap, text: &Bytes) -> Option<String> {
    let is_plain = text_of(headers, HeaderName::from_static("content-type").as_str())
        .is_some_and(|kind| kind.starts_with("text/plain"));
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty())?;
    is_plain.then(|| line.trim().chars().take(EXCERPT_CHARS_MAX).collect())
}
