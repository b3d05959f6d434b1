//! Whether what is written is counted while it goes.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex},
    time::Instant,
};

use posthaste_endpoint::{Counter, Outgoing};

/// What is counted within so many milliseconds is one step.
const STEP_MS: u128 = 20;

/// Steps before the last byte has gone: the windows of TCP are wide on a machine's own ways.
const STEPS_MIN: usize = 2;

struct Gone {
    began: Instant,
    bytes: u64,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    gone: u64,
    came_back: u64,
    steps: BTreeSet<u128>,
}

impl Counter for Gone {
    fn left(&self, bytes: u64) {
        let mut counted = self.counted.lock().unwrap();
        counted.gone += bytes;
        if counted.gone < self.bytes {
            counted
                .steps
                .insert(self.began.elapsed().as_millis() / STEP_MS);
        }
    }

    fn came_back(&self, bytes: u64) {
        self.counted.lock().unwrap().came_back += bytes;
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's clock")]
fn now() -> Instant {
    Instant::now()
}

/// Runs an attempt to write `bytes` over a slow link and checks that they are counted on the way,
/// each once: `beside` more may be, for what is sent with them.
pub async fn leaves_in_steps<T>(bytes: u64, beside: u64, attempt: impl Future<Output = T>) -> T {
    let gone = Arc::new(Gone {
        began: now(),
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
    let (steps, end) = (&counted.steps, gone.began.elapsed().as_millis() / STEP_MS);
    let is_late = steps.last().is_some_and(|&last| last >= end / 4);
    assert!(
        steps.len() >= STEPS_MIN && is_late,
        "counted only at {steps:?} of {end}"
    );
    outcome
}
