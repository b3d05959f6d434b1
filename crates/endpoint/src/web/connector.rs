//! Connections to servers over HTTP that are no stores: services, providers, collectors.

use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

/// Connector to servers that speak TLS or plain HTTP.
pub type WebConnector = HttpsConnector<HttpConnector>;

/// Returns a connector to servers that speak TLS, as [`web_tls`](crate::web_tls) sets it up, or
/// plain HTTP, as their addresses say. Connecting may take `patience`.
#[must_use]
pub fn web_connector(tls: ClientConfig, patience: Duration) -> WebConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(patience));
    HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http)
}
