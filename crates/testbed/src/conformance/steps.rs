//! Counting of written bytes while they are sent.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use posthaste_endpoint::{Counter, Outgoing};

use crate::SlowLink;

/// Bytes on the link that make up one step of the counter. Steps are in bytes and not in time: on a
/// machine that stands still neither the writer nor the link moves.
const STEP_BYTES: u64 = 160_000;

/// Steps before the last byte has left: TCP has wide windows within one machine.
const STEPS_MIN: usize = 2;

/// Share of all bytes (one in so many) that the link must have carried at the last count but one.
const LATE_SHARE: u64 = 4;

struct Gone {
    carried: Arc<AtomicU64>,
    carried_before: u64,
    bytes: u64,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    gone: u64,
    came_back: u64,
    steps: BTreeSet<u64>,
}

impl Counter for Gone {
    fn left(&self, bytes: u64) {
        let mut counted = self.counted.lock().unwrap();
        counted.gone += bytes;
        if counted.gone < self.bytes {
            let carried = self.carried.load(SeqCst) - self.carried_before;
            counted.steps.insert(carried / STEP_BYTES);
        }
    }

    fn came_back(&self, bytes: u64) {
        self.counted.lock().unwrap().came_back += bytes;
    }
}

/// Runs an attempt to write `bytes` over `link` and checks that they are counted on the way, each
/// once. Up to `beside` more may be counted, for what is sent along with them.
pub async fn leaves_in_steps<T>(
    link: &SlowLink,
    (bytes, beside): (u64, u64),
    attempt: impl Future<Output = T>,
) -> T {
    let gone = Arc::new(Gone {
        carried: link.counter(),
        carried_before: link.carried(),
        bytes,
        counted: Mutex::default(),
    });
    let counter: Arc<dyn Counter> = Arc::<Gone>::clone(&gone);
    let outcome = Outgoing::new(counter).cover(attempt).await;
    let counted = gone.counted.lock().unwrap();
    let all = counted.gone;
    assert!(
        (bytes..=bytes + beside).contains(&all) && counted.came_back == 0,
        "{all} of {bytes} were counted"
    );
    let (steps, end) = (&counted.steps, bytes / STEP_BYTES);
    let is_late = steps.last().is_some_and(|&last| last >= end / LATE_SHARE);
    assert!(
        steps.len() >= STEPS_MIN && is_late,
        "counted only at {steps:?} of {end}"
    );
    outcome
}
