//! Desk for stage-ins, with two sources that serve data.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "each file of tests uses some of it, and may stop at once"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, RequestId, SourceId, Timestamp};

pub const START: Timestamp = Timestamp::from_secs(1_800_000_000);
pub const R1: RequestId = RequestId::new(1);
pub const R2: RequestId = RequestId::new(2);
pub const A: SourceId = SourceId::new(1);
pub const B: SourceId = SourceId::new(2);

pub fn at(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

/// 100 chunks of 1 MiB from both sources.
pub fn spec(deadline_s: u64, not_before_s: Option<u64>) -> ArrivalSpec {
    ArrivalSpec {
        bytes: Bytes::mebi(100),
        files: 3,
        chunk_size: Bytes::mebi(1),
        deadline: at(deadline_s),
        not_before: not_before_s.map(at),
        sources: vec![A, B],
        priority: Priority::default(),
        rate_max: None,
        best_effort: false,
    }
}

pub type Asked = (RequestId, SourceId, ChunkIndex);

pub struct Desk {
    pub mind: Mind,
    pub now: Timestamp,
    pub asked: Vec<Asked>,
    pub commands: Vec<Command>,
    pub happened: Vec<(RequestId, Happening, Reason)>,
}

impl Desk {
    /// A mind that knows two sources of these MiB/s.
    pub fn new(rates: [u64; 2]) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            asked: Vec::new(),
            commands: Vec::new(),
            happened: Vec::new(),
        };
        for (source, rate) in [A, B].into_iter().zip(rates) {
            desk.give(vec![Input::SourceFound {
                source,
                name: format!("source {source}"),
                rate_max: Some(ByteRate::new(rate << 20)),
            }]);
        }
        desk
    }

    pub fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        for event in out.events {
            let of = event.request;
            let happened = of.map(|request| (request, event.happening, event.reason));
            self.happened.extend(happened);
        }
        for command in &out.commands {
            match command {
                Command::Fetch {
                    request,
                    source,
                    chunk,
                    ..
                } => self.asked.push((*request, *source, *chunk)),
                Command::Quit {
                    request, source, ..
                } => self
                    .asked
                    .retain(|(of, from, _)| (of, from) != (request, source)),
                _ => {}
            }
        }
        self.commands.extend(out.commands);
    }

    pub fn ask(&mut self, request: RequestId, spec: ArrivalSpec) {
        self.give(vec![Input::ArrivalAsked { request, spec }]);
    }

    /// Lets time pass; each source gives so many chunks a second, and says so.
    pub fn pass(&mut self, secs: u64, given: [usize; 2]) {
        for _ in 0..secs {
            self.now = self.now + Duration::from_secs(1);
            let mut inputs = Vec::new();
            for (id, given) in [A, B].into_iter().zip(given) {
                let mut arrived = 0;
                let mut rest = Vec::new();
                for (request, source, chunk) in std::mem::take(&mut self.asked) {
                    if source == id && arrived < given {
                        arrived += 1;
                        inputs.push(Input::ChunkArrived {
                            request,
                            source,
                            chunk,
                        });
                    } else {
                        rest.push((request, source, chunk));
                    }
                }
                let saturated = rest.iter().any(|(_, source, _)| *source == id);
                self.asked = rest;
                if arrived > 0 {
                    inputs.push(Input::Inbound {
                        source: id,
                        bytes: Bytes::mebi(arrived as u64),
                        window: Duration::from_secs(1),
                        saturated,
                    });
                }
            }
            self.give(inputs);
        }
    }

    pub fn view(&self, request: RequestId) -> ArrivalView {
        self.mind.arrival(request).unwrap()
    }

    pub fn said(&self, request: RequestId) -> Vec<&'static str> {
        let happened = self.happened.iter();
        let of = happened.filter(|(of, ..)| *of == request);
        of.map(|(_, happening, _)| happening.name()).collect()
    }

    pub fn is_settled(&self, request: RequestId, kept: bool) -> bool {
        self.commands.iter().any(|command| {
            matches!(command, Command::Settle { request: of, keep, .. } if *of == request && *keep == kept)
        })
    }
}

pub fn fault(desk: &mut Desk, from: SourceId, fault: Fault) {
    let asked = desk.asked.iter().position(|(_, source, _)| *source == from);
    let (request, source, chunk) = desk.asked.remove(asked.unwrap());
    desk.give(vec![Input::ChunkMissed {
        request,
        source,
        chunk,
        fault,
    }]);
}
