//! Steps a mind with many open requests and depots, and says how long each step took and what memory
//! it holds: `cargo xtask bench mind` runs it.
//!
//! The driver here is the thinnest there can be: each send is stored after the time its depot's rate
//! gives it, each depot is measured every second and answers every two, each request that is over is
//! replaced by another. So the number of open requests stays, and every kind of batch comes as often as
//! it does to a busy centre.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "it measures and prints; of inputs and events it answers a few"
)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use posthaste_core::{
    Mind, Settings,
    contract::{Command, Happening, Input, Outbox, ReleasePolicy, RequestSpec},
};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const CHUNK: Bytes = Bytes::mebi(64);
const CHUNKS: u64 = 16;
/// Depots a request may use, and how it is coded.
const VIA: u64 = 6;
const CODE: &str = "2+1";
/// What a depot takes a second.
const RATE: ByteRate = ByteRate::new(50 << 20);
/// Inputs are batched as they come within this time.
const BATCH: Duration = Duration::from_micros(200);

/// What a batch held most of: the kinds are reported apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Nothing: the mind woke up by itself.
    Woken,
    /// Fragments stored, and measurements of depots.
    Stored,
    /// A request among them.
    Submitted,
}

struct World {
    mind: Mind,
    now: Timestamp,
    coming: BTreeMap<(Timestamp, u64), Input>,
    sequence: u64,
    /// When each depot has stored what it was sent so far.
    busy_until: Vec<Timestamp>,
    dice: u64,
    next_request: u64,
    depots: u64,
    refused: u64,
    steps: BTreeMap<Kind, Vec<Duration>>,
    inputs: u64,
}

impl World {
    fn new(depots: u64) -> Self {
        let start = usize::try_from(depots).unwrap_or(0);
        Self {
            mind: Mind::new(Settings::default()),
            now: START,
            coming: BTreeMap::new(),
            sequence: 0,
            busy_until: vec![START; start],
            dice: 7,
            next_request: 1,
            depots,
            refused: 0,
            steps: BTreeMap::new(),
            inputs: 0,
        }
    }

    /// A number below `most`: Knuth's linear congruential generator.
    fn draw(&mut self, most: u64) -> u64 {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % most
    }

    fn tell_at(&mut self, at: Timestamp, input: Input) {
        self.sequence += 1;
        self.coming.insert((at, self.sequence), input);
    }

    fn depot(place: u64) -> DepotId {
        DepotId::new(u32::try_from(place + 1).unwrap_or(u32::MAX))
    }

    fn begin(&mut self) {
        let mut inputs = Vec::new();
        for place in 0..self.depots {
            let depot = Self::depot(place);
            inputs.push(Input::DepotAdded {
                depot,
                name: format!("depot-{place}"),
                capacity: Bytes::mebi(1 << 40),
                rate_max: Some(RATE),
            });
            inputs.push(up(depot));
            let at = self.now + Duration::from_micros(self.draw(1_000_000));
            self.tell_at(at, measured(depot));
            self.tell_at(at + Duration::from_millis(500), up(depot));
        }
        inputs.push(Input::DriverStarted);
        self.step(Kind::Woken, inputs);
    }

    fn submission(&mut self) -> Input {
        let mut via = Vec::new();
        while (via.len() as u64) < VIA.min(self.depots) {
            let depot = Self::depot(self.draw(self.depots));
            if !via.contains(&depot) {
                via.push(depot);
            }
        }
        let request = RequestId::new(self.next_request);
        self.next_request += 1;
        Input::RequestSubmitted {
            request,
            spec: RequestSpec {
                bytes: CHUNK.times(CHUNKS),
                files: 1,
                chunk_size: CHUNK,
                // From hours to days, as deadlines of a centre are.
                deadline: self.now + Duration::from_secs(7200 + self.draw(172_800)),
                code: CODE.parse().unwrap_or(posthaste_types::Code::NONE),
                via,
                destinations: Vec::new(),
                release: ReleasePolicy::Never,
                best_effort: false,
            },
        }
    }

    fn step(&mut self, kind: Kind, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.inputs += inputs.len() as u64;
        let before = Instant::now();
        self.mind.step(self.now, inputs, &mut out);
        self.steps.entry(kind).or_default().push(before.elapsed());
        for event in &out.events {
            match event.happening {
                Happening::Safe { .. } => {
                    if let Some(request) = event.request {
                        self.tell_at(self.now, Input::Delivered { request });
                    }
                    let next = self.submission();
                    self.tell_at(self.now, next);
                }
                Happening::Refused => self.refused += 1,
                _ => {}
            }
        }
        for command in out.commands {
            if let Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                self.send(request, depot, chunk, fragment);
            }
        }
    }

    fn send(
        &mut self,
        request: RequestId,
        depot: DepotId,
        chunk: ChunkIndex,
        fragment: posthaste_types::FragmentIndex,
    ) {
        let bytes = Bytes::new(CHUNK.get() / 2);
        let spread = 800 + self.draw(400);
        let takes = RATE.scaled(spread, 1000).time_for(bytes);
        let Some(busy) = self.busy_until.get_mut(depot.get() as usize - 1) else {
            return;
        };
        *busy = (*busy).max(self.now) + takes;
        let at = *busy;
        self.tell_at(
            at,
            Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            },
        );
    }

    /// Takes what comes next, as a driver does: all that is there when it looks.
    fn turn(&mut self) {
        let coming = self.coming.first_key_value().map(|((at, _), _)| *at);
        let wakeup = self.mind.next_wakeup();
        let next = coming.into_iter().chain(wakeup).min();
        self.now = self.now.max(next.unwrap_or(self.now));
        let mut inputs = Vec::new();
        let mut kind = Kind::Woken;
        while let Some(entry) = self
            .coming
            .first_entry()
            .filter(|entry| entry.key().0 <= self.now + BATCH)
        {
            let input = entry.remove();
            kind = kind.max(match input {
                Input::RequestSubmitted { .. } => Kind::Submitted,
                _ => Kind::Stored,
            });
            self.repeat(&input);
            inputs.push(input);
        }
        self.step(kind, inputs);
    }

    /// What comes again and again.
    fn repeat(&mut self, input: &Input) {
        match input {
            Input::Throughput { depot, .. } => {
                self.tell_at(self.now + Duration::from_secs(1), measured(*depot));
            }
            Input::DepotUp { depot, .. } => {
                self.tell_at(self.now + Duration::from_secs(2), up(*depot));
            }
            _ => {}
        }
    }
}

fn up(depot: DepotId) -> Input {
    Input::DepotUp {
        depot,
        free: Bytes::mebi(1 << 30),
        rate_max: None,
    }
}

fn measured(depot: DepotId) -> Input {
    Input::Throughput {
        depot,
        bytes: RATE.volume(Duration::from_secs(1)),
        window: Duration::from_secs(1),
        saturated: true,
    }
}

/// Resident memory now, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0u64) * 4096
}

fn at(sorted: &[Duration], permille: usize) -> f64 {
    let place = sorted.len() * permille / 1000;
    let span = sorted.get(place.min(sorted.len().saturating_sub(1)));
    span.map_or(f64::NAN, |span| span.as_secs_f64() * 1e6)
}

fn main() {
    let mut words = std::env::args().skip(1).map(|word| word.parse::<u64>());
    let mut next = |fallback| words.next().and_then(Result::ok).unwrap_or(fallback);
    let (requests, depots, steps) = (next(100_000), next(1000), next(100_000));
    let mut world = World::new(depots);
    world.begin();
    let before = resident();
    let began = Instant::now();
    let mut admitted = Vec::new();
    for _ in 0..requests {
        let input = world.submission();
        let clock = Instant::now();
        world.step(Kind::Submitted, vec![input]);
        admitted.push(clock.elapsed());
        world.now = world.now + Duration::from_micros(20);
    }
    admitted.sort_unstable();
    let all = began.elapsed().as_secs_f64();
    println!(
        "admission,{},{:.1},{:.1},{:.1},{:.1}",
        admitted.len(),
        at(&admitted, 500),
        at(&admitted, 990),
        at(&admitted, 1000),
        all
    );
    world.steps.clear();
    world.inputs = 0;
    let began = Instant::now();
    for _ in 0..steps {
        world.turn();
    }
    let all = began.elapsed().as_secs_f64();
    for (kind, spans) in &mut world.steps {
        spans.sort_unstable();
        println!(
            "{},{},{:.1},{:.1},{:.1},{:.1}",
            format!("{kind:?}").to_lowercase(),
            spans.len(),
            at(spans, 500),
            at(spans, 990),
            at(spans, 1000),
            spans.iter().sum::<Duration>().as_secs_f64()
        );
    }
    let open = world.mind.requests().count();
    println!("inputs,{},{all:.1}", world.inputs);
    println!("open,{open},{}", world.refused);
    println!("memory,{},{}", resident(), before);
}
