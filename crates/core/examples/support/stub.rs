//! The thinnest driver there can be: it keeps what comes later, hands it to the mind as it comes, and times each step.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use posthaste_core::{
    Mind, Settings,
    contract::{Input, Outbox},
};
use posthaste_types::Timestamp;

/// Start of the simulated time.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// Inputs are batched as they come within this time.
const BATCH: Duration = Duration::from_micros(200);

/// A mind and what comes to it. `K` is what a batch held most of: the kinds are reported apart.
pub struct Stub<K> {
    pub mind: Mind,
    pub now: Timestamp,
    coming: BTreeMap<(Timestamp, u64), Input>,
    sequence: u64,
    dice: u64,
    pub inputs: u64,
    steps: BTreeMap<K, Vec<Duration>>,
}

impl<K: Ord + Copy> Stub<K> {
    pub fn new() -> Self {
        Self {
            mind: Mind::new(Settings::default()),
            now: START,
            coming: BTreeMap::new(),
            sequence: 0,
            dice: 7,
            inputs: 0,
            steps: BTreeMap::new(),
        }
    }

    /// A number below `most`: Knuth's linear congruential generator.
    pub fn draw(&mut self, most: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % most
    }

    pub fn tell_at(&mut self, at: Timestamp, input: Input) {
        self.sequence += 1;
        self.coming.insert((at, self.sequence), input);
    }

    /// Steps the mind, and says what it wants.
    pub fn step(&mut self, kind: K, inputs: Vec<Input>) -> Outbox {
        let mut out = Outbox::default();
        self.inputs += inputs.len() as u64;
        let before = Instant::now();
        self.mind.step(self.now, inputs, &mut out);
        self.steps.entry(kind).or_default().push(before.elapsed());
        out
    }

    /// Takes what comes next, as a driver does: all that is there when it looks.
    pub fn next(&mut self) -> Vec<Input> {
        let coming = self.coming.first_key_value().map(|((at, _), _)| *at);
        let wakeup = self.mind.next_wakeup();
        let next = coming.into_iter().chain(wakeup).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        let mut inputs = Vec::new();
        while let Some(entry) = self
            .coming
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now + BATCH)
        {
            inputs.push(entry.remove());
        }
        inputs
    }

    /// The steps so far don't count.
    pub fn forget_steps(&mut self) {
        self.steps.clear();
    }

    /// Prints each kind of step since the last time, by `name`: how many there were, in microseconds the median, the 99th
    /// percentile and the longest, and in seconds all together.
    pub fn print(&mut self, name: impl Fn(K) -> String) {
        for (kind, mut spans) in std::mem::take(&mut self.steps) {
            spans.sort_unstable();
            println!(
                "{},{},{:.1},{:.1},{:.1},{:.1}",
                name(kind),
                spans.len(),
                at(&spans, 500),
                at(&spans, 990),
                at(&spans, 1000),
                spans.iter().sum::<Duration>().as_secs_f64()
            );
        }
    }
}

fn at(sorted: &[Duration], permille: usize) -> f64 {
    let place = sorted.len() * permille / 1000;
    let span = sorted.get(place.min(sorted.len().saturating_sub(1)));
    span.map_or(f64::NAN, |span| span.as_secs_f64() * 1e6)
}

/// Resident memory now, in bytes.
pub fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0u64) * 4096
}

/// The numbers of the command line, in their order, each with what stands for it where it is not there.
pub fn numbers<const N: usize>(otherwise: [u64; N]) -> [u64; N] {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    otherwise.map(|otherwise| words.next().and_then(Result::ok).unwrap_or(otherwise))
}
