//! Steps a mind with many stage-ins, and says how long each step took: `cargo xtask bench mind` runs it.
//!
//! Each chunk comes after the time its source's rate gives it, each stage-in that is here is replaced by another. Few come
//! at a time: the others wait until they are welcome, as most do whose jobs wait.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "it measures and prints; of inputs and events it answers a few"
)]

#[path = "support/stub.rs"]
mod stub;

use std::time::{Duration, Instant};

use posthaste_core::contract::{ArrivalSpec, Command, Happening, Input, Outbox, Priority};
use posthaste_types::{ByteRate, Bytes, RequestId, SourceId, Timestamp};
use stub::{Stub, numbers, resident};

const CHUNK: Bytes = Bytes::mebi(64);
const CHUNKS: u64 = 16;
/// Rate at which a source serves data.
const RATE: ByteRate = ByteRate::new(500 << 20);
/// So long before its deadline a stage-in is welcome.
const WELCOME: Duration = Duration::from_secs(1800);

/// Most frequent input of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Nothing: the mind woke up by itself.
    Woken,
    /// Chunks that came.
    Arrived,
    /// A stage-in among them.
    Asked,
    /// A stage-in before the others begin.
    Admission,
}

struct World {
    stub: Stub<Kind>,
    /// Time at which each source has served everything asked of it so far.
    busy_until: Vec<Timestamp>,
    next_request: u64,
    refused: u64,
}

impl World {
    fn new(sources: u64) -> Self {
        let stub = Stub::new();
        Self {
            busy_until: vec![stub.now; usize::try_from(sources).unwrap_or(0)],
            stub,
            next_request: 1,
            refused: 0,
        }
    }

    fn source(place: u64) -> SourceId {
        SourceId::new(u32::try_from(place + 1).unwrap_or(u32::MAX))
    }

    fn begin(&mut self) {
        let found = (0..self.busy_until.len() as u64).map(|place| Input::SourceFound {
            source: Self::source(place),
            name: format!("source-{place}"),
            rate_max: Some(RATE),
        });
        let inputs = found.chain([Input::DriverStarted]).collect();
        self.step(Kind::Woken, inputs);
    }

    fn submission(&mut self) -> Input {
        let source = Self::source(self.stub.draw(self.busy_until.len() as u64));
        let request = RequestId::new(self.next_request);
        self.next_request += 1;
        // From hours to days, as jobs wait.
        let deadline = self.stub.now + Duration::from_secs(7200 + self.stub.draw(172_800));
        Input::ArrivalAsked {
            request,
            spec: ArrivalSpec {
                bytes: CHUNK.times(CHUNKS),
                files: 1,
                chunk_size: CHUNK,
                deadline,
                not_before: Some(deadline - WELCOME),
                sources: vec![source],
                priority: Priority::default(),
                rate_max: None,
                best_effort: false,
            },
        }
    }

    fn step(&mut self, kind: Kind, inputs: Vec<Input>) {
        let out = self.stub.step(kind, inputs);
        self.answer(out);
    }

    fn answer(&mut self, out: Outbox) {
        let now = self.stub.now;
        for event in &out.events {
            match event.happening {
                Happening::Arrived { .. } => {
                    let next = self.submission();
                    self.stub.tell_at(now, next);
                }
                Happening::Refused => self.refused += 1,
                _ => {}
            }
        }
        for command in out.commands {
            match command {
                Command::Fetch {
                    request,
                    source,
                    chunk,
                    ..
                } => {
                    let spread = 800 + self.stub.draw(400);
                    let takes = RATE.scaled(spread, 1000).time_for(CHUNK);
                    let Some(busy) = self.busy_until.get_mut(source.get() as usize - 1) else {
                        continue;
                    };
                    *busy = (*busy).max(now) + takes;
                    let came = Input::ChunkArrived {
                        request,
                        source,
                        chunk,
                    };
                    self.stub.tell_at(*busy, came);
                }
                Command::Settle { request, .. } => {
                    self.stub.tell_at(now, Input::Landed { request });
                }
                _ => {}
            }
        }
    }

    fn turn(&mut self) {
        let inputs = self.stub.next();
        let kind = inputs.iter().map(|input| match input {
            Input::ArrivalAsked { .. } => Kind::Asked,
            _ => Kind::Arrived,
        });
        self.step(kind.max().unwrap_or(Kind::Woken), inputs);
    }
}

fn main() {
    let [requests, sources, steps] = numbers([1000, 10, 10_000]);
    let mut world = World::new(sources);
    world.begin();
    world.stub.forget_steps();
    let before = resident();
    for _ in 0..requests {
        let input = world.submission();
        world.step(Kind::Admission, vec![input]);
        world.stub.now = world.stub.now + Duration::from_micros(20);
    }
    let name = |kind: Kind| format!("{kind:?}").to_lowercase();
    world.stub.print(name);
    world.stub.inputs = 0;
    let began = Instant::now();
    for _ in 0..steps {
        world.turn();
    }
    let all = began.elapsed().as_secs_f64();
    world.stub.print(name);
    println!("inputs,{},{all:.1}", world.stub.inputs);
    println!("open,{requests},{}", world.refused);
    println!("memory,{},{}", resident(), before);
}
