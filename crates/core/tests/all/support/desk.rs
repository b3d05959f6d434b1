//! A driver at a desk: gives the mind inputs, and keeps what it says.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "each file of tests uses some of it, and may stop at once"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_plan::horizon::{Problem, greedy};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const MEBI: u64 = 1 << 20;
/// Depots there are.
const DEPOTS: u32 = 3;

/// A driver that solves what it is asked when it is told to.
pub struct Desk {
    pub mind: Mind,
    pub now: Timestamp,
    pub asked: Vec<(u64, Problem)>,
    pub said: Vec<(Option<RequestId>, Happening, Reason)>,
    pub sent: Vec<(RequestId, DepotId)>,
    /// Which pieces those are.
    pub pieces: Vec<(ChunkIndex, FragmentIndex)>,
    /// Why each was sent.
    pub whys: Vec<Reason>,
    /// Fragments that were recalled.
    pub asked_back: Vec<(RequestId, DepotId, ChunkIndex, FragmentIndex)>,
}

impl Desk {
    /// Three depots of 10 MiB/s.
    pub fn new(settings: Settings) -> Self {
        let mut desk = Self {
            mind: Mind::new(settings),
            now: START,
            asked: Vec::new(),
            said: Vec::new(),
            sent: Vec::new(),
            pieces: Vec::new(),
            whys: Vec::new(),
            asked_back: Vec::new(),
        };
        for number in 1..=DEPOTS {
            let (depot, capacity) = (DepotId::new(number), Bytes::mebi(100_000));
            let rate_max = Some(ByteRate::new(10 * MEBI));
            desk.give(Input::DepotAdded {
                depot,
                name: format!("depot-{number}"),
                capacity,
                rate_max,
            });
            desk.give(Input::DepotUp {
                depot,
                free: capacity,
                rate_max,
            });
        }
        desk.measure(10, Duration::from_secs(20));
        desk
    }

    /// Lets time go by in which each depot carries so many MiB a second.
    pub fn measure(&mut self, mebi_per_s: u64, span: Duration) {
        for _ in 0..span.as_secs() {
            self.wait(Duration::from_secs(1));
            for number in 1..=DEPOTS {
                self.give(Input::Throughput {
                    depot: DepotId::new(number),
                    bytes: Bytes::mebi(mebi_per_s),
                    window: Duration::from_secs(1),
                    saturated: true,
                });
            }
        }
    }

    pub fn submit(&mut self, request: RequestId, mebi: u64, deadline_s: u64, via: &[u32]) {
        let spec = self.spec(mebi, deadline_s, via);
        self.give(Input::RequestSubmitted { request, spec });
    }

    /// Returns the request that [`Desk::submit`] makes.
    pub fn spec(&self, mebi: u64, deadline_s: u64, via: &[u32]) -> RequestSpec {
        RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: self.now + Duration::from_secs(deadline_s),
            code: "1+0".parse().unwrap(),
            via: via.iter().copied().map(DepotId::new).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        }
    }

    pub fn give(&mut self, input: Input) {
        self.step(vec![input]);
    }

    pub fn step(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        for command in out.commands {
            match command {
                Command::Solve {
                    number, problem, ..
                } => self.asked.push((number, problem)),
                Command::Send {
                    request,
                    depot,
                    chunk,
                    fragment,
                    reason,
                } => {
                    self.sent.push((request, depot));
                    self.pieces.push((chunk, fragment));
                    self.whys.push(reason);
                }
                Command::Recall {
                    request,
                    depot,
                    chunk,
                    fragment,
                    ..
                } => self.asked_back.push((request, depot, chunk, fragment)),
                _ => {}
            }
        }
        let said = out.events.into_iter();
        self.said
            .extend(said.map(|event| (event.request, event.happening, event.reason)));
    }

    /// Lets time go by, the mind being woken when it wants to be.
    pub fn wait(&mut self, span: Duration) {
        let until = self.now + span;
        while let Some(at) = self.mind.next_wakeup().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.step(Vec::new());
        }
        self.now = until;
    }

    /// Answers the plan asked for last.
    pub fn solve(&mut self) {
        let (number, problem) = self.asked.last().cloned().unwrap();
        let schedule = Some(greedy(&problem));
        self.give(Input::PlanSolved { number, schedule });
    }

    /// Returns the answer to a request.
    pub fn answer(&self, request: RequestId) -> Option<&Reason> {
        let answers =
            |happening: &Happening| matches!(happening, Happening::Admitted | Happening::Refused);
        let mut said = self.said.iter();
        let found = said.find(|(of, happening, _)| *of == Some(request) && answers(happening));
        found.map(|(_, _, reason)| reason)
    }

    pub fn is_fed(&self, request: RequestId, number: u32) -> bool {
        let view = self.mind.request(request).unwrap();
        let mut shares = view.shares.iter();
        shares.any(|share| share.depot == DepotId::new(number) && share.active)
    }
}
