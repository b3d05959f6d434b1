//! Where the service listens, and answers whoever asks.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::pending,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Request, StatusCode, header},
};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use posthaste_endpoint::{Error, ErrorKind, Result, descriptors_max};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::sleep,
};
use tower_service::Service as _;

use crate::Options;

/// A connection on which no request begins, or no request's head ends, for this long is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that asked nothing so far may have one in so many descriptors, within these bounds; twice as many for a moment.
const NEWCOMERS_SHARE: u64 = 8;
const NEWCOMERS_MIN: usize = 16;
const NEWCOMERS_MAX: usize = 512;
/// What a client needs at most to say what it wants, where many come.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept, which means that the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Sees that nothing listens beyond loopback that speaks plain HTTP, unless somebody in front speaks TLS.
pub(crate) fn check(options: &Options) -> Result<()> {
    let addresses = [Some(options.listen), options.fts_listen];
    let mut addresses = addresses.into_iter().flatten();
    let beyond = addresses.find(|address| !address.ip().is_loopback());
    match beyond.filter(|_| !options.behind_tls) {
        None => Ok(()),
        Some(beyond) => Err(
            Error::new(ErrorKind::Invalid, "listen on", beyond.to_string())
                .cause("the API speaks plain HTTP, and that address is beyond loopback")
                .hint("put a TLS proxy in front and add --behind-tls, or listen on 127.0.0.1"),
        ),
    }
}

/// Takes a port; `option` is what names another one.
pub(crate) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|cause| Error::listening(address, cause, &format!("choose another with {option}")))
}

/// Answers whoever asks, until it is time to end. Connections that asked nothing so far are few and short: nobody without a token
/// keeps others out.
pub(crate) async fn answer(
    listener: TcpListener,
    routes: Router,
    mut end: watch::Receiver<bool>,
) -> Result<()> {
    let mut connections = JoinSet::new();
    let mut newcomers = Newcomers::of(descriptors_max());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = end.wait_for(|end| *end) => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            // No descriptor is left, perhaps.
            newcomers.drop_oldest();
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let has_asked = Arc::new(AtomicBool::new(false));
        let serving = serve(stream, routes.clone(), Arc::clone(&has_asked), end.clone());
        newcomers.add(has_asked, connections.spawn(serving));
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Connections that asked nothing so far, the oldest first.
struct Newcomers {
    waiting: VecDeque<(Arc<AtomicBool>, AbortHandle, Instant)>,
    most: usize,
}

impl Newcomers {
    fn of(descriptors: u64) -> Self {
        let share = usize::try_from(descriptors / NEWCOMERS_SHARE).unwrap_or(NEWCOMERS_MAX);
        Self {
            waiting: VecDeque::new(),
            most: share.clamp(NEWCOMERS_MIN, NEWCOMERS_MAX),
        }
    }

    fn add(&mut self, has_asked: Arc<AtomicBool>, handle: AbortHandle) {
        let now = crate::monotonic();
        let waits = |(has_asked, handle, _): &(Arc<AtomicBool>, AbortHandle, Instant)| {
            !has_asked.load(Ordering::Relaxed) && !handle.is_finished()
        };
        self.waiting.retain(waits);
        self.waiting.push_back((has_asked, handle, now));
        // Many may come at once, and each has a moment to say what it wants.
        let is_over = |newcomers: &Self| {
            let oldest = newcomers.waiting.front();
            let is_old = oldest.is_some_and(|(_, _, since)| now.duration_since(*since) > GRACE);
            let waiting = newcomers.waiting.len();
            waiting > 2 * newcomers.most || waiting > newcomers.most && is_old
        };
        while is_over(self) {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, handle, _)) = self.waiting.pop_front() {
            handle.abort();
        }
    }
}

/// Serves one connection to its end.
async fn serve(
    stream: TcpStream,
    routes: Router,
    has_asked: Arc<AtomicBool>,
    mut end: watch::Receiver<bool>,
) {
    let asked = Arc::clone(&has_asked);
    let answer = service_fn(move |request: Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let answered = routes.clone().call(request.map(Body::new));
        async move {
            let mut response = answered.await?;
            // Who has no token begins anew, behind others.
            if response.status() == StatusCode::UNAUTHORIZED {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
    let silence = async {
        sleep(HEAD_TIMEOUT).await;
        if has_asked.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = &mut connection => return,
        () = silence => return,
        _ = end.wait_for(|end| *end) => connection.as_mut().graceful_shutdown(),
    }
    if has_asked.load(Ordering::Relaxed) {
        let _ = connection.await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn connections_that_ask_nothing_make_room_for_those_that_do() {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "")
            .await
            .unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new().route("/", axum::routing::get(|| async { "here" }));
        let (end, ended) = watch::channel(false);
        let mut running = JoinSet::new();
        running.spawn(answer(listener, routes, ended));
        let connect = || TcpStream::connect(address);
        let mut first = connect().await.unwrap();
        first.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut others = Vec::new();
        let mut byte = [0];
        // The first one is closed once there are too many: what it began it never ended.
        while first.try_read(&mut byte).is_err() {
            others.push(connect().await.unwrap());
            assert!(others.len() <= 8 * NEWCOMERS_MAX, "nobody is sent away");
            tokio::task::yield_now().await;
        }
        let mut asks = connect().await.unwrap();
        asks.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        asks.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("here"), "{text}");
        end.send_replace(true);
        running.join_next().await.unwrap().unwrap().unwrap();
    }
}
