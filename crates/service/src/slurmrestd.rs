//! Asks slurmrestd in place of Slurm's programs: over a socket of this machine or over HTTP, in the
//! newest API version that both know.

mod address;
mod answer;
mod token;

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioIo},
};
use posthaste_batch::{
    queue::{Queue, Unreadable},
    slurm::{self, JobState},
};
use posthaste_endpoint::{
    Error, ErrorKind, Locus, Result, Status, WebConnector, deepest, web_connector, web_tls,
};
use tokio::{net::UnixStream, time::sleep};
use tower_service::Service;

pub use address::QueueUrl;
use answer::{Answer, Late};
use token::Token;

/// API versions that are tried, newest first: v0.0.46 is that of Slurm 26.11, v0.0.36 that of
/// 21.08.
const VERSIONS: std::ops::RangeInclusive<u32> = 36..=46;
/// First API version that takes the option not to clip jobs at the first of the requested weeks;
/// earlier ones don't clip, and don't know the option.
const CUTS_SINCE: u32 = 40;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for an answer of a few bytes.
const SHORT_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest wait for a queue: slurmrestd composes some thousand jobs a second.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for weeks of jobs, once.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest part of a refusal that is read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Options of asking slurmrestd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestOptions {
    /// Address of slurmrestd.
    pub url: QueueUrl,
    /// File with the token for slurmrestd, read anew for each call; none if slurmrestd identifies
    /// the socket's peer.
    pub token_file: Option<PathBuf>,
    /// Certificate authorities trusted beside the system's.
    pub ca_file: Option<PathBuf>,
}

/// Connection to a slurmrestd.
pub(crate) struct Slurmrestd {
    url: QueueUrl,
    token_file: Option<PathBuf>,
    way: Way,
    /// API version in use; 0 while unknown.
    version: AtomicU32,
}

enum Way {
    Web(Client<WebConnector, Empty<Bytes>>),
    Socket(Client<Socket, Empty<Bytes>>),
}

impl Slurmrestd {
    /// Returns the client that the options ask for, if any.
    ///
    /// # Errors
    /// Errors of [`Slurmrestd::open`].
    pub(crate) fn of(options: Option<&RestOptions>) -> Result<Option<Arc<Self>>> {
        let opened = options.map(Self::open).transpose()?;
        Ok(opened.map(Arc::new))
    }

    /// Prepares the client. Asks nothing yet.
    ///
    /// # Errors
    /// Fails if TLS is used and no certificates are found.
    fn open(options: &RestOptions) -> Result<Self> {
        let mut client = Client::builder(TokioExecutor::new());
        // Calls come a few times a minute: no connection is worth keeping.
        client.pool_max_idle_per_host(0);
        let way = match options.url.socket() {
            Some(path) => Way::Socket(client.build(Socket(path.into()))),
            None => {
                let ca_file = options.ca_file.as_deref();
                let tls = web_tls(options.url.is_secure(), ca_file)?;
                Way::Web(client.build(web_connector(tls, CONNECT_TIMEOUT)))
            }
        };
        Ok(Self {
            url: options.url.clone(),
            token_file: options.token_file.clone(),
            way,
            version: AtomicU32::new(0),
        })
    }

    /// Returns the current queue, and the usable processors.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`], [`ErrorKind::Unauthenticated`]; those
    /// of the token's file; otherwise its own message.
    pub(crate) async fn queue(&self) -> Result<(Queue, u32)> {
        let queue = self.ask(|_| "slurm/{}/jobs", QUEUE_TIMEOUT, slurm::queue);
        let queue = queue.await?;
        let procs = self.ask(|_| "slurm/{}/nodes", QUEUE_TIMEOUT, slurm::processors_json);
        Ok((queue, procs.await?))
    }

    /// Returns the state of each job that Slurm knows.
    ///
    /// # Errors
    /// Errors of [`Slurmrestd::queue`].
    pub(crate) async fn states(&self) -> Result<BTreeMap<u64, JobState>> {
        self.ask(|_| "slurm/{}/jobs", QUEUE_TIMEOUT, slurm::job_states_json)
            .await
    }

    /// Returns the jobs of the last two weeks, if Slurm keeps accounting.
    ///
    /// # Errors
    /// Errors of [`Slurmrestd::queue`].
    pub(crate) async fn history(&self) -> Result<Queue> {
        let path = |version: u32| {
            if version < CUTS_SINCE {
                "slurmdb/{}/jobs?start_time=now-14days&skip_steps=true"
            } else {
                "slurmdb/{}/jobs?start_time=now-14days&skip_steps=true&disable_truncate_usage_time=true"
            }
        };
        self.ask(path, HISTORY_TIMEOUT, slurm::history).await
    }

    /// Calls a path, in which `{}` is the API version, and parses the answer as it arrives.
    async fn ask<T: Send + 'static>(
        &self,
        path: impl Fn(u32) -> &'static str,
        patience: Duration,
        read: impl FnOnce(Answer) -> core::result::Result<T, Unreadable> + Send + 'static,
    ) -> Result<T> {
        let at = Box::pin(sleep(patience));
        let known = self.version.load(Relaxed);
        let mut version = match known {
            0 => self.find_version().await?,
            known => known,
        };
        let mut answer = self.get(&named(path(version), version), patience).await?;
        if answer.status() == StatusCode::NOT_FOUND && version == known {
            // Another release may have replaced it.
            version = self.find_version().await?;
            answer = self.get(&named(path(version), version), patience).await?;
        }
        if answer.status() != StatusCode::OK {
            return Err(self.refused(answer, &named(path(version), version)).await);
        }
        let late = Late { at, patience };
        let read = answer::read(answer.into_body(), late, read);
        let read = read
            .await
            .map_err(|cause| self.fail(ErrorKind::Other).cause(cause))?;
        read.map_err(|cause| self.fail(ErrorKind::Other).cause(cause))
    }

    /// Finds and stores the newest API version that it knows.
    async fn find_version(&self) -> Result<u32> {
        self.version.store(0, Relaxed);
        for version in VERSIONS.rev() {
            let path = named("slurm/{}/ping", version);
            let answer = self.get(&path, SHORT_TIMEOUT).await?;
            match answer.status() {
                StatusCode::NOT_FOUND => {}
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    return Err(self.refused(answer, &path).await);
                }
                // Any answer shows that it knows the version, whatever it reports of the
                // controller.
                _ => {
                    self.version.store(version, Relaxed);
                    return Ok(version);
                }
            }
        }
        let (first, last) = (VERSIONS.start(), VERSIONS.end());
        Err(self
            .fail(ErrorKind::Unsupported)
            .cause(format!("it knows none of v0.0.{first} to v0.0.{last}"))
            .hint("is it slurmrestd, with the plug-in openapi/slurmctld?"))
    }

    /// Returns its response, whatever the status.
    async fn get(&self, path: &str, patience: Duration) -> Result<Response<Incoming>> {
        let request = self.request(path)?;
        let asking = async {
            match &self.way {
                Way::Web(client) => client.request(request).await,
                Way::Socket(client) => client.request(request).await,
            }
        };
        let asked = tokio::time::timeout(patience, asking).await;
        let asked = asked.map_err(|_| {
            let cause = format!("no answer in {} s", patience.as_secs());
            self.fail(ErrorKind::TimedOut).cause(cause)
        })?;
        asked.map_err(|cause| self.unreachable(&cause))
    }

    fn request(&self, path: &str) -> Result<Request<Empty<Bytes>>> {
        let mut request = Request::get(format!("{}/{path}", self.url.base()))
            .header(header::ACCEPT, "application/json");
        if let Some(file) = &self.token_file {
            // Tokens expire, and a replacement is not announced.
            let token = tokio::task::block_in_place(|| Token::read(file))?;
            request = request.header("x-slurm-user-token", token.value);
            if let Some(user) = token.user {
                request = request.header("x-slurm-user-name", user);
            }
        }
        let request = request.body(Empty::new());
        request.map_err(|cause| self.fail(ErrorKind::Invalid).cause(cause))
    }

    fn unreachable(&self, cause: &legacy::Error) -> Error {
        let reason = deepest(cause);
        if reason.contains("certificate") {
            return self
                .fail(ErrorKind::Unauthenticated)
                .cause(reason)
                .hint("name its authority's certificate with --queue-ca-file");
        }
        self.fail(ErrorKind::Unreachable)
            .cause(reason)
            .hint("does slurmrestd run there?")
    }

    /// Returns the error of a refusal, in one line.
    async fn refused(&self, answer: Response<Incoming>, path: &str) -> Error {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect();
        let body = tokio::time::timeout(SHORT_TIMEOUT, body).await;
        let body = body
            .ok()
            .and_then(|body| body.ok())
            .map(|body| body.to_bytes());
        let told = body.and_then(|body| slurm::complaint(&body));
        let told = told.map_or_else(String::new, |told| format!(": {told}"));
        let error = |kind| {
            let path = path.split('?').next().unwrap_or(path);
            self.fail(kind)
                .cause(format!("it answered {status} to /{path}{told}"))
        };
        // Slurm until 22.05 reports an invalid token as it does other errors.
        let about_token = || match &self.token_file {
            Some(file) => format!("is the token in {} still good?", file.display()),
            None => "name a file with a token with --queue-token-file".to_owned(),
        };
        match status {
            StatusCode::NOT_FOUND => {
                let plugin = if path.starts_with("slurmdb/") {
                    "slurmdbd"
                } else {
                    "slurmctld"
                };
                error(ErrorKind::Unsupported)
                    .hint(format!("is it started with the plug-in openapi/{plugin}?"))
            }
            StatusCode::FORBIDDEN => error(ErrorKind::PermissionDenied).hint(about_token()),
            StatusCode::UNAUTHORIZED | StatusCode::NETWORK_AUTHENTICATION_REQUIRED => {
                error(ErrorKind::Unauthenticated).hint(about_token())
            }
            _ if self.token_file.is_some() => error(ErrorKind::Other).hint(about_token()),
            _ => error(ErrorKind::Other),
        }
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        // The next look asks again, whatever the error.
        Error::new(kind, "ask", format!("slurmrestd at {}", self.url))
            .at(Locus::Network)
            .status_is(Status::Temporary)
    }
}

/// Returns a path with the API version in it.
fn named(path: &str, version: u32) -> String {
    path.replace("{}", &format!("v0.0.{version}"))
}

/// Connector to a socket of this machine, whatever host is named.
#[derive(Debug, Clone)]
struct Socket(Arc<Path>);

impl Service<Uri> for Socket {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = Arc::clone(&self.0);
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests;
