//! Client of the service's REST API.

mod away;
mod lines;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use clap::Args;
use http::request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header};
use hyper_util::{
    client::legacy::{self, Client},
    rt::TokioExecutor,
};
use posthaste_api as api;
use posthaste_endpoint::{WebConnector, web_connector, web_tls};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    config,
    failure::{Exit, Failure},
    login::stored::Login,
};
pub use away::{ride_out, say_away};

/// Largest accepted answer: a manifest of 10^7 files has about this size.
const ANSWER_BYTES_MAX: usize = 4 << 30;
/// Largest accepted event.
const EVENT_BYTES_MAX: usize = 1 << 20;
/// Requests fetched per call.
const PAGE: usize = 1_000;
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of retries of a busy service, each of which it holds for a minute; and the pause before
/// each.
const BUSY_TRIES: u32 = 30;
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Which service to speak to.
#[derive(Debug, Clone, Args)]
pub struct ServiceArguments {
    /// Where the service listens
    #[arg(id = "service", long = "service", value_name = "URL", env = "POSTHASTE_SERVICE",
          default_value = config::SERVICE_URL, help_heading = "Service")]
    pub url: String,
    /// File with a token of the service [default: what `posthaste login` got there, else the token of the service's default state
    /// directory]
    #[arg(
        long,
        value_name = "FILE",
        env = "POSTHASTE_TOKEN_FILE",
        help_heading = "Service"
    )]
    pub token_file: Option<PathBuf>,
}

/// Client of one service.
#[derive(Debug, Clone)]
pub struct ServiceClient {
    url: String,
    token: Shown,
    connector: WebConnector,
    client: Client<WebConnector, Full<Bytes>>,
}

/// Credential that a client presents to the service.
#[derive(Debug, Clone)]
enum Shown {
    Nothing,
    Token(String),
    /// Tokens of a login, renewed when needed.
    Login(Login),
}

impl ServiceClient {
    /// Reads the token; connects at the first question.
    ///
    /// # Errors
    /// Fails if the token file can't be read, or others can read it.
    pub fn open(arguments: &ServiceArguments) -> Result<Self, Failure> {
        let token_file = match &arguments.token_file {
            Some(file) => file.clone(),
            None => {
                if let Some(login) = Login::find(&arguments.url)? {
                    return Self::logged_in(&arguments.url, login);
                }
                config::state_directory().join("token")
            }
        };
        let token = posthaste_service::read_private(&token_file).map_err(|error| {
            if error.kind() == posthaste_endpoint::ErrorKind::NotFound {
                return Failure::new(
                    Exit::Fatal,
                    format!(
                        "can't read the service's token {}: it isn't there (start `posthaste serve`, `posthaste login`, or name the file with --token-file)",
                        token_file.display()
                    ),
                )
                .explained_by("unauthenticated");
            }
            error.into()
        })?;
        Self::with_token(&arguments.url, token)
    }

    /// Builds a client with this token.
    ///
    /// # Errors
    /// Fails if the service uses TLS and there are no certificates.
    pub fn with_token(url: &str, token: String) -> Result<Self, Failure> {
        Self::new(url, Shown::Token(token), None)
    }

    /// Builds a client for calls that need no token.
    ///
    /// # Errors
    /// Fails if the service uses TLS and there are no certificates.
    pub fn anonymous(url: &str, ca_file: Option<&Path>) -> Result<Self, Failure> {
        Self::new(url, Shown::Nothing, ca_file)
    }

    /// Builds a client with a login's tokens.
    ///
    /// # Errors
    /// Returns the errors of reading the login, and fails if the service uses TLS and there are no
    /// certificates.
    pub fn logged_in(url: &str, login: Login) -> Result<Self, Failure> {
        let ca_file = login.ca_file()?;
        Self::new(url, Shown::Login(login), ca_file.as_deref())
    }

    fn new(url: &str, token: Shown, ca_file: Option<&Path>) -> Result<Self, Failure> {
        check_address(url)?;
        let tls = web_tls(url.starts_with("https:"), ca_file)?;
        let connector = web_connector(tls, CONNECT_TIMEOUT);
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            token,
            client: Client::builder(TokioExecutor::new()).build(connector.clone()),
            connector,
        })
    }

    /// Adds the token to a request.
    async fn signed(&self, request: request::Builder) -> Result<request::Builder, Failure> {
        let token = match &self.token {
            Shown::Nothing => return Ok(request),
            Shown::Token(token) => token.clone(),
            Shown::Login(login) => login.token().await?,
        };
        Ok(request.header(header::AUTHORIZATION, format!("Bearer {token}")))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url));
        let request = self.signed(request).await?;
        let request = request
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(body.unwrap_or_default()))
            .map_err(|cause| self.no_address(&cause))?;
        self.answer(self.client.request(request)).await
    }

    fn no_address(&self, cause: &http::Error) -> Failure {
        Failure::usage(format!("can't ask the service {}: {cause}", self.url))
    }

    /// Sends a request and waits for the answer.
    async fn answer(
        &self,
        asked: impl Future<Output = Result<Response<Incoming>, legacy::Error>>,
    ) -> Result<Response<Incoming>, Failure> {
        let unreachable = |cause: String| {
            let hint = hint_of(&cause);
            let what = format!("can't reach the service {}: {cause} ({hint})", self.url);
            Failure::new(Exit::Temporary, what)
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Err(_) => Err(unreachable("no answer came".into())),
            Ok(Err(cause)) => {
                let mut root: &dyn std::error::Error = &cause;
                while let Some(source) = root.source() {
                    root = source;
                }
                Err(unreachable(root.to_string()))
            }
            Ok(Ok(response)) => Ok(response),
        }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes, Failure> {
        read(self.send(method, path, body).await?).await
    }

    /// Gets a resource.
    ///
    /// # Errors
    /// Returns the service's refusal, or fails if it can't be reached.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        parse(&self.ask(Method::GET, path, None).await?)
    }

    /// Gets a resource, and retries while the service is away.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does, with the reason if the service stays away.
    pub async fn get_again<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        ride_out(|| self.get(path), say_away).await
    }

    /// Gets a resource that may take long. Repeats the call with the path `again` while the service
    /// reports that it has not finished.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn get_patiently<T: DeserializeOwned>(
        &self,
        path: &str,
        again: &str,
    ) -> Result<T, Failure> {
        parse(&read(self.send_patiently(path, again).await?).await?)
    }

    async fn send_patiently(&self, path: &str, again: &str) -> Result<Response<Incoming>, Failure> {
        let (mut path, mut tries) = (path, 1);
        loop {
            let response = self.send(Method::GET, path, None).await?;
            let is_busy = response.status() == StatusCode::SERVICE_UNAVAILABLE;
            if !is_busy || tries >= BUSY_TRIES {
                return Ok(response);
            }
            (path, tries) = (again, tries + 1);
            tokio::time::sleep(BUSY_PAUSE).await;
        }
    }

    /// Returns the newest requests that `choice` selects (`&state=open`, for example), at most
    /// `most`, newest first.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn requests(&self, choice: &str, most: usize) -> Result<Vec<api::Request>, Failure> {
        let id = |request: &api::Request| request.id.clone();
        self.newest("/v1/requests", choice, most, id).await
    }

    /// Returns items of the newest requests that `choice` selects, at most `most`. `id` returns the
    /// id of an item's request.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn newest<T: DeserializeOwned>(
        &self,
        path: &str,
        choice: &str,
        most: usize,
        id: impl Fn(&T) -> String,
    ) -> Result<Vec<T>, Failure> {
        let mut all: Vec<T> = Vec::new();
        while all.len() < most {
            let limit = PAGE.min(most - all.len());
            let before = all.last().map(|last| format!("&before={}", id(last)));
            let before = before.unwrap_or_default();
            let page: Vec<T> = self
                .get(&format!("{path}?limit={limit}{before}{choice}"))
                .await?;
            // A service that does not know pages returns more than a page.
            let is_last = page.len() != limit;
            all.extend(page);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// Asks for bytes.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn get_bytes(&self, path: &str) -> Result<Bytes, Failure> {
        self.ask(Method::GET, path, None).await
    }

    /// Posts a body and returns the answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(anyhow::Error::from)?;
        parse(&self.ask(Method::POST, path, Some(body)).await?)
    }

    /// Puts a body and returns the answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(anyhow::Error::from)?;
        parse(&self.ask(Method::PUT, path, Some(body)).await?)
    }

    /// Deletes a resource and returns the answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        parse(&self.ask(Method::DELETE, path, None).await?)
    }

    /// Patches a resource; there is no answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn patch(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).map_err(anyhow::Error::from)?;
        self.ask(Method::PATCH, path, Some(body)).await.map(|_| ())
    }

    /// Posts a body; there is no answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn say(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).map_err(anyhow::Error::from)?;
        self.ask(Method::POST, path, Some(body)).await.map(|_| ())
    }

    /// Calls a method without a body or an answer.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn tell(&self, method: Method, path: &str) -> Result<(), Failure> {
        self.ask(method, path, None).await.map(|_| ())
    }

    /// Streams events after number `after`, of one request when named.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn events(&self, request: Option<&str>, after: u64) -> Result<Events, Failure> {
        let of = request.map_or_else(String::new, |request| format!("&request={request}"));
        let response = self
            .send(Method::GET, &format!("/v1/events?after={after}{of}"), None)
            .await?;
        Ok(Events {
            body: accepted(response).await?.into_body(),
            buffer: BytesMut::new(),
        })
    }
}

/// Checks that this is the address of a service.
fn check_address(url: &str) -> Result<(), Failure> {
    let address = url.parse::<hyper::Uri>().ok();
    let is_one = |address: &hyper::Uri| {
        matches!(address.scheme_str(), Some("http" | "https")) && address.host().is_some()
    };
    if address.as_ref().is_some_and(is_one) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "can't ask the service {url}: that is no address of one (write http://HOST:PORT or https://HOST:PORT)"
    )))
}

/// Returns a hint for a service that gives no answer.
fn hint_of(cause: &str) -> &'static str {
    if cause.contains("certificate") {
        "SSL_CERT_FILE or `posthaste login --ca-file` names the authority that signed it"
    } else if cause.contains("invalid HTTP version") {
        "where it speaks TLS, write https://"
    } else {
        "is `posthaste serve` running? --service names another"
    }
}

/// Returns a successful response, or the reason for the failure.
async fn accepted(response: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(refusal(status, &whole(response).await?)),
    }
}

/// Returns the body of a response, or the reason for its failure.
async fn read(response: Response<Incoming>) -> Result<Bytes, Failure> {
    whole(accepted(response).await?).await
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, Failure> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(|cause| {
        Failure::new(
            Exit::Temporary,
            format!("can't read the service's answer: {cause}"),
        )
    })?;
    Ok(body.to_bytes())
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|cause| {
        Failure::new(
            Exit::Other,
            format!("can't read the service's answer: {cause} (is it another version?)"),
        )
    })
}

fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    if let Ok(problem) = serde_json::from_slice::<api::Problem>(body) {
        return Failure::told(problem);
    }
    // The answer is a proxy's, not a service's.
    let said = format!("the service answered {status}");
    let exit = match status {
        StatusCode::NOT_FOUND => Exit::FileNotFound,
        StatusCode::UNAUTHORIZED => {
            return Failure::new(Exit::Fatal, said).explained_by("unauthenticated");
        }
        StatusCode::FORBIDDEN => {
            return Failure::new(Exit::Fatal, said).explained_by("permission-denied");
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            Exit::Temporary
        }
        _ => Exit::Other,
    };
    Failure::new(exit, said)
}

/// Stream of events.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    buffer: BytesMut,
}

impl Events {
    /// Returns the next event, or `None` when the service ended the stream.
    pub async fn next(&mut self) -> Option<api::Event> {
        loop {
            while let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let block = self.buffer.split_to(end + 2);
                let mut lines = block[..].split(|byte| *byte == b'\n');
                let data = lines.find_map(|line| line.strip_prefix(b"data: "));
                if let Some(event) = data.and_then(|data| serde_json::from_slice(data).ok()) {
                    return Some(event);
                }
            }
            if self.buffer.len() > EVENT_BYTES_MAX {
                return None;
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
