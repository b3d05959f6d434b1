//! Measures the capacity of the path to the store behind a relay that hands out presigned URLs. It
//! sends the beginning of an object, which is abandoned, or removed if it was stored. No store
//! reports when bytes arrived, but its kernel acknowledges them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Method;
use http_body_util::StreamBody;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use posthaste_types::{Bytes as Amount, Digest};
use socket2::SockRef;
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    Probed, RelayClient,
    passes::Through,
    probe::{UNSENT_BYTES_MAX, blocks, noise},
    wire::{PROBE_BYTES_MAX, PassAnswer, PassBody, Target},
};
use crate::{BodySum, Checksum, Error, ErrorKind, Locus, Result, clock};

/// Interval between marks of the bytes that arrived.
const MARK_EVERY: Duration = Duration::from_millis(40);
/// Lifetime of the presigned URL in seconds; a probe takes less.
const WANTED_S: u64 = 600;

impl RelayClient {
    /// Probes the store like [`Self::probe`].
    pub(super) async fn probe_store(
        &self,
        budget: Amount,
        goes_on: impl FnMut(Duration, Duration, Amount) -> bool + Send + 'static,
    ) -> Result<Probed> {
        let size = budget.get().min(PROBE_BYTES_MAX);
        let mut name = [0; 32];
        getrandom::fill(&mut name).map_err(|cause| self.probe_failed().cause(cause.to_string()))?;
        let mut body = PassBody {
            size,
            digest: Digest::new(name).to_string(),
            expires_unix_s: clock::unix_secs() + WANTED_S,
            crc64nvme: sum_of(size).to_base64(),
            md5: None,
            is_sent: false,
        };
        let mut answer = self.order("probe", Target::Probe, &body).await?;
        if matches!(answer, PassAnswer::NeedsMd5) {
            let sum = spawn_blocking(move || md5_of(size)).await;
            let sum = sum.map_err(|cause| self.probe_failed().cause(cause))?;
            body.md5 = Some(sum.to_base64());
            answer = self.order("probe", Target::Probe, &body).await?;
        }
        let PassAnswer::Send { url, headers } = answer else {
            return Err(self.no_pass());
        };
        let pass = self.pass_of(url, headers)?;
        let through = self.through(&pass, Method::PUT)?;
        let probed = self.probe_through(&through, size, goes_on).await;
        body.is_sent = true;
        // A relay that is not told removes the object by itself later.
        let _ = self
            .order::<PassAnswer>("probe", Target::Probe, &body)
            .await;
        probed
    }

    async fn probe_through(
        &self,
        through: &Through<'_>,
        size: u64,
        mut goes_on: impl FnMut(Duration, Duration, Amount) -> bool + Send + 'static,
    ) -> Result<Probed> {
        let opened = through.store.connect().await?;
        // An optional improvement.
        let _ = SockRef::from(opened.stream.tcp()).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let (round_trip, pulse) = (opened.round_trip, opened.pulse);
        let (before, started) = (pulse.arrived(), Instant::now());
        let (has_enough, given) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (enough, so_far) = (Arc::clone(&has_enough), Arc::clone(&given));
        let blocks = blocks(size, move |sent| {
            so_far.store(sent.get(), Ordering::Relaxed);
            let more = goes_on(round_trip, started.elapsed(), sent);
            enough.store(!more, Ordering::Relaxed);
            more
        });
        let request = through.request_with(size, Box::pin(StreamBody::new(blocks)))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(opened.stream))
            .await
            .map_err(|cause| self.probe_failed().cause(cause))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The request gets the same error; nobody else needs it.
            let _ = connection.await;
        });
        let mut marks = Vec::new();
        let mut tick = interval(MARK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut answer = std::pin::pin!(sender.send_request(request));
        let answer = loop {
            tokio::select! {
                answer = &mut answer => break answer,
                _ = tick.tick() => {}
            }
            let arrived = pulse.arrived().saturating_sub(before);
            marks.push((started.elapsed(), Amount::new(arrived)));
        };
        let arrived = pulse.arrived().saturating_sub(before);
        marks.push((started.elapsed(), Amount::new(arrived.min(size))));
        match answer {
            // The upload was abandoned, so it has no answer.
            Err(_) if has_enough.load(Ordering::Relaxed) => {}
            Err(cause) => return Err(self.probe_failed().cause(cause)),
            Ok(answer) if answer.status().is_success() => given.store(size, Ordering::Relaxed),
            Ok(answer) => {
                let cause = format!("the store answered {}", answer.status());
                return Err(self.probe_failed().cause(cause));
            }
        }
        Ok(Probed {
            round_trip,
            sent: Amount::new(given.load(Ordering::Relaxed)),
            marks,
        })
    }

    fn probe_failed(&self) -> Error {
        let url = self.address.url.clone();
        Error::new(ErrorKind::Unreachable, "probe the store of", url).at(Locus::Network)
    }
}

/// Returns the checksum of all blocks of a probe.
fn sum_of(size: u64) -> Checksum {
    let block = noise();
    let whole = size / block.len() as u64;
    let rest = usize::try_from(size % block.len() as u64).unwrap_or(0);
    let one = Checksum::of(&block);
    let all = (0..whole).fold(Checksum::EMPTY, |sum, _| sum.then(one, block.len() as u64));
    all.then(Checksum::of(&block[..rest]), rest as u64)
}

/// Returns their MD5. A few hundred mebibytes take a second.
fn md5_of(size: u64) -> BodySum {
    use md5::{Digest as _, Md5};
    let block = noise();
    let mut sum = Md5::new();
    let mut left = size;
    while left > 0 {
        let next = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        sum.update(&block[..next]);
        left -= next as u64;
    }
    BodySum::Md5(sum.finalize().into())
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_probe_has_the_sums_that_are_said_of_it() {
        for size in [0, 1, 65_536, 200_000] {
            let all: Vec<u8> = blocks(size, |_| true)
                .flat_map(|block| {
                    let block = block.unwrap().into_data().unwrap();
                    futures_util::stream::iter(block.to_vec())
                })
                .collect()
                .await;
            assert_eq!(all.len() as u64, size);
            assert_eq!(sum_of(size), Checksum::of(&all));
            assert_eq!(md5_of(size), BodySum::md5_of(&all));
        }
    }
}
