//! Depots that a request is pinned to hold their share of every chunk before it is safe.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{Mind, Settings, contract::*, story};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const REQUEST: RequestId = RequestId::new(1);
const CHUNK: Bytes = Bytes::mebi(4);
const AMPLE: Bytes = Bytes::mebi(1 << 20);

/// A mind whose depots store what they are sent after half a second, as long as they are up.
struct Desk {
    mind: Mind,
    now: Timestamp,
    due: Vec<(Timestamp, DepotId, Input)>,
    down: Vec<DepotId>,
    held: BTreeMap<DepotId, BTreeMap<ChunkIndex, FragmentIndex>>,
    happened: Vec<(Happening, Reason)>,
}

impl Desk {
    fn new(lent: &[DepotTerms]) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            due: Vec::new(),
            down: Vec::new(),
            held: BTreeMap::new(),
            happened: Vec::new(),
        };
        for (depot, terms) in (1..).map(DepotId::new).zip(lent) {
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name: depot.to_string(),
                    capacity: AMPLE,
                    rate_max: Some(ByteRate::new(10 << 20)),
                },
                Input::DepotLent {
                    depot,
                    terms: terms.clone(),
                },
                up(depot, AMPLE),
            ]);
        }
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        self.mind = Mind::restore(&self.mind.snapshot()).unwrap();
        let events = out.events.into_iter();
        self.happened
            .extend(events.map(|event| (event.happening, event.reason)));
        for command in out.commands {
            match command {
                Command::Send {
                    request,
                    depot,
                    chunk,
                    fragment,
                    ..
                } => {
                    let stored = Input::FragmentStored {
                        request,
                        depot,
                        chunk,
                        fragment,
                    };
                    let at = self.now + Duration::from_millis(500);
                    self.due.push((at, depot, stored));
                }
                Command::Inventory { request, depot, .. } => {
                    let held = self.held.entry(depot).or_default();
                    let held = held.iter().map(|(chunk, held)| (*chunk, *held)).collect();
                    let told = Input::DepotInventory {
                        depot,
                        request,
                        held,
                    };
                    self.due.push((self.now, depot, told));
                }
                _ => {}
            }
        }
    }

    fn ask(&mut self, spec: RequestSpec, wishes: Wishes, pinned: &[u32]) -> RequestState {
        self.give(vec![Input::RequestPinned {
            request: REQUEST,
            spec,
            optimizer: Method::Auto,
            wishes,
            purge_at: None,
            pinned: pinned.iter().copied().map(DepotId::new).collect(),
        }]);
        self.view().state
    }

    fn view(&self) -> RequestView {
        self.mind.request(REQUEST).unwrap()
    }

    /// Lets time pass until so many seconds after the start.
    fn pass_to(&mut self, secs: u64) {
        let end = START + Duration::from_secs(secs);
        loop {
            let due = self.due.iter().map(|(at, ..)| *at).min();
            let next = due.into_iter().chain(self.mind.next_wakeup()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            let now = self.now;
            let (ripe, rest) = self.due.drain(..).partition(|(at, ..)| *at <= now);
            self.due = rest;
            let ripe: Vec<(Timestamp, DepotId, Input)> = ripe;
            let mut inputs = Vec::new();
            for (_, depot, input) in ripe {
                if self.down.contains(&depot) {
                    continue;
                }
                if let Input::FragmentStored {
                    chunk, fragment, ..
                } = input
                {
                    let held = self.held.entry(depot).or_default();
                    held.insert(chunk, fragment);
                }
                inputs.push(input);
            }
            self.give(inputs);
        }
    }

    fn lose(&mut self, depot: u32) {
        let depot = DepotId::new(depot);
        self.down.push(depot);
        let fault = Fault::Unreachable;
        self.give(vec![Input::DepotDown { depot, fault }]);
    }

    fn bring_back(&mut self, depot: u32) {
        let depot = DepotId::new(depot);
        self.down.retain(|down| *down != depot);
        self.give(vec![up(depot, AMPLE)]);
    }

    fn held(&self, depot: u32) -> usize {
        let held = self.held.get(&DepotId::new(depot));
        held.map_or(0, BTreeMap::len)
    }

    /// Fragments of different numbers that lie anywhere, by chunk: the fewest.
    fn fewest(&self) -> usize {
        let mut all: BTreeMap<ChunkIndex, Vec<FragmentIndex>> = BTreeMap::new();
        for held in self.held.values() {
            for (chunk, fragment) in held {
                let known = all.entry(*chunk).or_default();
                if !known.contains(fragment) {
                    known.push(*fragment);
                }
            }
        }
        all.values().map(Vec::len).min().unwrap_or(0)
    }

    fn refusal(&self) -> String {
        let refused = self.happened.iter();
        let mut refused = refused.filter(|(happening, _)| *happening == Happening::Refused);
        refused.next_back().unwrap().1.to_string()
    }

    fn risks(&self) -> Vec<String> {
        let risks = self.happened.iter();
        let risks = risks.filter(|(happening, _)| matches!(happening, Happening::AtRisk { .. }));
        risks.map(|(_, reason)| reason.to_string()).collect()
    }
}

fn up(depot: DepotId, free: Bytes) -> Input {
    Input::DepotUp {
        depot,
        free,
        rate_max: Some(ByteRate::new(10 << 20)),
    }
}

fn spec(code: &str, mebi: u64, deadline_s: u64, depots: u32) -> RequestSpec {
    RequestSpec {
        bytes: Bytes::mebi(mebi),
        files: 1,
        chunk_size: CHUNK,
        deadline: START + Duration::from_secs(deadline_s),
        code: code.parse().unwrap(),
        via: (1..=depots).map(DepotId::new).collect(),
        destinations: Vec::new(),
        release: ReleasePolicy::Never,
        best_effort: false,
    }
}

fn landmark() -> DepotTerms {
    DepotTerms {
        is_landmark: true,
        ..DepotTerms::default()
    }
}

/// Four depots, and a fifth that the site has for want of others.
fn five() -> Vec<DepotTerms> {
    let mut lent = vec![DepotTerms::default(); 4];
    lent.push(landmark());
    lent
}

#[test]
fn a_pinned_depot_holds_a_fragment_of_every_chunk_though_others_come_first() {
    let mut plain = Desk::new(&five());
    plain.ask(spec("2+1", 200, 600, 5), Wishes::default(), &[]);
    plain.pass_to(60);
    assert_eq!(plain.view().state, RequestState::Safe);
    assert_eq!(plain.held(5), 0, "a landmark is for want of others");
    let mut desk = Desk::new(&five());
    // It need not be named twice.
    let state = desk.ask(spec("2+1", 200, 600, 4), Wishes::default(), &[5]);
    assert_eq!(state, RequestState::Moving);
    desk.pass_to(60);
    let view = desk.view();
    assert_eq!((view.state, desk.held(5)), (RequestState::Safe, 50));
    assert_eq!((desk.fewest(), view.pinned.len()), (3, 1));
    let sent: usize = (1..=5).map(|depot| desk.held(depot)).sum();
    assert_eq!(sent, 150, "and nothing is sent twice");
    assert_eq!(view.pinned, [DepotId::new(5)]);
}

#[test]
fn what_a_pinned_depot_lacks_waits_for_it_and_the_rest_does_not() {
    let mut desk = Desk::new(&five());
    desk.ask(spec("2+1", 400, 120, 5), Wishes::default(), &[5]);
    desk.pass_to(5);
    let before = desk.held(5);
    assert!((1..100).contains(&before), "{before} chunks");
    desk.lose(5);
    desk.pass_to(100);
    assert_eq!(desk.view().state, RequestState::Moving);
    assert_eq!(desk.fewest(), 3, "the code does without it");
    let risks = desk.risks();
    assert!(
        risks[0].contains("d5 is pinned and does not answer"),
        "{risks:?}"
    );
    // It has lost what it held.
    desk.held.remove(&DepotId::new(5));
    desk.bring_back(5);
    desk.pass_to(118);
    assert_eq!(desk.view().state, RequestState::Safe);
    assert_eq!(desk.held(5), 100);
    assert_eq!(desk.fewest(), 3);
}

#[test]
fn a_pinned_depot_that_fills_up_is_named_until_it_has_room() {
    let mut desk = Desk::new(&five());
    desk.ask(spec("2+1", 400, 300, 5), Wishes::default(), &[5]);
    desk.pass_to(2);
    desk.give(vec![up(DepotId::new(5), Bytes::mebi(4))]);
    desk.pass_to(100);
    assert_eq!(desk.view().state, RequestState::Moving);
    let risks = desk.risks();
    assert!(risks[0].contains("d5 is pinned and has"), "{risks:?}");
    let explained = desk.mind.explain(REQUEST).unwrap();
    let waits = |decision: &Decision| decision.what() == "waits for a pinned depot";
    assert_eq!(explained.iter().filter(|told| waits(told)).count(), 1);
    desk.give(vec![up(DepotId::new(5), AMPLE)]);
    desk.pass_to(200);
    assert_eq!((desk.view().state, desk.held(5)), (RequestState::Safe, 100));
}

#[test]
fn a_pinned_depot_that_is_removed_is_done_without_and_that_is_said() {
    let mut desk = Desk::new(&five());
    desk.ask(spec("2+1", 400, 120, 5), Wishes::default(), &[5]);
    desk.pass_to(5);
    let depot = DepotId::new(5);
    desk.down.push(depot);
    desk.give(vec![Input::DepotRemoved { depot }]);
    desk.held.remove(&depot);
    let said = desk.happened.iter();
    let said = said.filter(|(happening, _)| *happening == Happening::Unpinned);
    assert_eq!(said.count(), 1);
    desk.pass_to(60);
    assert_eq!((desk.view().state, desk.fewest()), (RequestState::Safe, 3));
    let story = story::tell(&desk.mind.tale(REQUEST).unwrap()).join("\n");
    assert!(story.contains("was pinned no longer"), "{story}");
    // One that is lost for good after all was safe, too.
    let mut desk = Desk::new(&five());
    desk.ask(spec("2+1", 40, 120, 5), Wishes::default(), &[5]);
    desk.pass_to(20);
    assert_eq!(desk.view().state, RequestState::Safe);
    desk.down.push(depot);
    desk.give(vec![Input::DepotRemoved { depot }]);
    desk.held.remove(&depot);
    assert_eq!(desk.view().pinned, []);
    desk.pass_to(60);
    assert_eq!((desk.view().state, desk.fewest()), (RequestState::Safe, 3));
}

#[test]
fn pins_that_cannot_be_kept_are_refused_with_the_depot_that_is_in_the_way() {
    let refused =
        |lent: Vec<DepotTerms>, change: &dyn Fn(&mut RequestSpec, &mut Wishes), pins: &[u32]| {
            let mut desk = Desk::new(&lent);
            let (mut spec, mut wishes) = (spec("2+1", 200, 600, 5), Wishes::default());
            change(&mut spec, &mut wishes);
            assert_eq!(desk.ask(spec, wishes, pins), RequestState::Refused);
            desk.refusal()
        };
    let forbid =
        |_: &mut RequestSpec, wishes: &mut Wishes| wishes.forbidden = vec![DepotId::new(5)];
    let said = refused(five(), &forbid, &[5]);
    assert!(said.contains("d5 is pinned and may hold none"), "{said}");
    let said = refused(five(), &|_, _| (), &[1, 2, 3, 4]);
    assert!(
        said.contains("4 depots are pinned and code 2+1 makes 3"),
        "{said}"
    );
    let deliver =
        |spec: &mut RequestSpec, _: &mut Wishes| spec.destinations = vec![DepotId::new(5)];
    let said = refused(five(), &deliver, &[5]);
    assert!(said.contains("d5 is pinned and a destination"), "{said}");
    let kin = DepotTerms {
        domain: "site".into(),
        ..DepotTerms::default()
    };
    let mut lent = five();
    (lent[0], lent[1]) = (kin.clone(), kin);
    let said = refused(lent, &|_, _| (), &[1, 2]);
    assert!(said.contains("the loss of 2 could lose data"), "{said}");
    // Without the first, three places are apart; with it, two.
    let mut lent = five();
    for (terms, domain) in lent.iter_mut().zip(["n,a", "n", "a", "x", "x"]) {
        terms.domain = domain.into();
    }
    let mut desk = Desk::new(&lent);
    let spec_of = || spec("2+1", 200, 600, 5);
    assert_eq!(
        desk.ask(spec_of(), Wishes::default(), &[]),
        RequestState::Moving
    );
    let said = refused(lent, &|_, _| (), &[1]);
    assert!(said.contains("2+1"), "{said}");
    // It has room for all but one of the 50 fragments of 2 MiB.
    let mut desk = Desk::new(&five());
    desk.give(vec![up(DepotId::new(5), Bytes::mebi(99))]);
    let full = desk.ask(spec("2+1", 200, 600, 5), Wishes::default(), &[5]);
    assert_eq!(full, RequestState::Refused);
    let said = desk.refusal();
    assert!(
        said.contains("d5 is pinned and has 99.0 MiB free for the 100.0 MiB"),
        "{said}"
    );
    let mut desk = Desk::new(&five());
    let unknown = desk.ask(spec("2+1", 200, 600, 5), Wishes::default(), &[9]);
    assert_eq!(unknown, RequestState::Refused);
}

#[test]
fn a_newcomer_is_promised_nothing_that_its_pinned_depot_is_too_slow_for() {
    // 50 chunks as 2+1 on four depots of 10 MiB/s take 8 s; the slow one alone takes 100 s for its 100 MiB.
    let mut desk = Desk::new(&five());
    let depot = DepotId::new(5);
    desk.give(vec![Input::DepotUp {
        depot,
        free: AMPLE,
        rate_max: Some(ByteRate::new(1 << 20)),
    }]);
    desk.give(vec![Input::DepotAdded {
        depot,
        name: "d5".into(),
        capacity: AMPLE,
        rate_max: Some(ByteRate::new(1 << 20)),
    }]);
    let plain = desk.ask(spec("2+1", 200, 60, 5), Wishes::default(), &[5]);
    assert_eq!(plain, RequestState::Refused);
    let said = desk.happened.last().unwrap().1.clone();
    let Reason::Infeasible { earliest, .. } = &said else {
        panic!("{said}");
    };
    let earliest = earliest.unwrap().since(START).as_secs();
    assert!((95..150).contains(&earliest), "{earliest} s");
}

#[test]
fn a_budget_pays_its_pinned_depots_first() {
    let dear = DepotTerms {
        send_micro_usd: 1_000_000,
        ..DepotTerms::default()
    };
    let lent = [vec![DepotTerms::default(); 4], vec![dear]].concat();
    let wishes = |micro_usd| Wishes {
        budget_micro_usd: Some(micro_usd),
        keep_until: Some(START),
        ..Wishes::default()
    };
    // 100 MiB there are 104.9 thousandths of a dollar, whatever is free elsewhere.
    let mut desk = Desk::new(&lent);
    let state = desk.ask(spec("2+1", 200, 600, 5), wishes(100_000), &[5]);
    assert_eq!(state, RequestState::Refused);
    assert!(desk.refusal().contains("$0.10"), "{}", desk.refusal());
    let mut desk = Desk::new(&lent);
    let state = desk.ask(spec("2+1", 200, 600, 5), wishes(105_000), &[5]);
    assert_eq!(state, RequestState::Moving);
    desk.pass_to(60);
    assert_eq!((desk.view().state, desk.held(5)), (RequestState::Safe, 50));
    assert!(desk.view().spent_micro_usd <= 105_000);
}

#[test]
fn what_a_destination_has_whole_lies_on_the_pinned_depot_too() {
    let mut lent = five();
    lent.push(DepotTerms::default());
    let mut desk = Desk::new(&lent);
    let mut wanted = spec("2+1", 400, 120, 5);
    wanted.destinations = vec![DepotId::new(6)];
    assert_eq!(
        desk.ask(wanted, Wishes::default(), &[5]),
        RequestState::Moving
    );
    desk.pass_to(4);
    desk.lose(5);
    desk.pass_to(60);
    assert_eq!(desk.view().state, RequestState::Moving);
    let whole = desk.held(6);
    assert!(whole > 20, "{whole} chunks went whole meanwhile");
    desk.bring_back(5);
    desk.pass_to(110);
    let view = desk.view();
    let is_safe = matches!(view.state, RequestState::Safe | RequestState::Delivered);
    assert!(is_safe, "{view:?}");
    assert_eq!(desk.held(5), 100);
}
