//! Connects to HTTP servers, and learns on the way how far they are.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tower_service::Service;

use crate::{clock, peer::socket};

/// Longest to wait for a connection, over all addresses of a host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);

/// From here on a path is long, and its sockets are set up for bulk data over distance. On shorter
/// ones the kernel's own choices cost less.
const LONG_PATH: Duration = Duration::from_millis(2);

/// What sends so many bytes without an answer is bulk data, for which BBR is right. Shorter requests
/// it would only hold back: they are sent at the pace that those before them reached.
const BULK_BYTES: usize = 1 << 20;

/// Makes connections. Clones share what they learn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dialler {
    /// The quickest connection in microseconds: one time there and back; 0 before the first.
    quickest_us: Arc<AtomicU64>,
}

impl Dialler {
    /// The way to the server and back, once something connected.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        let quickest_us = self.quickest_us.load(Relaxed);
        (quickest_us > 0).then(|| Duration::from_micros(quickest_us))
    }

    fn learn(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let quicker = |known| (known == 0 || took_us < known).then_some(took_us);
        // Somebody who was quicker still is no error.
        let _ = self.quickest_us.fetch_update(Relaxed, Relaxed, quicker);
    }

    async fn dial(self, host: String, port: u16) -> io::Result<TokioIo<Line>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in lookup_host((host.as_str(), port)).await? {
            let asked = clock::now();
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let took = clock::now().saturating_duration_since(asked);
                    self.learn(took);
                    let is_long = took >= LONG_PATH;
                    if is_long {
                        socket::prepare(&stream);
                    }
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(Line {
                        stream,
                        until_bulk: is_long.then_some(BULK_BYTES),
                    }));
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
            timeout(CONNECTED_WITHIN, dialler.dial(host, port))
                .await
                .unwrap_or_else(|_| Err(late()))
        })
    }
}

/// A connection that learns from its use whether it carries bulk data.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// Bytes to send until the next answer that make it bulk; `None` where that changes nothing.
    until_bulk: Option<usize>,
}

impl Connection for Line {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Line {
    fn count(&mut self, written: &Poll<io::Result<usize>>) {
        let (Some(left), Poll::Ready(Ok(count))) = (self.until_bulk, written) else {
            return;
        };
        self.until_bulk = left.checked_sub(*count);
        if self.until_bulk.is_none() {
            socket::use_bbr(&self.stream);
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.until_bulk.is_some() && buffer.filled().len() > before {
            self.until_bulk = Some(BULK_BYTES);
        }
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
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
