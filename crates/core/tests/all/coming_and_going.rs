//! Depots that come and go, and destinations that fill: what is fed to more than it needs, and what waits.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once, and looks at some commands only"
)]

use std::{collections::BTreeSet, time::Duration};

use crate::support::confirmed;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOME: DepotId = DepotId::new(9);
const FIRST: RequestId = RequestId::new(1);
const SECOND: RequestId = RequestId::new(2);
const RATE: Option<ByteRate> = Some(ByteRate::new(10 << 20));

struct Desk {
    mind: Mind,
    now: Timestamp,
    /// Whose sends are answered, each as stored.
    answered: BTreeSet<RequestId>,
    gathers: usize,
}

fn up(depot: DepotId, free_mib: u64) -> Input {
    Input::DepotUp {
        depot,
        free: Bytes::mebi(free_mib),
        rate_max: RATE,
    }
}

fn down(depot: DepotId) -> Input {
    let fault = Fault::Unreachable;
    Input::DepotDown { depot, fault }
}

impl Desk {
    /// Depots 1 to 4, which are there, and a destination which is not.
    fn new() -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            answered: BTreeSet::new(),
            gathers: 0,
        };
        for depot in (1..=4).map(DepotId::new).chain([HOME]) {
            desk.add(depot);
        }
        desk.give(vec![down(HOME)]);
        desk
    }

    /// A depot is added, which is there.
    fn add(&mut self, depot: DepotId) {
        let added = Input::DepotAdded {
            depot,
            name: format!("depot-{depot}"),
            capacity: Bytes::mebi(4096),
            rate_max: RATE,
        };
        self.give(vec![added, up(depot, 4096)]);
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut inputs = inputs;
        loop {
            let mut out = Outbox::default();
            self.mind.step(self.now, inputs, &mut out);
            inputs = out
                .commands
                .into_iter()
                .filter_map(|command| self.carry_out(command))
                .collect();
            if inputs.is_empty() {
                return;
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } => self
                .answered
                .contains(&request)
                .then_some(Input::FragmentStored {
                    request,
                    depot,
                    chunk,
                    fragment,
                }),
            command @ Command::Inventory { .. } if confirmed(&self.mind, &command).is_some() => {
                confirmed(&self.mind, &command)
            }
            Command::Inventory { request, depot, .. } => Some(Input::DepotInventory {
                depot,
                request,
                held: Vec::new(),
            }),
            Command::Gather { .. } => {
                self.gathers += 1;
                None
            }
            _ => None,
        }
    }

    fn submit(&mut self, request: RequestId, mib: u64, in_s: u64, destinations: Vec<DepotId>) {
        let via = (1..=4).map(DepotId::new).collect();
        self.submit_by(via, request, mib, in_s, destinations);
    }

    fn submit_by(
        &mut self,
        via: Vec<DepotId>,
        request: RequestId,
        mib: u64,
        in_s: u64,
        destinations: Vec<DepotId>,
    ) {
        let spec = RequestSpec {
            bytes: Bytes::mebi(mib),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: self.now + Duration::from_secs(in_s),
            code: "1+1".parse().unwrap(),
            via,
            destinations,
            release: ReleasePolicy::WhenSafe,
            best_effort: false,
        };
        self.give(vec![Input::RequestSubmitted { request, spec }]);
    }

    /// A depot goes and comes back.
    fn lose(&mut self, depot: DepotId) {
        self.give(vec![down(depot)]);
        self.wait(10);
        self.give(vec![up(depot, 4096)]);
    }

    fn wait(&mut self, secs: u64) {
        for _ in 0..secs {
            self.now = self.now + Duration::from_secs(1);
            self.give(Vec::new());
        }
    }

    /// Depots that the first request is fed to.
    fn fan_out(&self) -> usize {
        let view = self.mind.request(FIRST).unwrap();
        view.shares.iter().filter(|share| share.active).count()
    }
}

/// Depots of which this one was lost and came back.
fn restless(lost: u32) -> Desk {
    let mut desk = Desk::new();
    desk.lose(DepotId::new(lost));
    desk
}

#[test]
fn who_is_fed_to_a_depot_that_was_lost_lately_is_fed_to_one_more() {
    let mut steady = Desk::new();
    steady.wait(700);
    steady.submit(FIRST, 300, 1000, Vec::new());
    assert_eq!(steady.fan_out(), 2);

    let mut shaky = Desk::new();
    shaky.wait(700);
    shaky.lose(DepotId::new(1));
    shaky.submit(FIRST, 300, 1000, Vec::new());
    assert_eq!(shaky.fan_out(), 3);

    // In a tenth of the time there is, as what is lost must be sent again.
    let mut hurried = restless(1);
    hurried.submit(FIRST, 300, 100, Vec::new());
    assert_eq!(hurried.fan_out(), 4);

    // Who stayed for long stays.
    let mut calm = restless(1);
    calm.wait(700);
    calm.submit(FIRST, 300, 1000, Vec::new());
    assert_eq!(calm.fan_out(), 2);
}

#[test]
fn where_depots_come_and_go_nobody_counts_on_one_that_is_new() {
    // The fourth is not fed, and tells of the others.
    let mut new = restless(4);
    new.submit(FIRST, 300, 1000, Vec::new());
    assert!(new.fan_out() > 2, "{}", new.fan_out());

    let mut known = Desk::new();
    known.wait(700);
    known.lose(DepotId::new(4));
    known.submit(FIRST, 300, 1000, Vec::new());
    assert_eq!(known.fan_out(), 2);

    // One that went for good long ago tells nothing of those that came since.
    let mut later = Desk::new();
    later.give(vec![down(DepotId::new(4))]);
    later.wait(700);
    later.add(DepotId::new(5));
    let via = [5, 1, 2, 3].map(DepotId::new).to_vec();
    later.submit_by(via, FIRST, 300, 1000, Vec::new());
    assert_eq!(later.fan_out(), 2);
}

#[test]
fn who_runs_is_fed_to_one_more_once_a_depot_comes_and_goes() {
    let mut desk = Desk::new();
    desk.wait(700);
    desk.submit(FIRST, 300, 200, Vec::new());
    assert_eq!(desk.fan_out(), 2);
    for _ in 0..2 {
        desk.give(vec![down(DepotId::new(1))]);
        desk.wait(12);
        desk.give(vec![up(DepotId::new(1), 4096)]);
        desk.wait(3);
    }
    assert!(desk.fan_out() >= 3, "{}", desk.fan_out());
}

/// Chunks that the destination gathers of a safe dataset while another one for it is not safe, and those when
/// that one is given up.
fn gathered(free_mib: u64, safe_since_s: u64) -> (usize, usize) {
    let mut desk = Desk::new();
    desk.answered.insert(FIRST);
    desk.submit(FIRST, 4, 3600, vec![HOME]);
    desk.wait(safe_since_s);
    assert_eq!(desk.mind.request(FIRST).unwrap().state, RequestState::Safe);
    desk.submit(SECOND, 16, 3600, vec![HOME]);
    desk.give(vec![up(HOME, free_mib)]);
    desk.wait(5);
    let meanwhile = desk.gathers;
    desk.give(vec![Input::RequestCancelled { request: SECOND }]);
    desk.wait(3);
    (meanwhile, desk.gathers)
}

#[test]
fn what_is_safe_leaves_room_at_its_destination_for_what_is_not() {
    let (meanwhile, then) = gathered(100, 8);
    assert_eq!(meanwhile, 0);
    assert!(then > 0);
    assert!(gathered(1000, 8).0 > 0);
}

#[test]
fn what_was_safe_for_an_hour_waits_for_nobody() {
    assert!(gathered(100, 3700).0 > 0);
}

#[test]
fn a_source_that_is_gone_fails_nothing_while_a_depot_has_yet_to_say_what_it_holds() {
    assert_eq!(told_late(true), RequestState::Safe);
    assert_eq!(told_late(false), RequestState::Failed);
}

/// Returns the end of a request after a restart of the service, with its source gone. The first
/// depot reports at once that it holds nothing. The others report all of it, or nothing, after a
/// send to the first failed.
fn told_late(all_held: bool) -> RequestState {
    let [first, second, third] = [1, 2, 3].map(DepotId::new);
    let mut desk = Desk::new();
    desk.submit_by(vec![first, second, third], FIRST, 64, 3600, Vec::new());
    let mut step = |inputs: Vec<Input>| {
        let mut out = Outbox::default();
        desk.mind.step(desk.now, inputs, &mut out);
        desk.now = desk.now + Duration::from_secs(1);
        let sends = out
            .commands
            .into_iter()
            .filter_map(|command| match command {
                Command::Send {
                    request,
                    depot,
                    chunk,
                    fragment,
                    ..
                } => Some(Input::FragmentFailed {
                    request,
                    depot,
                    chunk,
                    fragment,
                    fault: Fault::SourceVanished,
                }),
                _ => None,
            });
        let sends: Vec<Input> = sends.collect();
        (sends, desk.mind.request(FIRST).unwrap().state)
    };
    let holds = |depot: DepotId, fragment: Option<u8>| {
        let held = |fragment| {
            (0..64).map(move |chunk| (ChunkIndex::new(chunk), FragmentIndex::new(fragment)))
        };
        Input::DepotInventory {
            depot,
            request: FIRST,
            held: fragment.into_iter().flat_map(held).collect(),
        }
    };
    step(vec![Input::DriverStarted]);
    let (sent, _) = step(vec![holds(first, None)]);
    assert!(!sent.is_empty(), "nothing was sent");
    let (sent, state) = step(sent);
    assert!(
        sent.is_empty() && state == RequestState::Moving,
        "{sent:?} {state:?}"
    );
    assert!((0..5).all(|_| step(Vec::new()).0.is_empty()));
    let (sent, state) = step(vec![
        holds(second, all_held.then_some(0)),
        holds(third, all_held.then_some(1)),
    ]);
    if sent.is_empty() {
        return state;
    }
    step(sent).1
}
