//! Connections to HTTP servers, with a measurement of their distance.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tower_service::Service;

use crate::{
    Result, clock,
    line::{self, Fleet, Line},
    proxy::Proxies,
    reach::Reach,
};

/// Timeout of a connection, over all addresses of a host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);

/// Maker of connections. Clones share what they learn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialler {
    /// Quickest connection in microseconds: one round trip; 0 before the first.
    quickest_us: Arc<AtomicU64>,
    fleet: Arc<Fleet>,
    proxies: Proxies,
    reach: Reach,
}

impl Dialler {
    /// Creates one that uses the proxies of the environment.
    ///
    /// # Errors
    /// Errors of [`Proxies::of_environment`].
    pub(crate) fn new() -> Result<Self> {
        Ok(Self::through(Proxies::of_environment()?))
    }

    /// Creates one that uses these proxies.
    pub(crate) fn through(proxies: Proxies) -> Self {
        Self {
            proxies,
            ..Self::default()
        }
    }

    /// Returns a dialler that connects only where `reach` permits.
    pub(crate) fn reaching(self, reach: Reach) -> Self {
        Self { reach, ..self }
    }

    /// Returns the credentials for the proxy that passes on a plain HTTP request to `uri`.
    pub(crate) fn proxy_authorization(&self, uri: &Uri) -> Option<HeaderValue> {
        self.proxies.authorization(uri)
    }

    /// Returns the dialler for a proxy, which an operator named: without proxies, to any address.
    fn direct(&self) -> Self {
        Self {
            proxies: Proxies::default(),
            reach: Reach::default(),
            ..self.clone()
        }
    }

    /// Returns the round trip time to the server, once something connected.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let quickest_us = self.quickest_us.load(Relaxed);
        (quickest_us > 0).then(|| Duration::from_micros(quickest_us))
    }

    fn learn(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let quicker = |known| (known == 0 || took_us < known).then_some(took_us);
        // A concurrent quicker measurement is no error.
        let _ = self.quickest_us.fetch_update(Relaxed, Relaxed, quicker);
    }

    async fn dial(self, host: String, port: u16) -> io::Result<TokioIo<Line>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((host.as_str(), port)).await? {
            if let Err(refused) = self.reach.check(address) {
                last = refused;
                continue;
            }
            let asked = clock::now();
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let took = clock::now().saturating_duration_since(asked);
                    self.learn(took);
                    let line = if took >= line::LONG_PATH {
                        let is_bulk = Arc::new(AtomicBool::new(true));
                        Line::far(stream, self.fleet, is_bulk)
                    } else {
                        Line::near(stream)
                    };
                    return Ok(TokioIo::new(line));
                }
                Err(cause) => last = cause,
            }
        }
        Err(last)
    }
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<Line>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialler = self.clone();
        let usual = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(usual);
        let host = uri.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_owned();
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer");
            let connect = async {
                // A proxy goes wherever it is asked to.
                dialler.reach.check_host(&host, port).await?;
                match dialler.proxies.connect(&uri, dialler.direct()).await {
                    Some(connected) => connected,
                    None => dialler.clone().dial(host, port).await,
                }
            };
            timeout(CONNECTED_WITHIN, connect)
                .await
                .unwrap_or_else(|_| Err(late()))
        })
    }
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_through_proxy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_connection_says_how_far_it_is() {
        let dialler = Dialler::default();
        assert_eq!(dialler.round_trip(), None);
        for took_us in [900, 300, 700] {
            dialler.learn(Duration::from_micros(took_us));
        }
        assert_eq!(dialler.round_trip(), Some(Duration::from_micros(300)));
    }
}
