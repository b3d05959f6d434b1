//! A server on a loopback port with scripted answers and faults.

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt, io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

use crate::free_port;

/// Longest accepted body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Fault of one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The question is done, and the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks before anything is done.
    LoseQuestion,
    /// The question is done, and the answer comes so much later.
    Slow(Duration),
    /// The question is done, and the answer is invalid.
    Garbage,
    /// The question is done, and the answer is so many bytes long.
    Endless(usize),
    /// The server fails: status 500 and nothing done.
    Broken,
}

/// A question as a stand-in sees it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub method: Method,
    pub path: String,
    /// Bearer token, the text behind `Bearer `.
    pub bearer: Option<String>,
    /// The header `SOAPAction`.
    pub action: Option<String>,
    pub body: String,
}

/// A status, a content type and a body.
pub(crate) type Told = (u16, &'static str, String);

/// Behaviour of a stand-in when it is asked.
pub(crate) trait Answers: Send + 'static {
    fn answer(&mut self, asked: &Asked) -> Told;
}

/// Faults to come, each for the next question whose path or action contains a text.
#[derive(Debug, Default)]
struct Plan(VecDeque<(String, Fault)>);

impl Plan {
    fn take(&mut self, asked: &Asked) -> Option<Fault> {
        let hits = |text: &str| {
            asked.path.contains(text)
                || asked
                    .action
                    .as_deref()
                    .is_some_and(|action| action.ends_with(text))
        };
        let at = self.0.iter().position(|(text, _)| hits(text))?;
        self.0.remove(at).map(|(_, fault)| fault)
    }
}

/// A running server around the source of its answers.
pub(crate) struct StandIn<A> {
    answers: Arc<Mutex<A>>,
    plan: Arc<Mutex<Plan>>,
    address: SocketAddr,
    /// Counter of restarts; gone when it is to end.
    life: Option<watch::Sender<u32>>,
    thread: Option<JoinHandle<()>>,
}

impl<A> fmt::Debug for StandIn<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a stand-in at {}", self.address)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection is to break without an answer.
#[derive(Debug)]
struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is lost, as it was told to be")
    }
}

impl std::error::Error for Lost {}

impl From<Infallible> for Lost {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl<A: Answers> StandIn<A> {
    /// Starts it on a free port.
    pub(crate) fn start(answers: A) -> Result<Self> {
        let answers = Arc::new(Mutex::new(answers));
        let plan = Arc::new(Mutex::new(Plan::default()));
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, free_port()?));
        let listener = listener.context("listen for a stand-in")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (life, told) = watch::channel(0);
        let (theirs, plans) = (answers.clone(), plan.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::spawn(move || {
            // If the listener ends, the test ends too: it sees that nobody answers.
            let _ = runtime.block_on(serve(listener, told, &theirs, &plans));
        });
        Ok(Self {
            answers,
            plan,
            address,
            life: Some(life),
            thread: Some(thread),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives access to the source of its answers, for tests that look or change.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut A) -> T) -> T {
        change(&mut lock(&self.answers))
    }

    /// Makes the next question whose path or action has `text` meet `fault`.
    pub(crate) fn plan(&self, text: &str, fault: Fault) {
        lock(&self.plan).0.push_back((text.to_owned(), fault));
    }

    /// Drops all planned faults.
    pub(crate) fn forget_plan(&self) {
        lock(&self.plan).0.clear();
    }

    /// Returns the number of planned faults that were not met yet.
    pub(crate) fn planned(&self) -> usize {
        lock(&self.plan).0.len()
    }

    /// Breaks all connections, as a restart does.
    pub(crate) fn break_all(&self) {
        if let Some(life) = &self.life {
            life.send_modify(|count| *count += 1);
        }
    }
}

impl<A> Drop for StandIn<A> {
    fn drop(&mut self) {
        drop(self.life.take());
        if let Some(thread) = self.thread.take() {
            // The thread panicked: the test has seen that already.
            let _ = thread.join();
        }
    }
}

async fn serve<A: Answers>(
    listener: std::net::TcpListener,
    mut told: watch::Receiver<u32>,
    answers: &Arc<Mutex<A>>,
    plan: &Arc<Mutex<Plan>>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                let (answers, plan) = (answers.clone(), plan.clone());
                connections.spawn(async move {
                    let service = service_fn(|request| answer(request, &answers, &plan));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // The connection broke on purpose, by the stand-in or the client: the client's
                    // test tells which.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            changed = told.changed() => match changed {
                Ok(()) => connections.abort_all(),
                Err(_) => return Ok(()),
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn answer<A: Answers>(
    request: Request<Incoming>,
    answers: &Mutex<A>,
    plan: &Mutex<Plan>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let (head, body) = request.into_parts();
    let text = |name: &str| Some(head.headers.get(name)?.to_str().ok()?.to_owned());
    let body = Limited::new(body, BODY_BYTES_MAX)
        .collect()
        .await
        .map_err(|_| Lost)?;
    let asked = Asked {
        bearer: text("authorization")
            .and_then(|said| Some(said.strip_prefix("Bearer ")?.to_owned())),
        action: text("soapaction").map(|action| action.trim_matches('"').to_owned()),
        path: head.uri.path().to_owned(),
        method: head.method,
        body: String::from_utf8_lossy(&body.to_bytes()).into_owned(),
    };
    let fault = lock(plan).take(&asked);
    match fault {
        Some(Fault::LoseQuestion) => return Err(Lost),
        Some(Fault::Broken) => return Ok(response((500, "application/json", String::new()))),
        _ => {}
    }
    let told = lock(answers).answer(&asked);
    match fault {
        Some(Fault::LoseAnswer) => Err(Lost),
        Some(Fault::Slow(pause)) => {
            tokio::time::sleep(pause).await;
            Ok(response(told))
        }
        Some(Fault::Garbage) => Ok(response((200, told.1, "\u{0}<}{\"".to_owned()))),
        Some(Fault::Endless(bytes)) => Ok(response((200, told.1, " ".repeat(bytes)))),
        Some(Fault::LoseQuestion | Fault::Broken) | None => Ok(response(told)),
    }
}

fn response((status, kind, body): Told) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = hyper::header::HeaderValue::from_static(kind);
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, kind);
    response
}

/// Returns seconds since 1970 by this machine's clock.
#[expect(
    clippy::disallowed_methods,
    reason = "a server of another house has a clock of its own"
)]
pub(crate) fn unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
