//! Exchange of one request and its answer over the connections of a pool.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_types::Digest;
use tokio::time::Instant;

use super::{
    cargo::Body,
    connection::{Lease, Pool},
    departure::Departure,
    pulse::Pulse,
    turnstile::Haste,
};
use crate::{Boxed, Error, ErrorKind, Locus, Result};

/// Least rate of an answer of known length; a slower one is given up. A fragment that trickles in
/// would otherwise be awaited like a normal one.
const LEAST_BYTES: u64 = 512;
const LEAST_WITHIN: Duration = Duration::from_secs(30);

/// Progress of an answer.
#[derive(Debug)]
struct Flow {
    since: Instant,
    bytes: u64,
}

impl Flow {
    /// Returns whether too little arrived for too long, with `bytes` received by `now`.
    fn drips(&mut self, now: Instant, bytes: u64, within: Duration) -> bool {
        if now.duration_since(self.since) < within {
            return false;
        }
        let came = bytes - self.bytes;
        (self.since, self.bytes) = (now, bytes);
        came < LEAST_BYTES
    }
}

/// Subject of a request, for errors, and its precedence over others.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) operation: &'static str,
    pub(super) path: String,
    /// True if it uses the connections set apart from those of fragments.
    pub(super) is_urgent: bool,
    pub(super) haste: Haste,
    /// Departure whose cancellation keeps the request from being sent.
    pub(super) departure: Option<Arc<Departure>>,
}

impl Pool {
    /// Sends a request and waits for the head of its answer. A kept connection that was closed
    /// meanwhile is replaced once: every request here may be sent twice.
    pub(super) fn exchange<'a>(
        &'a self,
        call: &'a Call,
        request: &'a (dyn Fn(&Arc<Pulse>) -> Result<Request<Body>> + Sync),
    ) -> Boxed<'a, Result<(Lease, Response<Incoming>)>> {
        Box::pin(async move {
            let mut reuse = true;
            loop {
                let mut lease = self.lease(reuse, call).await?;
                let pulse = lease.connection.pulse();
                let request = request(&pulse)?;
                let exchange = async {
                    lease.connection.sender.ready().await?;
                    lease.connection.sender.send_request(request).await
                };
                let exchanged = self.watch(&pulse, call.operation, exchange).await;
                if !lease.reused && !matches!(&exchanged, Ok(Ok(_))) {
                    self.broke(&lease.connection);
                }
                match exchanged? {
                    Ok(response) => return Ok((lease, response)),
                    Err(_) if lease.reused => reuse = false,
                    Err(cause) => return Err(self.broken(call, cause)),
                }
            }
        })
    }

    /// Reads the rest of an answer, at most `bytes_max`, checks its digest against the expected
    /// one, and keeps the connection.
    pub(super) fn collect<'a>(
        &'a self,
        call: &'a Call,
        lease: Lease,
        response: Response<Incoming>,
        bytes_max: u64,
        expected: Option<Digest>,
    ) -> Boxed<'a, Result<Bytes>> {
        Box::pin(async move {
            let length = response
                .headers()
                .get(header::CONTENT_LENGTH)
                .and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
                .unwrap_or(0);
            if length > bytes_max {
                return Err(self.nonsense(call, "the answer is too long"));
            }
            let mut body = response.into_body();
            let mut bytes = BytesMut::with_capacity(usize::try_from(length).unwrap_or(0));
            let mut hasher = blake3::Hasher::new();
            let pulse = lease.connection.pulse();
            let mut flow = Flow {
                since: Instant::now(),
                bytes: 0,
            };
            let within = LEAST_WITHIN + self.drain_time();
            loop {
                let next = self.watch(&pulse, call.operation, body.frame()).await;
                if !matches!(&next, Ok(None | Some(Ok(_)))) {
                    self.broke(&lease.connection);
                }
                let Some(frame) = next? else {
                    break;
                };
                let frame = frame.map_err(|cause| self.broken(call, cause))?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                if (bytes.len() + data.len()) as u64 > bytes_max {
                    return Err(self.nonsense(call, "the answer is too long"));
                }
                if expected.is_some() {
                    hasher.update(data);
                }
                bytes.extend_from_slice(data);
                let came = bytes.len() as u64;
                if came < length && flow.drips(Instant::now(), came, within) {
                    self.broke(&lease.connection);
                    return Err(self.dripped(call, within));
                }
            }
            self.give_back(lease);
            match expected {
                Some(digest) if digest.as_bytes() != hasher.finalize().as_bytes() => {
                    let subject = format!("{}{}", self.place.url, call.path);
                    Err(Error::new(ErrorKind::Corrupt, call.operation, subject)
                        .at(Locus::Source)
                        .cause("its digest is wrong"))
                }
                _ => Ok(bytes.freeze()),
            }
        })
    }

    fn dripped(&self, call: &Call, within: Duration) -> Error {
        let url = self.place.url.clone();
        Error::new(ErrorKind::TimedOut, call.operation, url)
            .at(Locus::Network)
            .with("path", &call.path)
            .cause(format!(
                "less than {LEAST_BYTES} bytes came in {} s",
                within.as_secs()
            ))
    }

    fn broken(&self, call: &Call, cause: hyper::Error) -> Error {
        let url = self.place.url.clone();
        Error::new(ErrorKind::Unreachable, call.operation, url)
            .at(Locus::Network)
            .with("path", &call.path)
            .cause(cause)
            .hint("the connection broke")
    }

    pub(super) fn nonsense(
        &self,
        call: &Call,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        let url = self.place.url.clone();
        Error::new(ErrorKind::Other, call.operation, url)
            .at(Locus::Network)
            .with("path", &call.path)
            .cause(cause)
            .hint("what answers there is no relay of this release")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_drips_is_told_from_what_is_slow() {
        let start = Instant::now();
        let after = |secs: u64| start + Duration::from_secs(secs);
        for (bytes_a_second, drips) in [(1, true), (17, true), (18, false)] {
            let mut flow = Flow {
                since: start,
                bytes: 0,
            };
            let looks = (1..=90).map(|s| flow.drips(after(s), s * bytes_a_second, LEAST_WITHIN));
            assert_eq!(looks.filter(|drips| *drips).count() > 0, drips);
        }
    }
}
