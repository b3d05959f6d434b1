//! Depots near the centre push on to those nearer the destination.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

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
    /// What really lies at each depot.
    held: BTreeMap<DepotId, BTreeSet<Piece>>,
    said: Vec<Event>,
    most: BTreeMap<(DepotId, DepotId), usize>,
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
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            open: Vec::new(),
            held: BTreeMap::new(),
            said: Vec::new(),
            most: BTreeMap::new(),
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
                | Command::Scatter { .. }
                | Command::Release { .. }
                | Command::Forget { .. }
                | Command::Fetch { .. }
                | Command::Quit { .. }
                | Command::Survey { .. }
                | Command::Settle { .. }
                | Command::Probe { .. }
                | Command::Solve { .. } => {}
            }
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
    let said = said.iter().find(|said| said.what.contains("pushed on to"));
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
