//! Where the service listens, and answers whoever asks.

use std::net::SocketAddr;

use posthaste_endpoint::{Error, ErrorKind, Result};
use tokio::net::TcpListener;

use crate::Options;

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

/// Answers whoever asks, until it is time to end.
pub(crate) async fn answer(
    listener: TcpListener,
    routes: axum::Router,
    mut end: tokio::sync::watch::Receiver<bool>,
) -> Result<()> {
    let stop = async move {
        let _ = end.wait_for(|end| *end).await;
    };
    axum::serve(listener, routes)
        .with_graceful_shutdown(stop)
        .await
        .map_err(|cause| Error::io("serve", "the API", cause))
}
