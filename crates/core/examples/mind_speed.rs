//! Steps a mind with many open requests and depots, and says how long each step took and what memory
//! it holds: `cargo xtask bench mind` runs it.
//!
//! Each send is stored after the time its depot's rate gives it, each depot is measured every second and
//! answers every two, each request that is over is replaced by another. So the number of open requests stays,
//! and every kind of batch comes as often as it does to a busy centre.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "it measures and prints; of inputs and events it answers a few"
)]

#[path = "support/stub.rs"]
mod stub;

use std::time::{Duration, Instant};

use posthaste_core::contract::{Command, Happening, Input, Outbox, ReleasePolicy, RequestSpec};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};
use stub::{Stub, numbers, resident};

const CHUNK: Bytes = Bytes::mebi(64);
const CHUNKS: u64 = 16;
/// Depots a request may use, and how it is coded.
const VIA: u64 = 6;
const CODE: &str = "2+1";
/// Rate at which a depot accepts data.
const RATE: ByteRate = ByteRate::new(50 << 20);

/// Most frequent input of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Nothing: the mind woke up by itself.
    Woken,
    /// Fragments stored, and measurements of depots.
    Stored,
    /// A request among them.
    Submitted,
    /// A request before the others begin.
    Admission,
}

struct World {
    stub: Stub<Kind>,
    /// Time at which each depot has stored everything sent to it so far.
    busy_until: Vec<Timestamp>,
    next_request: u64,
    depots: u64,
    refused: u64,
}

impl World {
    fn new(depots: u64) -> Self {
        let stub = Stub::new();
        Self {
            busy_until: vec![stub.now; usize::try_from(depots).unwrap_or(0)],
            stub,
            next_request: 1,
            depots,
            refused: 0,
        }
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
            let at = self.stub.now + Duration::from_micros(self.stub.draw(1_000_000));
            self.stub.tell_at(at, measured(depot));
            self.stub
                .tell_at(at + Duration::from_millis(500), up(depot));
        }
        inputs.push(Input::DriverStarted);
        self.step(Kind::Woken, inputs);
    }

    fn submission(&mut self) -> Input {
        let mut via = Vec::new();
        while (via.len() as u64) < VIA.min(self.depots) {
            let depot = Self::depot(self.stub.draw(self.depots));
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
                deadline: self.stub.now + Duration::from_secs(7200 + self.stub.draw(172_800)),
                code: CODE.parse().unwrap_or(posthaste_types::Code::NONE),
                via,
                destinations: Vec::new(),
                release: ReleasePolicy::Never,
                best_effort: false,
            },
        }
    }

    fn step(&mut self, kind: Kind, inputs: Vec<Input>) {
        let out = self.stub.step(kind, inputs);
        self.answer(out);
    }

    fn answer(&mut self, out: Outbox) {
        for event in &out.events {
            match event.happening {
                Happening::Safe { .. } => {
                    let now = self.stub.now;
                    if let Some(request) = event.request {
                        self.stub.tell_at(now, Input::Delivered { request });
                    }
                    let next = self.submission();
                    self.stub.tell_at(now, next);
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
        fragment: FragmentIndex,
    ) {
        let bytes = Bytes::new(CHUNK.get() / 2);
        let spread = 800 + self.stub.draw(400);
        let takes = RATE.scaled(spread, 1000).time_for(bytes);
        let Some(busy) = self.busy_until.get_mut(depot.get() as usize - 1) else {
            return;
        };
        *busy = (*busy).max(self.stub.now) + takes;
        self.stub.tell_at(
            *busy,
            Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            },
        );
    }

    fn turn(&mut self) {
        let inputs = self.stub.next();
        let mut kind = Kind::Woken;
        for input in &inputs {
            kind = kind.max(match input {
                Input::RequestSubmitted { .. } => Kind::Submitted,
                _ => Kind::Stored,
            });
            self.repeat(input);
        }
        self.step(kind, inputs);
    }

    /// Schedules the next of an input that repeats.
    fn repeat(&mut self, input: &Input) {
        let now = self.stub.now;
        match input {
            Input::Throughput { depot, .. } => {
                self.stub
                    .tell_at(now + Duration::from_secs(1), measured(*depot));
            }
            Input::DepotUp { depot, .. } => {
                self.stub.tell_at(now + Duration::from_secs(2), up(*depot));
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

fn main() {
    let [requests, depots, steps] = numbers([100_000, 1000, 100_000]);
    let mut world = World::new(depots);
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
    let open = world.stub.mind.requests().count();
    println!("inputs,{},{all:.1}", world.stub.inputs);
    println!("open,{open},{}", world.refused);
    println!("memory,{},{}", resident(), before);
}
