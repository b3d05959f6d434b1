//! Space that depots keep for requests: when it is asked for, what a refusal changes, and that it is given back.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once, and looks at some commands only"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_plan::reserve::AHEAD_MAX;
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const ASH: DepotId = DepotId::new(1);
const BIRCH: DepotId = DepotId::new(2);
const REQUEST: RequestId = RequestId::new(1);

struct Desk {
    mind: Mind,
    now: Timestamp,
    /// Depot and bytes; none where it is given back.
    asked: Vec<(DepotId, Option<Bytes>)>,
    sent: Vec<(DepotId, ChunkIndex, FragmentIndex)>,
    said: Vec<String>,
}

impl Desk {
    /// Two depots that can keep space, or not, with 400 MiB each and 10 MiB/s.
    fn new(reserves: bool) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: Timestamp::from_secs(1_800_000_000),
            asked: Vec::new(),
            sent: Vec::new(),
            said: Vec::new(),
        };
        for (depot, name) in [(ASH, "ash"), (BIRCH, "birch")] {
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name: name.into(),
                    capacity: Bytes::mebi(400),
                    rate_max: None,
                },
                Input::DepotReserves { depot, reserves },
                up(depot, 400),
            ]);
        }
        desk
    }

    /// 160 MiB in chunks of 8, one whole copy of each on one of the depots.
    fn submit(&mut self) {
        self.submit_so_much(160);
    }

    fn submit_so_much(&mut self, mebi: u64) {
        self.submit_by(self.now + Duration::from_secs(3600), Bytes::mebi(mebi));
    }

    fn submit_by(&mut self, deadline: Timestamp, bytes: Bytes) {
        self.give(vec![Input::RequestSubmitted {
            request: REQUEST,
            spec: RequestSpec {
                bytes,
                files: 1,
                chunk_size: Bytes::mebi(8),
                deadline,
                code: "1+1".parse().unwrap(),
                via: vec![ASH, BIRCH],
                destinations: Vec::new(),
                release: ReleasePolicy::Never,
                best_effort: false,
            },
        }]);
        self.wait(1);
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        self.said.extend(out.events.iter().map(ToString::to_string));
        for command in &out.commands {
            match command {
                Command::ReserveSpace {
                    depot,
                    bytes,
                    until,
                    ..
                } => {
                    assert!(*until < self.now + AHEAD_MAX);
                    self.asked.push((*depot, Some(*bytes)));
                }
                Command::ReleaseSpace { depot, .. } => self.asked.push((*depot, None)),
                Command::Send {
                    depot,
                    chunk,
                    fragment,
                    ..
                } => self.sent.push((*depot, *chunk, *fragment)),
                _ => {}
            }
        }
    }

    /// Lets time pass in which both depots take 10 MiB a second.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            let taken = [ASH, BIRCH].map(|depot| Input::Throughput {
                depot,
                bytes: Bytes::mebi(10),
                window: Duration::from_secs(1),
                saturated: true,
            });
            self.give(taken.into());
        }
    }

    fn asked(&mut self) -> Vec<(DepotId, Option<Bytes>)> {
        std::mem::take(&mut self.asked)
    }

    fn told(&mut self, depot: DepotId, news: SpaceNews) {
        self.give(vec![Input::SpaceTold {
            request: REQUEST,
            depot,
            news,
        }]);
    }

    fn grant(&mut self, depot: DepotId, mebi: u64) {
        let until = self.now + Duration::from_secs(7200);
        let bytes = Bytes::mebi(mebi);
        self.told(depot, SpaceNews::Granted { bytes, until });
    }

    /// All that is on its way is stored.
    fn store(&mut self) {
        let sent = std::mem::take(&mut self.sent).into_iter();
        let stored = sent.map(|(depot, chunk, fragment)| Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment,
        });
        let stored = stored.collect();
        self.give(stored);
    }

    fn store_all(&mut self) {
        for _ in 0..60 {
            self.store();
            self.wait(1);
        }
        assert_eq!(
            self.mind.request(REQUEST).unwrap().state,
            RequestState::Safe
        );
    }

    fn free(&self, depot: DepotId) -> u64 {
        let all = self.mind.depots();
        let view = all.iter().find(|view| view.depot == depot).unwrap();
        view.free.get() >> 20
    }
}

fn up(depot: DepotId, free_mebi: u64) -> Input {
    Input::DepotUp {
        depot,
        free: Bytes::mebi(free_mebi),
        rate_max: None,
    }
}

#[test]
fn what_is_to_lie_on_a_depot_is_kept_there_and_is_free_for_us_whatever_it_says() {
    let mut desk = Desk::new(true);
    desk.submit();
    let whole = Some(Bytes::mebi(160));
    assert_eq!(desk.asked(), [(ASH, whole), (BIRCH, whole)]);
    let before = desk.free(ASH);
    desk.grant(ASH, 160);
    desk.grant(BIRCH, 160);
    desk.give(vec![up(ASH, 240)]);
    assert_eq!(desk.free(ASH), before, "what is kept for us is ours");
    desk.store();
    desk.wait(60);
    assert_eq!(desk.asked(), [], "what was asked for still fits");
    let share = &desk.mind.request(REQUEST).unwrap().shares[0];
    assert_eq!(share.reserved, Bytes::mebi(160));
    desk.store_all();
    assert_eq!(desk.asked(), [(ASH, None), (BIRCH, None)]);
    desk.told(ASH, SpaceNews::Released);
    desk.told(BIRCH, SpaceNews::Released);
    desk.wait(300);
    assert_eq!(desk.asked(), []);
    let told = desk.mind.explain(REQUEST).unwrap();
    let mut told = told
        .iter()
        .map(|told| format!("{}: {}", told.what(), told.reason));
    assert!(told.any(|told| told.contains("space is reserved") && told.contains("160")));
}

#[test]
fn depots_that_keep_none_are_not_asked() {
    let mut desk = Desk::new(false);
    desk.submit();
    desk.store_all();
    assert_eq!(desk.asked(), []);
}

#[test]
fn where_others_have_the_space_plans_count_on_no_more() {
    let mut desk = Desk::new(true);
    desk.submit();
    desk.asked();
    let most = Bytes::mebi(40);
    desk.told(ASH, SpaceNews::Refused { most });
    desk.grant(BIRCH, 160);
    assert!(desk.free(ASH) <= 40, "{}", desk.free(ASH));
    desk.wait(9);
    let asked = desk.asked();
    assert!(asked.iter().all(|(depot, _)| *depot != ASH), "{asked:?}");
    desk.wait(5);
    let asked = desk.asked();
    let ash = asked.iter().find(|(depot, _)| *depot == ASH);
    assert!(
        ash.is_some_and(|(_, bytes)| *bytes <= Some(most)),
        "{asked:?}"
    );
    let told = desk.mind.explain(REQUEST).unwrap();
    let mut told = told
        .iter()
        .map(|told| format!("{}: {}", told.what(), told.reason));
    assert!(told.any(|told| told.contains("space is refused")));
    // The others leave.
    desk.told(ASH, SpaceNews::Failed);
    desk.give(vec![up(ASH, 400)]);
    desk.wait(22);
    assert_eq!(desk.asked().last(), Some(&(ASH, Some(Bytes::mebi(160)))));
}

#[test]
fn space_is_given_back_again_until_that_is_answered_or_its_time_is_over() {
    let mut desk = Desk::new(true);
    desk.submit();
    desk.grant(ASH, 160);
    desk.grant(BIRCH, 160);
    desk.asked();
    desk.give(vec![Input::DepotDown {
        depot: BIRCH,
        fault: Fault::Unreachable,
    }]);
    desk.give(vec![Input::RequestCancelled { request: REQUEST }]);
    assert_eq!(desk.asked(), [(ASH, None)]);
    desk.wait(121);
    assert_eq!(desk.asked(), [(ASH, None)], "nobody answered");
    desk.told(ASH, SpaceNews::Released);
    desk.wait(600);
    assert_eq!(desk.asked(), []);
    desk.give(vec![up(BIRCH, 400)]);
    desk.wait(61);
    assert_eq!(desk.asked(), [(BIRCH, None)], "it is back");
    desk.wait(7200);
    assert!(desk.asked().len() <= 8);
    assert_eq!(desk.mind.next_wakeup(), None, "nothing is left to do");
}

#[test]
fn whoever_starts_again_asks_again_and_a_late_answer_is_not_lost() {
    let mut desk = Desk::new(true);
    desk.submit();
    let first = desk.asked();
    let same = Mind::restore(&desk.mind.snapshot()).unwrap();
    assert_eq!(same, desk.mind);
    desk.give(vec![Input::DriverStarted]);
    desk.give(vec![up(ASH, 400), up(BIRCH, 400)]);
    for depot in [ASH, BIRCH] {
        desk.give(vec![Input::DepotInventory {
            depot,
            request: REQUEST,
            held: Vec::new(),
        }]);
    }
    desk.wait(2);
    assert_eq!(desk.asked(), first);
    desk.give(vec![Input::RequestCancelled { request: REQUEST }]);
    assert_eq!(desk.asked(), [], "an answer is on its way");
    desk.grant(ASH, 160);
    assert_eq!(desk.asked(), [(ASH, None)]);
}

#[test]
fn what_a_depot_kept_before_it_was_gone_is_not_counted_on() {
    let mut desk = Desk::new(true);
    desk.submit();
    desk.grant(ASH, 160);
    desk.grant(BIRCH, 160);
    desk.asked();
    desk.give(vec![Input::DepotDown {
        depot: ASH,
        fault: Fault::Unreachable,
    }]);
    desk.wait(30);
    desk.give(vec![up(ASH, 100)]);
    desk.give(vec![Input::DepotInventory {
        depot: ASH,
        request: REQUEST,
        held: Vec::new(),
    }]);
    assert!(desk.free(ASH) <= 100, "{}", desk.free(ASH));
    desk.wait(2);
    let asked = desk.asked();
    assert!(asked.iter().any(|(depot, _)| *depot == ASH), "{asked:?}");
}

#[test]
fn a_depot_is_asked_to_keep_space_for_so_many_requests_and_then_for_the_next_ones() {
    let mut desk = Desk::new(true);
    desk.give(vec![up(ASH, 400_000), up(BIRCH, 400_000)]);
    let asked = 600;
    for number in 1..=asked {
        let spec = RequestSpec {
            bytes: Bytes::mebi(160),
            files: 1,
            chunk_size: Bytes::mebi(8),
            deadline: desk.now + Duration::from_secs(400_000),
            code: "1+1".parse().unwrap(),
            via: vec![ASH, BIRCH],
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let request = RequestId::new(number);
        desk.give(vec![Input::RequestSubmitted { request, spec }]);
    }
    desk.wait(30);
    let at_ash = |asked: Vec<(DepotId, Option<Bytes>)>| {
        let at_ash = asked.iter().filter(|(depot, _)| *depot == ASH);
        at_ash.filter(|(_, bytes)| bytes.is_some()).count()
    };
    assert_eq!(at_ash(desk.asked()), 512);
    // Those that are through make room for others.
    for number in 1..=10 {
        let request = RequestId::new(number);
        desk.give(vec![Input::RequestCancelled { request }]);
        for depot in [ASH, BIRCH] {
            let news = SpaceNews::Released;
            desk.give(vec![Input::SpaceTold {
                request,
                depot,
                news,
            }]);
        }
    }
    desk.wait(30);
    assert_eq!(at_ash(desk.asked()), 10);
}

#[test]
fn depots_that_fill_up_are_the_reason_that_no_finish_is_in_sight() {
    // The last chunk of the second is smaller than the others.
    for (mebi, full, said) in [
        (
            160,
            [ASH, BIRCH].as_slice(),
            "are needed on depots and 0 B are free",
        ),
        (9, &[ASH], "are needed on depots and"),
    ] {
        let mut desk = Desk::new(false);
        desk.submit_so_much(mebi);
        for (depot, chunk, fragment) in desk.sent.clone() {
            if full.contains(&depot) {
                desk.give(vec![Input::FragmentFailed {
                    request: REQUEST,
                    depot,
                    chunk,
                    fragment,
                    fault: Fault::Full,
                }]);
            }
        }
        desk.wait(10);
        let risk = desk.said.iter().find(|line| line.contains("at risk"));
        assert!(risk.unwrap().contains(said), "{risk:?}");
    }
}

#[test]
fn a_deadline_in_another_century_asks_for_no_space_that_relays_refuse() {
    let mut desk = Desk::new(true);
    desk.submit_by(
        desk.now + Duration::from_secs(100 * 366 * 86_400),
        Bytes::mebi(160),
    );
    assert!(!desk.asked().is_empty());
}

#[test]
fn a_small_dataset_asks_for_no_whole_chunk() {
    let mut desk = Desk::new(true);
    desk.submit_by(desk.now + Duration::from_secs(3600), Bytes::new(14));
    let asked = desk.asked();
    assert!(!asked.is_empty());
    assert!(
        asked
            .iter()
            .all(|(_, bytes)| *bytes <= Some(Bytes::new(14))),
        "{asked:?}"
    );
}
