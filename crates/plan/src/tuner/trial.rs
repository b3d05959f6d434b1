//! Fixtures of the optimizers' tests.

use core::time::Duration;
use posthaste_types::{ByteRate, Bytes};

use super::{Bounds, PathFacts, Probe, Setting, Stocks};

/// Bounds wide enough for all tests.
pub(super) const BOUNDS: Bounds = Bounds {
    concurrency_min: 1,
    concurrency_max: 32,
    parallelism_max: 32,
    pipelining_max: 100,
};

pub(super) fn facts(rtt_ms: u64, gbit: Option<u64>) -> PathFacts {
    PathFacts {
        rtt: Duration::from_millis(rtt_ms),
        bandwidth: gbit.map(|gbit| ByteRate::new(gbit * 125_000_000)),
        buffer: Bytes::mebi(32),
        cores: 4,
        piece: Bytes::ZERO,
    }
}

/// Returns files as counts and mean sizes.
pub(super) fn stocks(facts: &PathFacts, files: &[(u64, u64)]) -> Stocks {
    let mut stocks = Stocks::default();
    for &(count, mean) in files {
        let size = Bytes::new(mean);
        (0..count).for_each(|_| stocks.add(facts.class(size), size));
    }
    stocks
}

/// Returns a period that carried `rate` bytes a second.
pub(super) fn probe(setting: Setting, rate: u64) -> Probe {
    Probe {
        setting,
        elapsed: super::PROBE,
        bytes: ByteRate::new(rate).volume(super::PROBE),
        lost_permille: None,
    }
}

/// Returns a rate of a made-up curve, in whole bytes a second.
#[expect(
    clippy::cast_possible_truncation,
    reason = "made-up rates are far below 2^53"
)]
pub(super) fn whole(rate: f64) -> u64 {
    rate as u64
}
