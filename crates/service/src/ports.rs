//! Listens and answers calls.

use std::{convert::Infallible, future::pending, net::SocketAddr, pin::pin, time::Duration};

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
use posthaste_endpoint::{Error, ErrorKind, Guest, Lobby, Result};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::sleep,
};
use tower_service::Service as _;

use crate::{Options, http::head_too_large};

/// Time after which a connection is closed if no request begins, or a request's head does not end.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest head of a request that is answered: the longest token and address are a tenth of this.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Largest head of a request that is read, so that the refusal of a larger one has our form.
const HEAD_BYTES_READ_MAX: u32 = 256 << 10;

/// Checks that plain HTTP is served beyond loopback only behind a TLS proxy.
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

/// Binds a port; `option` names the option for another one.
pub(crate) async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .map_err(|cause| Error::listening(address, cause, &format!("choose another with {option}")))
}

/// Answers calls until it is time to end. Connections without a call so far are few and short, so
/// that nobody without a token keeps others out.
pub(crate) async fn answer(
    listener: TcpListener,
    routes: Router,
    mut end: watch::Receiver<bool>,
) -> Result<()> {
    let mut connections = JoinSet::new();
    let mut lobby = Lobby::default();
    loop {
        let (stream, guest) = tokio::select! {
            accepted = lobby.accept(&listener) => accepted,
            _ = end.wait_for(|end| *end) => break,
        };
        while connections.try_join_next().is_some() {}
        let serving = serve(stream, routes.clone(), guest.clone(), end.clone());
        lobby.add(guest, connections.spawn(serving));
    }
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection to its end.
async fn serve(stream: TcpStream, routes: Router, guest: Guest, mut end: watch::Receiver<bool>) {
    let asks = guest.clone();
    let answer = service_fn(move |request: Request<Incoming>| {
        asks.let_in();
        let answered = (head_bytes(&request) <= HEAD_BYTES_MAX)
            .then(|| routes.clone().call(request.map(Body::new)));
        async move {
            let Some(answered) = answered else {
                return Ok(head_too_large(HEAD_BYTES_MAX));
            };
            let mut response = answered.await?;
            // A caller without a token starts over, behind others.
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
    http.http2().max_header_list_size(HEAD_BYTES_READ_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
    let silence = async {
        sleep(HEAD_TIMEOUT).await;
        if guest.is_in() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        _ = &mut connection => return,
        () = silence => return,
        _ = end.wait_for(|end| *end) => connection.as_mut().graceful_shutdown(),
    }
    if guest.is_in() {
        let _ = connection.await;
    }
}

fn head_bytes(request: &Request<Incoming>) -> usize {
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
    request
        .uri()
        .path_and_query()
        .map_or(0, |of| of.as_str().len())
        + headers.sum::<usize>()
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
        // The oldest is closed once there are too many: its request never ended.
        while first.try_read(&mut byte).is_err() {
            others.push(connect().await.unwrap());
            assert!(
                others.len() <= 4 * Lobby::DESCRIPTORS_MAX,
                "nobody is sent away"
            );
            tokio::task::yield_now().await;
        }
        let ask = async |more: &str| {
            let mut asks = connect().await.unwrap();
            let head = format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n");
            asks.write_all(head.as_bytes()).await.unwrap();
            let mut text = String::new();
            asks.read_to_string(&mut text).await.unwrap();
            text
        };
        let text = ask("").await;
        assert!(text.ends_with("here"), "{text}");
        let text = ask(&format!("X: {}\r\n", "x".repeat(HEAD_BYTES_MAX))).await;
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");
        assert!(text.contains("application/problem+json"), "{text}");
        assert!(text.contains(r#""code":"invalid""#), "{text}");
        end.send_replace(true);
        running.join_next().await.unwrap().unwrap().unwrap();
    }
}
