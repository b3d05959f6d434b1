//! Several ways to one depot: which is tried, which is taken, and what stays known of the others.

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    Timestamp,
};

const DEPOT: DepotId = DepotId::new(1);
const REQUEST: RequestId = RequestId::new(1);
const MEBI: u64 = 1 << 20;

struct Desk {
    mind: Mind,
    now: Timestamp,
    taken: Vec<u8>,
    said: Vec<String>,
    sent: Vec<(ChunkIndex, FragmentIndex)>,
    /// True if measurements are never short of data.
    is_full: bool,
}

impl Desk {
    /// Returns a desk with one depot at the end of these ways, with 100 GiB for it.
    fn new(ways: &[&str]) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: Timestamp::from_secs(1_800_000_000),
            taken: Vec::new(),
            said: Vec::new(),
            sent: Vec::new(),
            is_full: true,
        };
        let capacity = Bytes::mebi(1_000_000);
        desk.give(vec![
            Input::DepotAdded {
                depot: DEPOT,
                name: "ash".into(),
                capacity,
                rate_max: None,
            },
            found(ways),
            Input::DepotUp {
                depot: DEPOT,
                free: capacity,
                rate_max: None,
            },
            Input::RequestSubmitted {
                request: REQUEST,
                spec: RequestSpec {
                    bytes: Bytes::mebi(100 << 10),
                    files: 1,
                    chunk_size: Bytes::mebi(8),
                    deadline: desk.now + Duration::from_secs(36_000),
                    code: "1+0".parse().unwrap(),
                    via: vec![DEPOT],
                    destinations: Vec::new(),
                    release: ReleasePolicy::Never,
                    best_effort: false,
                },
            },
        ]);
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        self.said.extend(out.events.iter().map(ToString::to_string));
        for command in &out.commands {
            if let Command::Take { way, .. } = command {
                self.taken.push(*way);
            }
            if let Command::Send {
                chunk, fragment, ..
            } = command
            {
                self.sent.push((*chunk, *fragment));
            }
        }
    }

    /// A second request wants rate reserved on a circuit, which lies on this way; on all where it has no name.
    fn ask_with_reservation(&mut self, way: &str) {
        let terms = CircuitTerms {
            name: "lambda".into(),
            depots: vec![DEPOT],
            rate_max: ByteRate::new(100 * MEBI),
            ways: Some(way.to_owned())
                .into_iter()
                .filter(|way| !way.is_empty())
                .collect(),
            ..CircuitTerms::default()
        };
        self.give(vec![
            Input::CircuitOffered {
                circuit: CircuitId::new(1),
                terms,
            },
            Input::RequestAsked {
                request: RequestId::new(2),
                spec: RequestSpec {
                    bytes: Bytes::mebi(10 << 10),
                    files: 1,
                    chunk_size: Bytes::mebi(8),
                    deadline: self.now + Duration::from_secs(36_000),
                    code: "1+0".parse().unwrap(),
                    via: vec![DEPOT],
                    destinations: Vec::new(),
                    release: ReleasePolicy::Never,
                    best_effort: false,
                },
                optimizer: "auto".parse().unwrap(),
                wishes: Wishes {
                    reserve: Reserve::Always,
                    ..Wishes::default()
                },
            },
        ]);
    }

    /// News of what that request asked for.
    fn told(&mut self, news: News) {
        let reservation = ReservationId::new(1);
        self.give(vec![Input::ReservationTold { reservation, news }]);
    }

    /// Lets `seconds` pass in which the depot takes `mebi` a second.
    fn live(&mut self, seconds: u64, mebi: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            // One is always on its way.
            let left = self.sent.split_off(self.sent.len().saturating_sub(1));
            let stored = std::mem::replace(&mut self.sent, left).into_iter();
            let mut inputs: Vec<Input> = stored
                .map(|(chunk, fragment)| Input::FragmentStored {
                    request: REQUEST,
                    depot: DEPOT,
                    chunk,
                    fragment,
                })
                .collect();
            inputs.push(Input::Throughput {
                depot: DEPOT,
                bytes: Bytes::mebi(mebi),
                window: Duration::from_secs(1),
                saturated: self.is_full && mebi > 0,
            });
            self.give(inputs);
        }
    }

    /// Lets time pass until a way is tried.
    fn live_until_tried(&mut self, mebi: u64) {
        for _ in 0..30 {
            self.live(1, mebi);
            if !self.taken.is_empty() {
                return;
            }
        }
        panic!("nothing was tried: {:?}", self.said);
    }

    fn way(&self) -> (String, u64) {
        let paths = self.mind.paths(self.now);
        let taken = paths[0].ways.iter().find(|way| way.is_taken).unwrap();
        (taken.name.clone(), paths[0].rates.p50.get() / MEBI)
    }

    fn says(&self, what: &str) -> bool {
        self.said.iter().any(|said| said.contains(what))
    }
}

fn found(ways: &[&str]) -> Input {
    Input::WaysFound {
        depot: DEPOT,
        ways: ways.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn another_way_is_tried_once_what_the_first_carries_is_known_and_the_better_is_taken() {
    let mut desk = Desk::new(&["border", "straight"]);
    assert_eq!(desk.way().0, "border");
    desk.live_until_tried(10);
    assert_eq!(desk.taken, [1]);
    assert!(desk.says("tries the way straight: the one that is taken carries"));
    // While it is tried the forecast is still of the other.
    assert_eq!(desk.way().0, "border");
    desk.live(3, 40);
    assert_eq!(desk.way(), ("straight".into(), 40));
    assert_eq!(desk.taken, [1], "it is taken already");
    assert!(desk.says("takes the way straight: it carries 40.0 MiB/s without a gateway"));
    let told = desk.mind.explain(REQUEST).unwrap();
    let told = told.iter().filter(|entry| entry.what().contains("way"));
    assert_eq!(told.count(), 2, "the request remembers both");
}

#[test]
fn a_way_that_is_no_better_is_left_again_and_rests_longer_each_time() {
    let mut desk = Desk::new(&["border", "straight"]);
    let mut trials = Vec::new();
    let start = desk.now;
    for _ in 0..6000 {
        let rate = if desk.taken.last() == Some(&1) { 8 } else { 10 };
        let before = desk.taken.len();
        desk.live(1, rate);
        if desk.taken.len() > before && desk.taken.last() == Some(&1) {
            trials.push(desk.now.since(start).as_secs());
        }
    }
    let rests: Vec<u64> = trials.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(rests.len() >= 2, "{trials:?}");
    assert!((600..620).contains(&rests[0]), "{rests:?}");
    assert!(rests[1] > rests[0] * 3 / 2, "{rests:?}");
    assert_eq!(desk.way().0, "border");
    assert!(desk.says("straight was tried and carries no more than 8.0 MiB/s"));
}

#[test]
fn a_trial_that_shows_nothing_ends() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.live(200, 0);
    assert_eq!(desk.taken, [1, 0]);
    assert_eq!(desk.way(), ("border".into(), 10));
    assert!(desk.says("straight was tried and showed nothing"));
}

#[test]
fn a_trial_ends_when_a_circuit_to_its_depot_is_up() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    assert_eq!(desk.taken, [1]);
    desk.is_full = false;
    desk.ask_with_reservation("");
    desk.live(3, 1);
    desk.told(News::Granted);
    assert_eq!(desk.taken, [1], "it is only granted");
    desk.told(News::Up);
    assert_eq!(desk.mind.reservations()[0].state, ReservationState::Up);
    assert_eq!(desk.taken, [1, 0]);
    assert_eq!(desk.way().0, "border");
}

#[test]
fn the_way_that_a_circuit_lies_on_is_taken_when_it_is_up() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.is_full = false;
    desk.live(3, 20);
    assert_eq!(desk.way().0, "straight");
    desk.ask_with_reservation("border");
    desk.live(3, 1);
    desk.told(News::Granted);
    assert_eq!(desk.taken, [1], "it is only granted");
    desk.told(News::Up);
    assert_eq!(desk.taken, [1, 0]);
    assert_eq!(desk.way().0, "border");
    assert!(desk.says("takes the way border: lambda, where rate is reserved, lies on it"));
}

#[test]
fn a_circuit_that_all_ways_lie_on_leaves_the_one_that_is_taken() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.is_full = false;
    desk.live(3, 20);
    desk.ask_with_reservation("");
    desk.live(3, 1);
    desk.told(News::Granted);
    desk.told(News::Up);
    assert_eq!(desk.taken, [1]);
    assert_eq!(desk.way().0, "straight");
}

#[test]
fn a_trial_short_of_data_counts_where_it_shows_clearly_more_than_the_way_before() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.is_full = false;
    // So little may be all that there was to send.
    desk.live(5, 11);
    assert_eq!(desk.way().0, "border");
    desk.live(3, 20);
    assert_eq!(desk.way(), ("straight".into(), 20));
    assert!(desk.says("takes the way straight: it carries 20.0 MiB/s without a gateway"));
}

#[test]
fn a_way_that_breaks_ends_its_trial_and_is_told() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.give(vec![Input::WayTold {
        depot: DEPOT,
        way: 0,
    }]);
    assert_eq!(desk.taken, [1, 0]);
    assert_eq!(desk.way().0, "border");
    desk.give(vec![Input::WayTold {
        depot: DEPOT,
        way: 1,
    }]);
    assert_eq!(desk.way().0, "straight");
    assert!(desk.says("takes the way straight: border does not open, or breaks"));
    desk.give(vec![Input::WayTold {
        depot: DEPOT,
        way: 0,
    }]);
    assert_eq!(desk.way(), ("border".into(), 10), "what was known is kept");
    assert!(desk.says("takes the way border: it was chosen, and opens again"));
    // What nobody has is no way.
    desk.give(vec![Input::WayTold {
        depot: DEPOT,
        way: 9,
    }]);
    assert_eq!(desk.way().0, "border");
}

#[test]
fn ways_are_known_by_name_whatever_their_order_and_the_taken_one_is_commanded_again() {
    let mut desk = Desk::new(&["border", "straight"]);
    desk.live_until_tried(10);
    desk.live(3, 40);
    let same = Mind::restore(&desk.mind.snapshot()).unwrap();
    assert_eq!(same, desk.mind);
    desk.taken.clear();
    desk.give(vec![found(&["alps", "border", "straight"])]);
    assert_eq!(desk.taken, [2], "a driver that starts takes the first");
    assert_eq!(desk.way(), ("straight".into(), 40));
    let ways = &desk.mind.paths(desk.now)[0].ways;
    assert_eq!(ways[1].rates.unwrap().p50.get() / MEBI, 10);
    assert_eq!(ways[0].rates, None);
    // Gateways go from the file, and what is known of the straight way stays.
    desk.give(vec![found(&["straight"])]);
    assert!(desk.mind.paths(desk.now)[0].ways.is_empty() && !desk.mind.has_ways(DEPOT));
    assert_eq!(desk.mind.paths(desk.now)[0].rates.p50.get() / MEBI, 40);
    desk.give(vec![found(&["border", "straight"])]);
    assert_eq!(desk.way().0, "border");
    let ways = &desk.mind.paths(desk.now)[0].ways;
    assert_eq!(ways[1].rates.unwrap().p50, ByteRate::new(40 * MEBI));
}
