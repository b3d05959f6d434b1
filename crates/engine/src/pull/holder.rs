//! Knowledge of one depot during a pull: how fast it is, and whether it lives.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use posthaste_endpoint::{ErrorKind, Result, relay::RelayClient};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, Digest, FragmentIndex};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

use super::Holder;
use crate::dataset::DatasetId;

/// Requests to one depot at once: four TCP streams fill paths that one can't.
const LANES: usize = 4;
/// Assumed rate of a depot until something came from it: high, so that each is tried.
const RATE_UNKNOWN: ByteRate = ByteRate::new(100 << 20);
/// Pause after the first failure; doubles with each one in a row.
const REST: Duration = Duration::from_millis(250);
/// Failures in a row after which a depot is given up: with the pauses after about a second.
const FAILURES_MAX: u32 = 3;

#[derive(Debug, Default)]
struct Books {
    /// Bytes asked for and not here yet, waiting for a lane or on their way.
    outstanding: u64,
    rate: Option<ByteRate>,
    failures: u32,
    resting_until: Option<Instant>,
    lost: bool,
}

/// Depot being pulled from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) name: String,
    client: RelayClient,
    held: RwLock<BTreeSet<(ChunkIndex, FragmentIndex)>>,
    lanes: Semaphore,
    received_before: Bytes,
    books: Mutex<Books>,
}

impl Source {
    pub(super) fn new(holder: Holder) -> Self {
        Self {
            name: holder.name,
            received_before: holder.client.received(),
            client: holder.client,
            held: RwLock::new(holder.held),
            lanes: Semaphore::new(LANES),
            books: Mutex::default(),
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_lost(&self) -> bool {
        self.books().lost
    }

    /// Returns whether the last contact with it failed.
    pub(super) fn is_silent(&self) -> bool {
        let books = self.books();
        books.lost || books.failures > 0
    }

    pub(super) fn received(&self) -> Bytes {
        self.client.received() - self.received_before
    }

    /// Returns the fragments of a chunk it is known to hold.
    pub(super) fn fragments(&self, chunk: ChunkIndex) -> Vec<FragmentIndex> {
        let (first, last) = (FragmentIndex::new(0), FragmentIndex::WHOLE);
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let held = held.range((chunk, first)..=(chunk, last));
        held.map(|&(_, fragment)| fragment).collect()
    }

    /// Asks what it holds by now; without an answer the old holdings stay. Returns whether there is
    /// more.
    pub(super) async fn look_again(&self, dataset: &DatasetId) -> bool {
        let Ok(found) = self.client.inventory(dataset).await else {
            return false;
        };
        let found = found
            .into_iter()
            .map(|(chunk, fragment, _)| (chunk, fragment));
        let found: BTreeSet<_> = found.collect();
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let is_more = !found.is_subset(&held);
        *held = found;
        is_more
    }

    /// Predicts when `bytes` more would be here, from now.
    pub(super) fn predict(&self, bytes: u64) -> Duration {
        let books = self.books();
        let rest = books.resting_until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let rate = books.rate.unwrap_or(RATE_UNKNOWN);
        rest + rate.time_for(Bytes::new(books.outstanding + bytes))
    }

    /// Fetches a fragment, once a lane is free and a pause is over.
    pub(super) async fn fetch(
        &self,
        dataset: &DatasetId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        expected: Digest,
        bytes: u64,
    ) -> Result<bytes::Bytes> {
        let _counted = Outstanding::new(self, bytes);
        let resting_until = self.books().resting_until;
        if let Some(until) = resting_until {
            sleep_until(until).await;
        }
        // The semaphore is never closed.
        let lane = self.lanes.acquire().await.ok();
        let start = Instant::now();
        let result = self
            .client
            .get_fragment(dataset, chunk, fragment, expected)
            .await;
        drop(lane);
        match &result {
            Ok(_) => self.on_success(bytes, start.elapsed()),
            Err(error) => self.on_failure(error.kind()),
        }
        if result
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Corrupt)
        {
            // It may be too old for that, or away by now.
            let _ = self.client.doubt(dataset, chunk, fragment).await;
        }
        result
    }

    fn on_success(&self, bytes: u64, took: Duration) {
        let in_use = (LANES - self.lanes.available_permits()).max(1) as u64;
        let mut books = self.books();
        let sample = ByteRate::over(Bytes::new(bytes), took).scaled(in_use, 1);
        books.rate = Some(match books.rate {
            // A quarter of the weight for each sample.
            Some(rate) => (rate.scaled(3, 1) + sample).scaled(1, 4),
            None => sample,
        });
        books.failures = 0;
        books.resting_until = None;
        books.lost = false;
    }

    fn on_failure(&self, kind: ErrorKind) {
        // These errors are the fragment's, not the depot's.
        if matches!(kind, ErrorKind::NotFound | ErrorKind::Corrupt) {
            return;
        }
        let now = Instant::now();
        let mut books = self.books();
        // All lanes of a depot fail together: that is one failure.
        if books.resting_until.is_some_and(|until| now < until) {
            return;
        }
        books.failures += 1;
        books.resting_until = Some(now + REST * (1 << books.failures.min(4)) / 2);
        books.lost |= books.failures >= FAILURES_MAX
            || matches!(
                kind,
                ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
            );
    }
}

/// Bytes counted as outstanding for as long as somebody waits for them.
struct Outstanding<'a> {
    source: &'a Source,
    bytes: u64,
}

impl<'a> Outstanding<'a> {
    fn new(source: &'a Source, bytes: u64) -> Self {
        source.books().outstanding += bytes;
        Self { source, bytes }
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.source.books().outstanding -= self.bytes;
    }
}
