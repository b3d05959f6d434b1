//! Stage-ins that wait at a depot near the centre: what goes there, when it comes from there, what becomes of it.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{collections::BTreeSet, time::Duration};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, SourceId, Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const R: RequestId = RequestId::new(1);
const ARCHIVE: SourceId = SourceId::new(1);
const BACK: SourceId = SourceId::new(2);
const CACHE: DepotId = DepotId::new(1);
const MEBI: u64 = 1 << 20;

fn at(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

/// An archive, a depot near the centre, and a stage-in of 1000 chunks of 1 MiB wanted after an hour that may wait there.
struct Desk {
    mind: Mind,
    now: Timestamp,
    prestages: Vec<ChunkIndex>,
    fetches: Vec<(SourceId, ChunkIndex)>,
    near: BTreeSet<ChunkIndex>,
    commands: Vec<Command>,
    happened: Vec<(Timestamp, Happening)>,
}

impl Desk {
    /// The archive and the depot give these MiB/s.
    fn new(archive: u64, cache: u64) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            prestages: Vec::new(),
            fetches: Vec::new(),
            near: BTreeSet::new(),
            commands: Vec::new(),
            happened: Vec::new(),
        };
        desk.give(vec![
            Input::DepotAdded {
                depot: CACHE,
                name: "cache".into(),
                capacity: Bytes::mebi(5000),
                rate_max: None,
            },
            Input::DepotUp {
                depot: CACHE,
                free: Bytes::mebi(5000),
                rate_max: None,
            },
        ]);
        // Somebody sent there: what it takes is known, and so, until it is read, what it gives.
        let throughput = Input::Throughput {
            depot: CACHE,
            bytes: Bytes::mebi(cache),
            window: Duration::from_secs(1),
            saturated: true,
        };
        for _ in 0..10 {
            desk.now = desk.now + Duration::from_secs(1);
            desk.give(vec![throughput.clone()]);
        }
        for (source, name, rate) in [(ARCHIVE, "archive", Some(archive)), (BACK, "cache", None)] {
            let rate_max = rate.map(|rate| ByteRate::new(rate * MEBI));
            let name = name.into();
            desk.give(vec![Input::SourceFound {
                source,
                name,
                rate_max,
            }]);
        }
        let spec = ArrivalSpec {
            bytes: Bytes::mebi(1000),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: at(3600),
            not_before: Some(at(3590)),
            sources: vec![ARCHIVE],
            priority: Priority::default(),
            rate_max: None,
            best_effort: false,
        };
        let near = vec![NearDepot {
            depot: CACHE,
            source: BACK,
        }];
        desk.give(vec![
            Input::ArrivalAsked { request: R, spec },
            Input::StageInTold {
                request: R,
                news: StageInNews::MayWait { near },
            },
        ]);
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        let events = out.events.into_iter();
        self.happened
            .extend(events.map(|event| (event.at, event.happening)));
        for command in &out.commands {
            match command {
                Command::Prestage { chunk, .. } => self.prestages.push(*chunk),
                Command::Fetch { source, chunk, .. } => self.fetches.push((*source, *chunk)),
                _ => {}
            }
        }
        self.commands.extend(out.commands);
    }

    /// Lets time pass until then; the archive and the depot give so many chunks a second.
    fn pass(&mut self, until: Timestamp, archive: usize, cache: usize) {
        while self.now < until {
            self.now = self.now + Duration::from_secs(1);
            let mut inputs = Vec::new();
            for chunk in take(&mut self.prestages, archive) {
                self.near.insert(chunk);
                inputs.push(Input::StageInTold {
                    request: R,
                    news: StageInNews::Stored {
                        source: ARCHIVE,
                        chunk,
                        depot: CACHE,
                    },
                });
            }
            let mut left = [archive, cache];
            let (come, wait) =
                std::mem::take(&mut self.fetches)
                    .into_iter()
                    .partition(|(source, _)| {
                        let left = &mut left[usize::from(*source == BACK)];
                        *left > 0 && {
                            *left -= 1;
                            true
                        }
                    });
            self.fetches = wait;
            for (source, given) in [(ARCHIVE, archive), (BACK, cache)] {
                if inputs.len() + come.len() > 0 {
                    inputs.push(Input::Inbound {
                        source,
                        bytes: Bytes::mebi(given as u64),
                        window: Duration::from_secs(1),
                        saturated: false,
                    });
                }
            }
            for (source, chunk) in come {
                assert!(source == ARCHIVE || self.near.contains(&chunk), "{chunk}");
                inputs.push(Input::ChunkArrived {
                    request: R,
                    source,
                    chunk,
                });
            }
            self.give(inputs);
        }
    }

    fn when(&self, is_it: impl Fn(&Happening) -> bool) -> Option<Timestamp> {
        let mut happened = self.happened.iter();
        happened
            .find(|(_, happening)| is_it(happening))
            .map(|(at, _)| *at)
    }

    fn begun(&self) -> Option<Timestamp> {
        self.when(|happening| *happening == Happening::Fetching)
    }

    fn view(&self) -> ArrivalView {
        self.mind.arrival(R).unwrap()
    }
}

fn take<T>(all: &mut Vec<T>, most: usize) -> Vec<T> {
    let most = most.min(all.len());
    all.drain(..most).collect()
}

#[test]
fn what_would_come_too_early_waits_there_and_comes_from_there() {
    let mut desk = Desk::new(1, 100);
    desk.pass(at(1200), 1, 100);
    let lies_there = desk.view().shares[1].holds;
    assert_eq!(desk.view().shares[1].near, Some(CACHE));
    // What its source gives in the last minute anyhow need not go there first.
    assert!(lies_there > Bytes::mebi(900), "{lies_there}");
    assert_eq!(desk.begun(), None);
    assert_eq!(desk.view().chunks_here, 0);
    desk.pass(at(3590), 1, 100);
    let begun = desk.begun().unwrap();
    // 1000 chunks at a hundred a second, at its p10, and a margin.
    assert!(at(3450) < begun && begun < at(3585), "{begun}");
    desk.pass(at(3600), 1, 100);
    let view = desk.view();
    assert_eq!(view.chunks_here, 1000);
    assert!(view.shares[1].arrived > 900, "{:?}", view.shares);
    assert_eq!(view.state, ArrivalState::Landing);
    desk.give(vec![Input::Landed { request: R }]);
    let is_told = |command: &&Command| {
        matches!(
            command,
            Command::Forget {
                request: R,
                depot: CACHE,
                reason: Reason::Near {
                    why: NearReason::NotNeeded
                }
            }
        )
    };
    assert_eq!(desk.commands.iter().filter(is_told).count(), 1);
}

#[test]
fn what_comes_in_time_by_itself_takes_no_other_way() {
    let mut desk = Desk::new(200, 400);
    desk.pass(at(3580), 200, 400);
    assert!(desk.prestages.is_empty() && desk.near.is_empty());
    desk.pass(at(3600), 200, 400);
    assert_eq!(desk.view().shares[0].arrived, 1000);
    let is_told = |command: &Command| matches!(command, Command::Forget { .. });
    assert!(!desk.commands.iter().any(is_told), "nothing lay there");
}

#[test]
fn a_depot_that_is_no_faster_than_the_sources_gets_nothing() {
    let mut desk = Desk::new(2, 1);
    desk.pass(at(3600), 2, 1);
    assert!(desk.near.is_empty());
    assert_eq!(desk.view().shares[0].arrived, 1000);
}

#[test]
fn what_was_lost_there_is_read_from_the_source_again() {
    let mut desk = Desk::new(1, 100);
    desk.pass(at(400), 1, 100);
    let (up, down) = (
        Input::DepotUp {
            depot: CACHE,
            free: Bytes::mebi(5000),
            rate_max: None,
        },
        Input::DepotDown {
            depot: CACHE,
            fault: Fault::Unreachable,
        },
    );
    desk.give(vec![down]);
    desk.now = desk.now + Duration::from_secs(5);
    desk.give(vec![up]);
    assert!(matches!(
        desk.commands.last(),
        Some(Command::Inventory {
            request: R,
            depot: CACHE,
            ..
        })
    ));
    let held: Vec<_> = desk.near.iter().skip(100).copied().collect();
    let held = held.into_iter().map(|chunk| (chunk, FragmentIndex::WHOLE));
    desk.give(vec![Input::DepotInventory {
        depot: CACHE,
        request: R,
        held: held.collect(),
    }]);
    assert_eq!(
        desk.view().shares[1].holds,
        Bytes::mebi(desk.near.len() as u64 - 100)
    );
    desk.pass(at(1800), 1, 100);
    let near = desk.near.len() as u64;
    assert!(near > 900, "{near}");
    assert_eq!(desk.view().shares[1].holds, Bytes::mebi(near));
    // One more is missed only when it is wanted.
    desk.pass(at(3585), 1, 0);
    let (_, chunk) = desk.fetches.remove(0);
    desk.give(vec![Input::ChunkMissed {
        request: R,
        source: BACK,
        chunk,
        fault: Fault::SourceVanished,
    }]);
    desk.pass(at(3600), 1, 100);
    assert_eq!(desk.view().chunks_here, 1000);
    let again = |command: &Command| matches!(command, Command::Fetch { source: ARCHIVE, chunk: of, .. } if *of == chunk);
    assert!(desk.commands.iter().any(again), "{chunk}");
}

#[test]
fn a_depot_that_takes_nothing_is_left_alone_and_the_deadline_kept() {
    let mut desk = Desk::new(1, 100);
    desk.now = desk.now + Duration::from_secs(1);
    for turn in 0..600 {
        let mut inputs = Vec::new();
        for chunk in std::mem::take(&mut desk.prestages) {
            inputs.push(Input::StageInTold {
                request: R,
                news: StageInNews::Failed {
                    source: ARCHIVE,
                    chunk,
                    depot: CACHE,
                    fault: Fault::Full,
                },
            });
        }
        desk.now = desk.now + Duration::from_secs(1);
        desk.give(inputs);
        assert!(turn < 10 || desk.prestages.len() <= 4);
    }
    let tried = |command: &&Command| matches!(command, Command::Prestage { .. });
    let tries = desk.commands.iter().filter(tried).count();
    assert!((4..60).contains(&tries), "{tries}");
    while desk.now < at(3600) {
        let failed = std::mem::take(&mut desk.prestages).into_iter();
        let failed = failed.map(|chunk| Input::StageInTold {
            request: R,
            news: StageInNews::Failed {
                source: ARCHIVE,
                chunk,
                depot: CACHE,
                fault: Fault::Full,
            },
        });
        desk.give(failed.collect());
        desk.pass(desk.now + Duration::from_secs(1), 1, 100);
    }
    let shares = desk.view().shares;
    assert!(
        shares[0].arrived > 900,
        "straight from the archive: {shares:?}"
    );
    assert_eq!(desk.view().chunks_here, 1000);
}

#[test]
fn a_full_depot_holds_nothing_up() {
    let mut desk = Desk::new(1, 100);
    desk.give(vec![Input::DepotUp {
        depot: CACHE,
        free: Bytes::mebi(30),
        rate_max: None,
    }]);
    desk.pass(at(3600), 1, 100);
    let view = desk.view();
    assert_eq!(view.chunks_here, 1000);
    assert!(
        (1..=30).contains(&view.shares[1].arrived),
        "{:?}",
        view.shares
    );
    // The archive gives at least half as much: what can't wait there begins with a margin.
    let begun = desk.begun().unwrap();
    assert!(begun < at(1700), "{begun}");
}

#[test]
fn a_restart_keeps_what_lies_there() {
    let mut desk = Desk::new(1, 100);
    desk.pass(at(500), 1, 100);
    let before = desk.view().shares[1].holds;
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.prestages.clear();
    desk.give(vec![Input::DriverStarted]);
    desk.give(vec![
        Input::ArrivalSurveyed {
            request: R,
            chunks: Vec::new(),
        },
        Input::DepotUp {
            depot: CACHE,
            free: Bytes::mebi(4000),
            rate_max: None,
        },
    ]);
    assert_eq!(desk.view().shares[1].holds, before);
    let asked =
        |command: &Command| matches!(command, Command::Prestage { chunk, .. } if chunk.get() < 300);
    desk.commands.clear();
    desk.pass(at(1500), 1, 100);
    assert!(!desk.commands.iter().any(asked), "nothing goes there twice");
    desk.pass(at(3600), 1, 100);
    assert_eq!(desk.view().chunks_here, 1000);
}
