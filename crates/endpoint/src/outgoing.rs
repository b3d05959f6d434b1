//! Counting of the bytes of a write attempt as they are passed to a connection.
//!
//! The caller that runs the attempt counts the bytes of a stream as the endpoint reads them
//! ([`Outgoing::pass`]). Bytes that an endpoint is given whole, or gathers before it sends
//! anything, it counts itself as they go: [`Outgoing::counted`] and [`Load`].

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use crate::endpoint::ByteStream;

/// Bytes handed on and counted together: steps too small to be seen on the slowest links.
pub(crate) const STEP_BYTES: usize = 128 << 10;

tokio::task_local! {
    static CURRENT: Outgoing;
}

/// Counter of sent bytes.
pub trait Counter: Send + Sync {
    /// Counts bytes handed to a connection.
    fn left(&self, bytes: u64);
    /// Subtracts bytes that will be handed to it again.
    fn came_back(&self, bytes: u64);
}

/// Bytes of one write attempt. Clones belong to the same attempt.
#[derive(Clone, Default)]
pub struct Outgoing {
    counter: Option<Arc<dyn Counter>>,
    held: Arc<AtomicUsize>,
}

impl Outgoing {
    /// Returns an attempt whose bytes `counter` counts.
    #[must_use]
    pub fn new(counter: Arc<dyn Counter>) -> Self {
        Self {
            counter: Some(counter),
            held: Arc::default(),
        }
    }

    /// Runs the attempt, and counts the bytes it hands to connections.
    pub async fn cover<F: Future>(&self, attempt: F) -> F::Output {
        CURRENT.scope(self.clone(), attempt).await
    }

    /// Counts bytes that an endpoint reads from a stream, unless it only gathers them.
    pub fn pass(&self, bytes: u64) {
        if self.held.load(Relaxed) == 0
            && let Some(counter) = &self.counter
        {
            counter.left(bytes);
        }
    }

    /// Returns the counter of the attempt this is called in, or one without an audience.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    /// Suspends the count until the result is dropped: bytes read from streams are only gathered.
    pub(crate) fn hold(&self) -> Held {
        self.held.fetch_add(1, Relaxed);
        Held(Arc::clone(&self.held))
    }

    /// Returns a body whose bytes count as they go.
    pub(crate) fn load(&self) -> Load {
        Load {
            counter: self.counter.clone(),
            counted: 0,
        }
    }

    /// Returns bytes in memory as a stream: they count as they are read from it.
    pub(crate) fn counted(self, data: impl IntoIterator<Item = Bytes>) -> ByteStream {
        let steps: Vec<Bytes> = data.into_iter().flat_map(steps).collect();
        Box::pin(stream::iter(steps).map(move |bytes| {
            self.pass(bytes.len() as u64);
            Ok(bytes)
        }))
    }
}

/// Cuts bytes into pieces of [`STEP_BYTES`] at most.
fn steps(mut bytes: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let step = bytes.split_to(bytes.len().min(STEP_BYTES));
        (!step.is_empty()).then_some(step)
    })
}

/// Guard while an endpoint gathers the bytes it reads from streams.
pub(crate) struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A body on its way. If it is dropped before its end, its count is taken back.
#[derive(Default)]
pub(crate) struct Load {
    counter: Option<Arc<dyn Counter>>,
    counted: u64,
}

impl Load {
    /// Returns a new count for the same attempt, for the same bytes on another connection.
    pub(crate) fn again(&self) -> Self {
        Self {
            counter: self.counter.clone(),
            counted: 0,
        }
    }

    /// Counts further bytes handed to the connection.
    pub(crate) fn left(&mut self, bytes: u64) {
        if let Some(counter) = &self.counter {
            counter.left(bytes);
            self.counted += bytes;
        }
    }

    /// Notes that the whole body was handed over.
    pub(crate) fn ended(&mut self) {
        self.counter = None;
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(counter) = &self.counter {
            counter.came_back(self.counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[derive(Default)]
    struct Sum(AtomicU64);

    impl Counter for Sum {
        fn left(&self, bytes: u64) {
            self.0.fetch_add(bytes, Relaxed);
        }

        fn came_back(&self, bytes: u64) {
            self.0.fetch_sub(bytes, Relaxed);
        }
    }

    #[tokio::test]
    async fn what_is_gathered_counts_when_it_goes_and_not_before() {
        let sum = Arc::new(Sum::default());
        let outgoing = Outgoing::new(Arc::<Sum>::clone(&sum));
        let count = || sum.0.load(Relaxed);
        let inner = async {
            let body = Outgoing::current().counted([Bytes::from(vec![0; 300_000])]);
            let held = Outgoing::current().hold();
            let data: Vec<Bytes> = body.map(|bytes| bytes.unwrap()).collect().await;
            assert_eq!(count(), 0, "what was only gathered was counted");
            drop(held);
            let mut body = Outgoing::current().counted(data);
            let mut seen = Vec::new();
            while body.next().await.is_some() {
                seen.push(count());
            }
            assert_eq!(seen, [131_072, 262_144, 300_000]);
        };
        outgoing.cover(inner).await;
        Outgoing::current().pass(7);
        assert_eq!(count(), 300_000);
    }

    #[test]
    fn a_body_that_breaks_off_takes_back_what_it_counted() {
        let sum = Arc::new(Sum::default());
        let outgoing = Outgoing::new(Arc::<Sum>::clone(&sum));
        let mut broken = outgoing.load();
        broken.left(5);
        assert_eq!(sum.0.load(Relaxed), 5);
        drop(broken);
        assert_eq!(sum.0.load(Relaxed), 0);
        let mut whole = outgoing.load();
        whole.left(5);
        whole.ended();
        drop(whole);
        assert_eq!(sum.0.load(Relaxed), 5);
    }
}
