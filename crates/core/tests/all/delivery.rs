//! Several destinations share what the centre sends once.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_plan::tuner::Method;
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};
use proptest::prelude::*;

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const CHUNKS: u32 = 12;
const HOME: DepotId = DepotId::new(8);
const LAB: DepotId = DepotId::new(9);

/// Something on its way: from the centre where nobody sends on.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    from: Vec<DepotId>,
    to: DepotId,
    chunk: ChunkIndex,
    fragment: FragmentIndex,
}

struct Desk {
    mind: Mind,
    now: Timestamp,
    open: Vec<Way>,
    held: BTreeMap<DepotId, BTreeMap<ChunkIndex, FragmentIndex>>,
    down: BTreeSet<DepotId>,
    said: Vec<Event>,
    from_centre: usize,
    gathers: usize,
    /// Depots that were told to evict it, in order; whether they say that they did.
    evicting: Vec<DepotId>,
    evicts: bool,
}

fn up(depot: DepotId) -> Input {
    let free = Bytes::mebi(4096);
    Input::DepotUp {
        depot,
        free,
        rate_max: None,
    }
}

fn spec(via: u32) -> RequestSpec {
    RequestSpec {
        bytes: Bytes::mebi(u64::from(CHUNKS)),
        files: 1,
        chunk_size: Bytes::mebi(1),
        deadline: START + HOUR,
        // Without depots nothing is to be survived: all of it at one destination is safe.
        code: if via == 0 { "2+0" } else { "2+1" }.parse().unwrap(),
        via: (1..=via).map(DepotId::new).collect(),
        destinations: vec![HOME, LAB],
        release: ReleasePolicy::WhenSafe,
        best_effort: false,
    }
}

impl Desk {
    /// A request to two destinations, with so many depots.
    fn new(via: u32) -> Self {
        Self::with(via, START + HOUR)
    }

    fn with(via: u32, deadline: Timestamp) -> Self {
        Self::wishing(via, deadline, Wishes::default())
    }

    fn wishing(via: u32, deadline: Timestamp, wishes: Wishes) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            open: Vec::new(),
            held: BTreeMap::new(),
            down: BTreeSet::new(),
            said: Vec::new(),
            from_centre: 0,
            gathers: 0,
            evicting: Vec::new(),
            evicts: true,
        };
        for depot in (1..=via).map(DepotId::new).chain([HOME, LAB]) {
            let added = Input::DepotAdded {
                depot,
                name: format!("depot-{depot}"),
                capacity: Bytes::mebi(4096),
                rate_max: Some(ByteRate::new(10 << 20)),
            };
            desk.give(vec![added, up(depot)]);
        }
        let request = REQUEST;
        let spec = RequestSpec {
            deadline,
            ..spec(via)
        };
        let method = Method::default();
        desk.give(vec![Input::RequestAsked {
            request,
            spec,
            optimizer: method,
            wishes,
        }]);
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut inputs = inputs;
        loop {
            let mut out = Outbox::default();
            self.mind
                .step(self.now, std::mem::take(&mut inputs), &mut out);
            self.said.extend(out.events);
            let answers = out.commands.into_iter();
            inputs.extend(answers.filter_map(|command| self.carry_out(command)));
            if inputs.is_empty() {
                return;
            }
        }
    }

    fn inventory(&mut self, depot: DepotId) -> Input {
        let held = self.held.entry(depot).or_default();
        let held = held.iter().map(|(chunk, of)| (*chunk, *of)).collect();
        Input::DepotInventory {
            depot,
            request: REQUEST,
            held,
        }
    }

    fn evict(&mut self, request: RequestId, depot: DepotId) -> Option<Input> {
        assert!(self.is_whole(HOME) && self.is_whole(LAB));
        assert!(![HOME, LAB].contains(&depot), "a destination keeps it");
        assert!(!self.down.contains(&depot), "nobody hears it");
        self.evicting.push(depot);
        if !self.evicts {
            return None;
        }
        self.held.remove(&depot);
        Some(Input::Forgotten {
            request,
            depot,
            done: true,
        })
    }

    /// Begins what was commanded, or answers it at once.
    fn carry_out(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Send {
                depot,
                chunk,
                fragment,
                ..
            } => {
                self.from_centre += 1;
                self.begin(Vec::new(), depot, chunk, fragment);
            }
            Command::Forward {
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                self.assert_holds(from, chunk, fragment);
                self.begin(vec![from], to, chunk, fragment);
            }
            Command::Follow {
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                self.assert_comes(from, chunk, fragment);
                self.begin(vec![from], to, chunk, fragment);
            }
            Command::Gather {
                to, chunk, from, ..
            } => self.gather(to, chunk, FragmentIndex::WHOLE, from),
            Command::Mend {
                to,
                chunk,
                fragment,
                from,
                ..
            } => self.gather(to, chunk, fragment, from),
            Command::Abandon { depot, .. } => self.open.retain(|way| way.to != depot),
            Command::Inventory { depot, .. } => return Some(self.inventory(depot)),
            Command::Release { request, .. } => {
                return Some(Input::SourceReleased { request });
            }
            Command::Forget { request, depot, .. } => return self.evict(request, depot),
            Command::Fetch { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }
            | Command::Probe { .. }
            | Command::ProbeCrossing { .. }
            | Command::Scatter { .. }
            | Command::Reserve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }
            | Command::ReserveSpace { .. }
            | Command::LeaveOut { .. }
            | Command::Renew { .. }
            | Command::ReleaseSpace { .. }
            | Command::Take { .. }
            | Command::Recall { .. }
            | Command::Solve { .. } => {}
        }
        None
    }

    fn gather(
        &mut self,
        to: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
        from: Vec<(DepotId, FragmentIndex)>,
    ) {
        let mut seen = BTreeSet::new();
        for (giver, fragment) in &from {
            self.assert_holds(*giver, chunk, *fragment);
            assert!(seen.insert(*fragment), "{fragment} is asked of two");
        }
        assert!((2..=3).contains(&seen.len()), "{from:?}");
        self.gathers += 1;
        let from = from.into_iter().map(|(giver, _)| giver).collect();
        self.begin(from, to, chunk, fragment);
    }

    fn assert_holds(&self, giver: DepotId, chunk: ChunkIndex, fragment: FragmentIndex) {
        let held = self.held.get(&giver).and_then(|held| held.get(&chunk));
        assert_eq!(held, Some(&fragment), "{giver} does not hold {chunk}");
    }

    /// Checks that the fragment is on its way there from the centre.
    fn assert_comes(&self, to: DepotId, chunk: ChunkIndex, fragment: FragmentIndex) {
        let is_it = |way: &Way| {
            way.from.is_empty() && (way.to, way.chunk, way.fragment) == (to, chunk, fragment)
        };
        assert!(
            self.open.iter().any(is_it),
            "{chunk} is not on its way to {to}"
        );
    }

    fn begin(
        &mut self,
        from: Vec<DepotId>,
        to: DepotId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) {
        let way = Way {
            from,
            to,
            chunk,
            fragment,
        };
        let is_twice = (self.open.iter()).any(|open| (open.to, open.chunk) == (to, chunk));
        assert!(
            !is_twice,
            "{chunk} goes to {to} twice at once: {way:?} {:?}",
            self.open
        );
        self.open.push(way);
        let shared = self
            .open
            .iter()
            .filter(|way| !way.from.is_empty() && way.to == to);
        assert!(shared.count() <= 4, "too much on its way to {to}");
    }

    fn store(&mut self, place: usize) {
        let Way {
            to,
            chunk,
            fragment,
            ..
        } = self.open.remove(place);
        let before = self.held.entry(to).or_default().insert(chunk, fragment);
        // What was sent twice at the end and arrived twice may give way to what was lost.
        let is_elsewhere = |before: FragmentIndex| {
            let mut others = self.held.iter().filter(|(depot, _)| **depot != to);
            before != fragment && others.any(|(_, held)| held.get(&chunk) == Some(&before))
        };
        let is_alone = before.is_none_or(is_elsewhere);
        assert!(is_alone, "two of {chunk} at {to}");
        self.give(vec![Input::FragmentStored {
            request: REQUEST,
            depot: to,
            chunk,
            fragment,
        }]);
    }

    fn fail(&mut self, place: usize, fault: Fault) {
        let way = self.open.remove(place);
        self.give(vec![Input::FragmentFailed {
            request: REQUEST,
            depot: way.to,
            chunk: way.chunk,
            fragment: way.fragment,
            fault,
        }]);
    }

    fn leave(&mut self, depot: DepotId) {
        self.down.insert(depot);
        self.open.retain(|way| way.to != depot);
        let fault = Fault::Unreachable;
        self.give(vec![Input::DepotDown { depot, fault }]);
    }

    fn come_back(&mut self, depot: DepotId) {
        self.down.remove(&depot);
        self.now = self.now + Duration::from_secs(301);
        self.give(vec![up(depot)]);
    }

    /// Lets everything arrive, and time pass as far as the mind asks for it.
    fn finish(&mut self) {
        // A depot that was lost for good is waited for, a tick a second, for two hours.
        for _ in 0..20_000 {
            if !self.open.is_empty() {
                self.now = self.now + Duration::from_millis(10);
                self.store(0);
            } else if let Some(at) = self.mind.next_wakeup().filter(|at| *at < START + 2 * HOUR) {
                self.now = self.now.max(at);
                self.give(Vec::new());
            } else {
                return;
            }
        }
        panic!("it does not end");
    }

    fn state(&self) -> RequestState {
        self.mind.request(REQUEST).unwrap().state
    }

    fn is_whole(&self, at: DepotId) -> bool {
        let held = self.held.get(&at);
        let whole = held.map_or(0, |held| {
            let held = held.values();
            held.filter(|fragment| **fragment == FragmentIndex::WHOLE)
                .count()
        });
        whole == CHUNKS as usize
    }
}

#[test]
fn each_chunk_leaves_the_centre_once_and_both_destinations_get_all() {
    let mut desk = Desk::new(0);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert!(desk.is_whole(HOME) && desk.is_whole(LAB));
    assert_eq!(desk.from_centre, CHUNKS as usize);
    let delivered = desk.said.iter();
    let delivered: Vec<_> = delivered
        .filter(|event| event.happening == Happening::Delivered)
        .collect();
    assert_eq!(delivered.len(), 1);
    let reason = Reason::Delivery {
        why: DeliveryReason::WholeThere { destinations: 2 },
    };
    assert_eq!(delivered[0].reason, reason);
}

#[test]
fn a_destination_that_is_away_is_waited_for_after_the_source_is_gone() {
    let mut desk = Desk::new(0);
    let lost = desk.open.iter().filter(|way| way.to == LAB).count();
    desk.leave(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Released);
    assert!(desk.is_whole(HOME) && !desk.is_whole(LAB));
    desk.come_back(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert!(desk.is_whole(LAB));
    assert_eq!(desk.from_centre, CHUNKS as usize + lost);
}

#[test]
fn one_who_pulled_it_says_nothing_for_the_others() {
    let mut desk = Desk::new(0);
    desk.leave(LAB);
    desk.finish();
    desk.give(vec![Input::Delivered { request: REQUEST }]);
    assert_eq!(desk.state(), RequestState::Released);
    desk.come_back(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert!(desk.is_whole(LAB));
}

#[test]
fn who_pulled_it_may_free_depots_and_destinations_are_waited_for_no_longer() {
    let mut desk = Desk::with(3, START + Duration::from_secs(20));
    desk.leave(HOME);
    desk.leave(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Released);
    assert!(!desk.mind.may_forget(REQUEST), "nobody has it");
    desk.give(vec![Input::Delivered { request: REQUEST }]);
    assert!(desk.mind.may_forget(REQUEST));
    let asked = vec![Input::ForgetAsked { request: REQUEST }];
    let mut out = Outbox::default();
    desk.mind.step(desk.now, asked, &mut out);
    assert_eq!(desk.state(), RequestState::Delivered);
    let is_order = |command: &&Command| matches!(command, Command::Forget { .. });
    assert_eq!(out.commands.iter().filter(is_order).count(), 3);
}

#[test]
fn what_lies_coded_on_depots_is_gathered_at_each_destination() {
    let mut desk = Desk::with(3, START + Duration::from_secs(20));
    desk.leave(HOME);
    desk.leave(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Released);
    desk.come_back(HOME);
    desk.finish();
    assert!(desk.is_whole(HOME) && !desk.is_whole(LAB));
    assert!(desk.gathers > 0);
    desk.come_back(LAB);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert!(desk.is_whole(LAB));
}

#[test]
fn who_failed_is_left_alone_and_the_others_are_not() {
    let mut desk = Desk::with(3, START + Duration::from_secs(20));
    desk.leave(HOME);
    desk.leave(LAB);
    desk.finish();
    desk.come_back(HOME);
    let place = desk.open.iter().position(|way| way.from.len() > 1).unwrap();
    let way = desk.open[place].clone();
    let giver = |depot: DepotId, fault: Option<Fault>| GiverEnd {
        depot,
        fault,
        span: Duration::from_millis(50),
    };
    let fault = Some(Fault::Unreachable);
    desk.give(vec![Input::GatherTold {
        request: REQUEST,
        depot: HOME,
        chunk: way.chunk,
        givers: vec![giver(way.from[0], fault), giver(way.from[1], None)],
    }]);
    desk.fail(place, Fault::Unreachable);
    let next = desk.open.iter().filter(|open| open.chunk == way.chunk);
    let next: Vec<_> = next.collect();
    assert_eq!(next.len(), 1, "it goes on at once");
    assert!(!next[0].from.contains(&way.from[0]), "{next:?}");
}

#[test]
fn a_way_that_fails_is_tried_again() {
    let mut desk = Desk::new(0);
    let mut failures = 0;
    while desk.state() != RequestState::Delivered {
        match desk.open.iter().position(|way| !way.from.is_empty()) {
            Some(place) if failures < 9 => {
                failures += 1;
                desk.fail(place, Fault::Unreachable);
            }
            _ if !desk.open.is_empty() => desk.store(0),
            _ => {
                desk.now = desk.mind.next_wakeup().unwrap();
                desk.give(Vec::new());
            }
        }
    }
    assert_eq!(failures, 9);
    assert!(desk.is_whole(HOME) && desk.is_whole(LAB));
}

#[test]
fn a_mind_that_was_restarted_goes_on_delivering() {
    let mut desk = Desk::new(0);
    for _ in 0..CHUNKS + 3 {
        desk.store(0);
    }
    desk.open.clear();
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    desk.give(vec![Input::DriverStarted]);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert!(desk.is_whole(HOME) && desk.is_whole(LAB));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_comes_and_goes_delivered_means_whole_everywhere(
        via in 0u32..5,
        moves in proptest::collection::vec((0u8..10, 0usize..64), 0..120),
    ) {
        let mut desk = Desk::new(via);
        for (kind, place) in moves {
            let at = [HOME, LAB][place % 2];
            match kind {
                0 if !desk.down.contains(&at) => desk.leave(at),
                1 if desk.down.contains(&at) => desk.come_back(at),
                2 if !desk.open.is_empty() => {
                    desk.fail(place % desk.open.len(), Fault::Unreachable);
                }
                3 => {
                    desk.now = desk.now + Duration::from_secs(1);
                    desk.give(Vec::new());
                }
                _ if !desk.open.is_empty() => desk.store(place % desk.open.len()),
                _ => {}
            }
            if desk.state() == RequestState::Delivered {
                prop_assert!(desk.is_whole(HOME) && desk.is_whole(LAB));
            }
        }
        for at in [HOME, LAB] {
            if desk.down.contains(&at) {
                desk.come_back(at);
            }
        }
        desk.finish();
        if desk.state() == RequestState::Delivered {
            prop_assert!(desk.is_whole(HOME) && desk.is_whole(LAB));
        }
    }
}

/// A request that was coded on three depots while its destinations were away, and is with them now.
fn delivered(wishes: Wishes, evicts: bool) -> Desk {
    let mut desk = Desk::wishing(3, START + HOUR, wishes);
    desk.evicts = evicts;
    desk.leave(HOME);
    desk.leave(LAB);
    desk.finish();
    desk.come_back(HOME);
    assert_eq!(desk.evicting, []);
    desk.come_back(LAB);
    desk
}

fn depots() -> Vec<DepotId> {
    (1..=3).map(DepotId::new).collect()
}

#[test]
fn depots_evict_what_every_destination_has() {
    let mut desk = delivered(Wishes::default(), true);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert_eq!(desk.evicting, depots(), "each is told once");
    let story = desk.mind.story(REQUEST).unwrap();
    let told = |line: &String| line.contains("depots evict its fragments");
    assert_eq!(
        story.iter().filter(|line| told(line)).count(),
        1,
        "{story:?}"
    );
    let shares = desk.mind.request(REQUEST).unwrap().shares;
    let of_depots = |share: &&ShareView| ![HOME, LAB].contains(&share.depot);
    assert!(
        shares
            .iter()
            .filter(of_depots)
            .all(|share| share.stored == 0)
    );
}

#[test]
fn depots_keep_it_as_long_as_was_wished() {
    let keep_until = Some(START + HOUR * 48);
    let wishes = Wishes {
        keep_until,
        ..Wishes::default()
    };
    let mut desk = delivered(wishes, true);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert_eq!(desk.evicting, []);
}

#[test]
fn who_does_not_evict_it_is_told_again_a_few_times_and_then_that_is_said() {
    let mut desk = delivered(Wishes::default(), false);
    desk.finish();
    for depot in depots() {
        let told = desk.evicting.iter().filter(|told| **told == depot);
        assert_eq!(told.count(), 8);
    }
    let story = desk.mind.story(REQUEST).unwrap();
    let stays = story
        .iter()
        .filter(|line| line.contains("told 8 times in vain"));
    assert_eq!(stays.count(), 3, "{story:?}");
}

#[test]
fn a_depot_that_is_away_is_told_when_it_is_back() {
    let mut desk = delivered(Wishes::default(), true);
    let (away, there) = (DepotId::new(2), [DepotId::new(1), DepotId::new(3)]);
    desk.leave(away);
    desk.finish();
    assert_eq!(desk.state(), RequestState::Delivered);
    assert_eq!(desk.evicting, there);
    desk.come_back(away);
    for _ in 0..2 {
        desk.now = desk.now + Duration::from_secs(60);
        desk.give(Vec::new());
    }
    assert_eq!(desk.evicting[2..], [away]);
}

#[test]
fn after_an_interruption_depots_are_told_again() {
    let mut desk = delivered(Wishes::default(), false);
    while desk.evicting.len() < 3 {
        desk.store(0);
    }
    desk.mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    (desk.evicts, desk.evicting) = (true, Vec::new());
    desk.give(vec![Input::DriverStarted]);
    assert_eq!(desk.evicting, depots());
    desk.give(vec![Input::DriverStarted]);
    assert_eq!(desk.evicting, depots(), "they did");
}
