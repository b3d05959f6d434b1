//! Depots near the centre push on to those nearer the destination.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const CHUNKS: u32 = 25;

type Piece = (ChunkIndex, FragmentIndex);

/// A way on which something is: from the centre where nobody sends on.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Way {
    from: Option<DepotId>,
    to: DepotId,
    piece: Piece,
}

struct Desk {
    mind: Mind,
    now: Timestamp,
    open: Vec<Way>,
    /// Fragments that each depot really holds.
    held: BTreeMap<DepotId, BTreeSet<Piece>>,
    said: Vec<Event>,
    most: BTreeMap<(DepotId, DepotId), usize>,
    /// Number of fragments forwarded while they still arrived.
    followed: usize,
}

fn depot(number: u32) -> DepotId {
    DepotId::new(number)
}

fn up(depot: DepotId) -> Input {
    let free = Bytes::mebi(4096);
    Input::DepotUp {
        depot,
        free,
        rate_max: None,
    }
}

impl Desk {
    /// A request of 25 chunks as 2+1 over depots of these levels.
    fn new(levels: &[u8]) -> Self {
        Self::with(levels, "2+1")
    }

    fn with(levels: &[u8], code: &str) -> Self {
        Self::following(levels, code, false)
    }

    /// Returns a desk whose depots can forward fragments that they still receive.
    fn following(levels: &[u8], code: &str, follows: bool) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            open: Vec::new(),
            held: BTreeMap::new(),
            said: Vec::new(),
            most: BTreeMap::new(),
            followed: 0,
        };
        let all: Vec<DepotId> = (1..).map(depot).take(levels.len()).collect();
        for (&depot, &level) in all.iter().zip(levels) {
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name: format!("depot-{depot}"),
                    capacity: Bytes::mebi(4096),
                    rate_max: Some(ByteRate::new(10 << 20)),
                },
                Input::DepotLevelled { depot, level },
                Input::DepotFollows { depot, follows },
                up(depot),
            ]);
        }
        let spec = RequestSpec {
            bytes: Bytes::mebi(u64::from(CHUNKS)),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: START + Duration::from_secs(3600),
            code: code.parse().unwrap(),
            via: all,
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let request = REQUEST;
        desk.give(vec![Input::RequestSubmitted { request, spec }]);
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        self.said.extend(out.events);
        for command in out.commands {
            self.carry_out(command);
        }
        for way in &self.open {
            let Some(from) = way.from else { continue };
            let same = self
                .open
                .iter()
                .filter(|other| (other.from, other.to) == (way.from, way.to));
            let most = self.most.entry((from, way.to)).or_default();
            *most = same.count().max(*most);
        }
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Send {
                depot,
                chunk,
                fragment,
                ..
            } => self.open.push(Way {
                from: None,
                to: depot,
                piece: (chunk, fragment),
            }),
            Command::Forward {
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                let piece = (chunk, fragment);
                let has = self
                    .held
                    .get(&from)
                    .is_some_and(|held| held.contains(&piece));
                assert!(has, "{from} does not hold {piece:?}");
                let from = Some(from);
                self.open.push(Way { from, to, piece });
            }
            Command::Follow {
                from,
                to,
                chunk,
                fragment,
                ..
            } => {
                self.follow(from, to, (chunk, fragment));
            }
            Command::Abandon { depot, .. } => self.open.retain(|way| way.to != depot),
            Command::Inventory { depot, .. } => {
                let held = self.held.entry(depot).or_default();
                let held = held.iter().copied().collect();
                self.give(vec![Input::DepotInventory {
                    depot,
                    request: REQUEST,
                    held,
                }]);
            }
            Command::Gather { .. }
            | Command::Mend { .. }
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
            | Command::Release { .. }
            | Command::Forget { .. }
            | Command::Fetch { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }
            | Command::Probe { .. }
            | Command::ProbeCrossing { .. }
            | Command::Solve { .. } => {}
        }
    }

    /// Checks that the forwarded fragment is on its way to the depot, and nothing else goes that
    /// way.
    fn follow(&mut self, from: DepotId, to: DepotId, piece: (ChunkIndex, FragmentIndex)) {
        let comes = |way: &Way| way.from.is_none() && way.to == from && way.piece == piece;
        assert!(
            self.open.iter().any(comes),
            "{piece:?} does not come to {from}"
        );
        let others = |way: &Way| way.from == Some(from) && way.to == to;
        assert!(!self.open.iter().any(others), "something goes that way");
        self.followed += 1;
        let from = Some(from);
        self.open.push(Way { from, to, piece });
    }

    fn store(&mut self, place: usize) {
        let Way { to, piece, .. } = self.open.remove(place);
        let held = self.held.entry(to).or_default();
        assert!(
            held.iter().all(|(chunk, _)| *chunk != piece.0),
            "two of a chunk"
        );
        held.insert(piece);
        self.give(vec![Input::FragmentStored {
            request: REQUEST,
            depot: to,
            chunk: piece.0,
            fragment: piece.1,
        }]);
    }

    fn fail(&mut self, place: usize, fault: Fault) {
        let Way { to, piece, .. } = self.open.remove(place);
        self.give(vec![Input::FragmentFailed {
            request: REQUEST,
            depot: to,
            chunk: piece.0,
            fragment: piece.1,
            fault,
        }]);
    }

    /// Lets everything arrive, and time pass as far as the mind asks for it.
    fn finish(&mut self) {
        for _ in 0..2000 {
            if !self.open.is_empty() {
                self.store(0);
            } else if let Some(at) = self.mind.next_wakeup().filter(|at| *at < START + HOUR) {
                self.now = self.now.max(at);
                self.give(Vec::new());
            } else {
                return;
            }
        }
        panic!("it does not end");
    }

    fn is_safe(&self) -> bool {
        self.mind.request(REQUEST).unwrap().chunks_safe == CHUNKS
    }

    fn count(&self, number: u32) -> usize {
        self.held.get(&depot(number)).map_or(0, BTreeSet::len)
    }

    fn heard(&self, what: impl Fn(&Happening) -> bool) -> usize {
        self.said
            .iter()
            .filter(|event| what(&event.happening))
            .count()
    }
}

const HOUR: Duration = Duration::from_secs(3500);

#[test]
fn every_fragment_goes_on_once_to_the_second_level() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2, 2]);
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(
        (1..=6).map(|number| desk.count(number)).collect::<Vec<_>>(),
        [25; 6]
    );
    let near: BTreeSet<Piece> = (4..=6)
        .flat_map(|number| desk.held[&depot(number)].clone())
        .collect();
    assert_eq!(near.len(), 75, "each fragment lies at the second level");
    assert!(desk.most.values().all(|most| *most <= 4), "{:?}", desk.most);
    assert_eq!(desk.heard(|what| *what == Happening::Pushing), 3);
    assert_eq!(desk.heard(|what| *what == Happening::Pushed), 1);
    let said = desk.mind.explain(REQUEST).unwrap();
    let said = said
        .iter()
        .find(|said| said.what().contains("pushed on to"));
    assert_eq!(
        said.unwrap().reason.to_string(),
        "level 2 is nearer to the destination"
    );
}

#[test]
fn the_centre_feeds_the_second_level_only_where_the_first_does_not_suffice() {
    let mut desk = Desk::new(&[2, 1, 1, 1]);
    assert!(desk.open.iter().all(|way| way.to != depot(1)));
    desk.finish();
    assert!(desk.is_safe());
    let mut desk = Desk::new(&[2, 1, 1]);
    assert!(desk.open.iter().any(|way| way.to == depot(1)));
    desk.finish();
    assert!(desk.is_safe());
}

#[test]
fn a_second_level_that_dies_or_is_full_takes_nothing_away() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2]);
    while !desk.open.iter().any(|way| way.from.is_some()) {
        desk.store(0);
    }
    desk.give(vec![Input::DepotDown {
        depot: depot(4),
        fault: Fault::Unreachable,
    }]);
    desk.held.remove(&depot(4));
    let full = desk.open.iter().position(|way| way.from.is_some()).unwrap();
    assert_eq!(desk.open[full].to, depot(5));
    desk.fail(full, Fault::Full);
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(
        desk.heard(|what| matches!(what, Happening::Repairing { .. })),
        0
    );
    let before = desk.count(5);
    assert!(before < 25);
    desk.give(vec![up(depot(5))]);
    desk.finish();
    assert_eq!(desk.count(5), 25, "with space again it goes on");
    assert_eq!(desk.count(4), 0);
}

#[test]
fn what_lies_at_the_second_level_counts_when_the_first_dies() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2, 2]);
    desk.finish();
    for number in 1..=2 {
        desk.give(vec![Input::DepotDown {
            depot: depot(number),
            fault: Fault::Unreachable,
        }]);
    }
    assert!(desk.is_safe(), "its copies lie at the second level");
    assert_eq!(
        desk.mind.request(REQUEST).unwrap().state,
        RequestState::Safe
    );
}

#[test]
fn a_giver_that_dies_is_waited_for_no_longer() {
    let mut desk = Desk::with(&[1, 2], "1+0");
    while !desk.open.iter().any(|way| way.from.is_some()) {
        desk.store(0);
    }
    desk.give(vec![Input::DepotDown {
        depot: depot(1),
        fault: Fault::Unreachable,
    }]);
    assert!(desk.open.iter().all(|way| way.from.is_none()));
}

#[test]
fn a_giver_without_what_it_shall_send_is_asked_what_it_holds() {
    let mut desk = Desk::new(&[1, 1, 1, 2]);
    while !desk.open.iter().any(|way| way.from.is_some()) {
        desk.store(0);
    }
    let place = desk.open.iter().position(|way| way.from.is_some()).unwrap();
    let way = desk.open[place];
    desk.held
        .get_mut(&way.from.unwrap())
        .unwrap()
        .remove(&way.piece);
    desk.fail(place, Fault::SourceVanished);
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(desk.count(4), 25);
}

#[test]
fn a_restart_asks_the_second_level_too_and_goes_on() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2, 2]);
    while desk.count(4) < 5 {
        desk.store(0);
    }
    desk.open.clear();
    desk.give(vec![Input::DriverStarted]);
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(desk.count(4) + desk.count(5) + desk.count(6), 75);
}

#[test]
fn nothing_is_pushed_for_what_was_cancelled_or_pulled() {
    for ended in [
        Input::RequestCancelled { request: REQUEST },
        Input::Delivered { request: REQUEST },
    ] {
        let mut desk = Desk::new(&[1, 1, 1, 2]);
        while !desk.open.iter().any(|way| way.from.is_some()) {
            desk.store(0);
        }
        desk.give(vec![ended]);
        assert!(desk.open.is_empty());
        desk.finish();
        assert!(desk.count(4) <= 4);
    }
}

#[test]
fn depots_that_fail_together_get_no_more_of_a_chunk_than_the_parity_covers() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2]);
    let terms = DepotTerms {
        domain: "a site".into(),
        ..DepotTerms::default()
    };
    for number in 4..=5 {
        let (depot, terms) = (depot(number), terms.clone());
        desk.give(vec![Input::DepotLent { depot, terms }]);
    }
    desk.finish();
    assert_eq!(desk.count(4) + desk.count(5), 25, "one of each chunk");
}

#[test]
fn pushes_go_on_as_soon_as_somebody_says_hours_that_let_them() {
    let mut desk = Desk::new(&[1, 1, 1, 2]);
    let lent = |windows| Input::DepotLent {
        depot: depot(4),
        terms: DepotTerms {
            windows,
            ..DepotTerms::default()
        },
    };
    let hours = |hours: &str| hours.parse::<Windows>().unwrap();
    desk.give(vec![lent(hours("08-12").meeting(&hours("20-22")))]);
    desk.finish();
    assert!(desk.is_safe() && desk.count(4) == 0);
    desk.give(vec![lent(Windows::default())]);
    assert!(desk.open.iter().any(|way| way.to == depot(4)));
}

#[test]
fn a_snapshot_in_the_middle_changes_nothing() {
    let mut desk = Desk::new(&[1, 1, 1, 2, 2]);
    while desk.count(4) < 5 {
        desk.store(0);
    }
    let restored = Mind::restore(&desk.mind.snapshot()).unwrap();
    assert_eq!(restored, desk.mind);
    desk.mind = restored;
    desk.finish();
    assert_eq!((desk.count(4), desk.count(5)), (25, 25));
}

fn drained(number: u32, drain: Drain) -> Input {
    Input::DepotDrained {
        depot: depot(number),
        drain,
        is_own: false,
    }
}

fn drain_of(desk: &Desk, number: u32) -> Option<DrainView> {
    let views = desk.mind.depots();
    let view = views.iter().find(|view| view.depot == depot(number));
    view.unwrap().drain
}

#[test]
fn nothing_new_goes_to_a_depot_that_is_drained_and_what_is_under_way_ends_there() {
    let mut desk = Desk::new(&[1, 1, 1, 1]);
    let to_first = |desk: &Desk| desk.open.iter().filter(|way| way.to == depot(1)).count();
    while to_first(&desk) == 0 {
        desk.store(0);
    }
    desk.give(vec![drained(1, Drain::Keep)]);
    assert!(to_first(&desk) > 0, "it is not broken off");
    // What fails is sent elsewhere.
    let failed = desk.open.iter().position(|way| way.to == depot(1)).unwrap();
    let lost = desk.open[failed].piece.0;
    desk.fail(failed, Fault::Busy);
    let under_way = to_first(&desk) + desk.count(1);
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(desk.count(1), under_way, "it got no more than was begun");
    assert!(desk.held[&depot(1)].iter().all(|(chunk, _)| *chunk != lost));
    let elsewhere = |piece: &&Piece| (2..=4).any(|to| desk.held[&depot(to)].contains(*piece));
    let copied = desk.held[&depot(1)].iter().filter(elsewhere).count();
    let view = drain_of(&desk, 1).unwrap();
    assert_eq!(view.under_way, 0);
    assert_eq!(view.only_there, Some((under_way - copied) as u64));
    let told = desk.mind.story(REQUEST).unwrap().join(" ");
    assert!(told.contains("is to be switched off"), "{told}");
}

#[test]
fn what_a_drained_depot_holds_counts_and_goes_on_where_it_is_moved() {
    let mut desk = Desk::new(&[1, 1, 1, 1]);
    desk.finish();
    assert!(desk.is_safe());
    desk.give(vec![drained(1, Drain::Move)]);
    assert!(desk.is_safe(), "what lies there counts");
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!(
        desk.heard(|what| matches!(what, Happening::Unsafe { .. })),
        0
    );
    assert_eq!(desk.heard(|what| *what == Happening::DepotEmptied), 1);
    let view = drain_of(&desk, 1).unwrap();
    assert!(view.is_empty(), "{view:?}");
    // Each of its fragments lies elsewhere too, so nothing is missing without it.
    let elsewhere: BTreeSet<Piece> = (2..=4)
        .flat_map(|number| desk.held.get(&depot(number)).cloned().unwrap_or_default())
        .collect();
    assert!(desk.held[&depot(1)].is_subset(&elsewhere));
    desk.give(vec![Input::DepotRemoved { depot: depot(1) }]);
    assert!(desk.is_safe());
}

#[test]
fn what_has_no_other_place_stays_and_that_is_said() {
    let mut desk = Desk::new(&[1, 1, 1]);
    desk.finish();
    desk.give(vec![drained(1, Drain::Move)]);
    desk.finish();
    let view = drain_of(&desk, 1).unwrap();
    assert_eq!(view.only_there, Some(u64::from(CHUNKS)));
    assert!(!view.is_empty());
    assert_eq!(desk.heard(|what| *what == Happening::DepotEmptied), 0);
}

#[test]
fn a_depot_is_drained_until_neither_it_nor_an_operator_wants_that() {
    let mut desk = Desk::new(&[1, 1, 1]);
    let own = |drain| Input::DepotDrained {
        depot: depot(1),
        drain,
        is_own: true,
    };
    desk.give(vec![own(Drain::Keep), drained(1, Drain::Move)]);
    assert_eq!(drain_of(&desk, 1).unwrap().drain, Drain::Move);
    desk.give(vec![drained(1, Drain::Off)]);
    let view = drain_of(&desk, 1).unwrap();
    assert_eq!((view.drain, view.is_own), (Drain::Keep, true));
    while let Some(place) = desk.open.iter().position(|way| way.to == depot(1)) {
        desk.fail(place, Fault::Busy);
    }
    while !desk.open.is_empty() {
        desk.store(0);
    }
    assert!(!desk.is_safe(), "two depots are too few for 2+1");
    desk.give(vec![own(Drain::Off), up(depot(1))]);
    assert_eq!(drain_of(&desk, 1), None);
    desk.finish();
    assert!(desk.is_safe(), "it is used again");
    assert_eq!(desk.heard(|what| *what == Happening::DepotUndrained), 1);
}

#[test]
fn a_newcomer_is_not_admitted_onto_a_drained_depot() {
    let mut desk = Desk::new(&[1, 1, 1, 1]);
    desk.finish();
    desk.give(vec![drained(1, Drain::Keep), drained(2, Drain::Keep)]);
    let id = RequestId::new(2);
    let mut spec = desk.mind.request(REQUEST).unwrap().spec;
    spec.deadline = desk.now + Duration::from_secs(600);
    desk.give(vec![Input::RequestSubmitted { request: id, spec }]);
    let view = desk.mind.request(id).unwrap();
    assert_eq!(view.state, RequestState::Refused, "two are left for 2+1");
    let told = desk.mind.story(id).unwrap().join(" ");
    assert!(
        told.contains("drained") || told.contains("switched off"),
        "{told}"
    );
}

/// Places of what goes on while it still arrives, and of what each follows.
fn followers(desk: &Desk) -> Vec<(usize, usize)> {
    let all = desk.open.iter().enumerate();
    let on = all.filter(|(_, way)| way.from.is_some());
    let led = on.filter_map(|(place, way)| {
        let leads = |other: &Way| {
            other.from.is_none() && Some(other.to) == way.from && other.piece == way.piece
        };
        Some((place, desk.open.iter().position(leads)?))
    });
    led.collect()
}

#[test]
fn what_still_arrives_goes_on_only_from_depots_that_can_and_over_idle_ways() {
    let desk = Desk::following(&[1, 1, 1, 2, 2, 2], "2+1", false);
    assert_eq!(desk.followed, 0);
    let mut desk = Desk::following(&[1, 1, 1, 2, 2, 2], "2+1", true);
    let first = followers(&desk);
    assert!(!first.is_empty(), "{:?}", desk.open);
    // Nothing less goes out from the centre, and not to those beyond.
    let without = Desk::following(&[1, 1, 1, 2, 2, 2], "2+1", false);
    let sent = |desk: &Desk| -> Vec<Way> {
        let all = desk.open.iter().filter(|way| way.from.is_none());
        all.copied().collect()
    };
    assert_eq!(sent(&desk), sent(&without));
    let said = desk.mind.explain(REQUEST).unwrap();
    let said = said
        .iter()
        .find(|said| said.what().contains("pushed on to"));
    assert_eq!(
        said.unwrap().reason.to_string(),
        "nothing else goes that way, so it goes on while it still arrives"
    );
    desk.finish();
    assert!(desk.is_safe());
    let near: BTreeSet<Piece> = (4..=6)
        .flat_map(|number| desk.held[&depot(number)].clone())
        .collect();
    assert_eq!(
        near.len(),
        75,
        "each fragment lies at the second level once"
    );
    assert_eq!((4..=6).map(|number| desk.count(number)).sum::<usize>(), 75);
    assert_eq!(desk.heard(|what| *what == Happening::Pushed), 1);
}

#[test]
fn what_does_not_arrive_is_given_up_beyond_and_nobody_is_blamed() {
    let mut desk = Desk::following(&[1, 1, 1, 2, 2, 2], "2+1", true);
    let (follower, leader) = followers(&desk)[0];
    let way = desk.open[follower];
    desk.fail(leader, Fault::Corrupt);
    let follower = desk.open.iter().position(|other| *other == way).unwrap();
    let asked = desk.held.len();
    desk.fail(follower, Fault::SourceVanished);
    assert_eq!(desk.held.len(), asked, "nobody is asked what it holds");
    assert!(!desk.held.contains_key(&way.to), "it counts nowhere");
    let said = desk.mind.explain(REQUEST).unwrap();
    let said = said
        .iter()
        .find(|said| said.what().contains("a push is given up"));
    assert_eq!(
        said.unwrap().reason.to_string(),
        "what was to go on as it came did not arrive"
    );
    // The pair was not left alone for it: the next that can go goes there at once.
    desk.finish();
    assert!(desk.is_safe());
    assert_eq!((4..=6).map(|number| desk.count(number)).sum::<usize>(), 75);
}

#[test]
fn a_giver_that_dies_takes_what_follows_with_it() {
    let mut desk = Desk::following(&[1, 1, 1, 1, 2, 2], "2+1", true);
    let (follower, _) = followers(&desk)[0];
    let from = desk.open[follower].from.unwrap();
    desk.give(vec![Input::DepotDown {
        depot: from,
        fault: Fault::Unreachable,
    }]);
    assert!(desk.open.iter().all(|way| way.from != Some(from)));
    desk.finish();
    assert!(desk.is_safe());
}

#[test]
fn a_push_that_is_tried_again_names_who_gets_it() {
    let mut desk = Desk::new(&[1, 1, 2, 2]);
    while !desk.open.iter().any(|way| way.from.is_some()) {
        desk.store(0);
    }
    let place = desk.open.iter().position(|way| way.from.is_some()).unwrap();
    desk.fail(place, Fault::Other);
    let said = desk.mind.explain(REQUEST).unwrap();
    let again = said
        .iter()
        .find(|said| matches!(said.reason, Reason::Retry { .. }));
    assert!(!again.unwrap().depot.is_empty());
}

#[test]
fn nothing_goes_from_store_to_store_for_nobody_carries_it() {
    let mut desk = Desk::with(&[1, 1, 1, 2], "2+1");
    let stores = [1, 4].map(|number| Input::DepotStores {
        depot: depot(number),
        stores: true,
    });
    desk.give(stores.into());
    desk.finish();
    assert!(desk.is_safe());
    let from: BTreeSet<DepotId> = desk.most.keys().map(|(from, _)| *from).collect();
    assert_eq!(
        from,
        BTreeSet::from([depot(2), depot(3)]),
        "relays bring it"
    );
    let alone = Desk::with(&[1, 1, 1, 2], "2+1");
    let mut desk = alone;
    desk.give(
        (1..=4)
            .map(|number| Input::DepotStores {
                depot: depot(number),
                stores: true,
            })
            .collect(),
    );
    desk.finish();
    assert!(desk.is_safe());
    assert!(desk.most.is_empty(), "{:?}", desk.most);
    assert_eq!(desk.heard(|what| *what == Happening::Pushing), 0);
}
