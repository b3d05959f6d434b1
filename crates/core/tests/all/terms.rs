//! On which terms depots are lent: what fails together, and when it may be used.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

/// A Friday, 08:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const REQUEST: RequestId = RequestId::new(1);

struct Desk {
    mind: Mind,
    now: Timestamp,
    /// Depots that were sent a fragment of each chunk.
    sent: BTreeMap<ChunkIndex, Vec<DepotId>>,
    /// Fragments on their way.
    open: Vec<(DepotId, ChunkIndex, FragmentIndex)>,
    happened: Vec<(Happening, Reason)>,
}

impl Desk {
    /// A mind with a depot of 10 MiB/s on each of these terms.
    fn new(lent: &[DepotTerms]) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            sent: BTreeMap::new(),
            open: Vec::new(),
            happened: Vec::new(),
        };
        for (depot, terms) in (1..).map(DepotId::new).zip(lent) {
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name: format!("depot {depot}"),
                    capacity: Bytes::mebi(1 << 20),
                    rate_max: Some(ByteRate::new(10 << 20)),
                },
                Input::DepotLent {
                    depot,
                    terms: terms.clone(),
                },
                up(depot),
            ]);
        }
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        let told = out.events.into_iter();
        self.happened
            .extend(told.map(|event| (event.happening, event.reason)));
        for command in out.commands {
            if let Command::Send {
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                self.sent.entry(chunk).or_default().push(depot);
                self.open.push((depot, chunk, fragment));
            }
        }
    }

    /// Submits a request over all depots.
    fn submit(&mut self, code: &str, mebi: u64, deadline: Duration) -> RequestState {
        let depots = u32::try_from(self.mind.depots().len()).unwrap();
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: self.now + deadline,
            code: code.parse().unwrap(),
            via: (1..=depots).map(DepotId::new).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let request = REQUEST;
        self.give(vec![Input::RequestSubmitted { request, spec }]);
        self.mind.request(request).unwrap().state
    }

    /// Lets time pass until `then`, waking the mind when it asks for that.
    fn wait(&mut self, then: Timestamp) {
        while let Some(at) = self.mind.next_wakeup().filter(|at| *at <= then) {
            self.now = self.now.max(at);
            self.give(Vec::new());
        }
        self.now = then;
        self.give(Vec::new());
    }

    /// Lets all that is sent be stored, until nothing more is sent.
    fn store_all(&mut self) {
        while !self.open.is_empty() {
            let stored = std::mem::take(&mut self.open).into_iter();
            let stored = stored.map(|(depot, chunk, fragment)| Input::FragmentStored {
                request: REQUEST,
                depot,
                chunk,
                fragment,
            });
            self.now = self.now + Duration::from_secs(1);
            self.give(stored.collect());
        }
    }

    /// Depots that were sent something, so far.
    fn fed(&self) -> BTreeSet<u32> {
        self.sent
            .values()
            .flatten()
            .map(|depot| depot.get())
            .collect()
    }
}

fn up(depot: DepotId) -> Input {
    Input::DepotUp {
        depot,
        free: Bytes::mebi(1 << 20),
        rate_max: None,
    }
}

fn down(depot: u32) -> Vec<Input> {
    vec![Input::DepotDown {
        depot: DepotId::new(depot),
        fault: Fault::Unreachable,
    }]
}

fn at(domain: &str) -> DepotTerms {
    DepotTerms {
        domain: domain.into(),
        ..DepotTerms::default()
    }
}

fn hours(hours: &str) -> DepotTerms {
    DepotTerms {
        windows: hours.parse().unwrap(),
        ..DepotTerms::default()
    }
}

/// Lent when an owner says one hour and another a different one.
fn never() -> DepotTerms {
    DepotTerms {
        windows: hours("08-12").windows.meeting(&hours("20-22").windows),
        ..DepotTerms::default()
    }
}

#[test]
fn a_depot_that_never_opens_is_lost_as_any_other() {
    let mut desk = Desk::new(&[DepotTerms::default(), DepotTerms::default()]);
    desk.submit("1+1", 4, Duration::from_secs(36_000));
    let sent = desk.sent.clone();
    for (chunk, depots) in sent {
        for (fragment, depot) in (0..).zip(depots) {
            desk.give(vec![Input::FragmentStored {
                request: REQUEST,
                depot,
                chunk,
                fragment: posthaste_types::FragmentIndex::new(fragment),
            }]);
        }
    }
    let state = |desk: &Desk| desk.mind.request(REQUEST).unwrap().state;
    assert_eq!(state(&desk), RequestState::Safe);
    let depot = DepotId::new(1);
    let terms = never();
    desk.give(vec![Input::DepotLent { depot, terms }]);
    assert_eq!(state(&desk), RequestState::Safe);
    desk.give(down(1));
    assert_eq!(state(&desk), RequestState::Moving);
}

#[test]
fn what_fails_together_gets_one_fragment_of_a_chunk() {
    let mut desk = Desk::new(&[at("north"), at("north"), at("south"), at("south")]);
    assert_eq!(
        desk.submit("1+1", 400, Duration::from_secs(40)),
        RequestState::Moving
    );
    assert!(
        desk.sent.len() > 2 && desk.fed().len() > 2,
        "{:?}",
        desk.fed()
    );
    for (chunk, depots) in &desk.sent {
        let norths = depots.iter().filter(|depot| depot.get() <= 2).count();
        let souths = depots.len() - norths;
        assert!(norths <= 1 && souths <= 1, "{chunk}: {depots:?}");
    }
}

/// The names of depots in each of which a chunk has more than `most` fragments.
fn overfull(desk: &Desk, sites: &[DepotTerms], most: usize) -> Vec<String> {
    let mut found = BTreeSet::new();
    for depots in desk.sent.values() {
        let mut inside: BTreeMap<&str, usize> = BTreeMap::new();
        let terms = depots.iter().map(|depot| &sites[depot.get() as usize - 1]);
        for name in terms.flat_map(DepotTerms::domains) {
            *inside.entry(name).or_default() += 1;
        }
        let over = inside.into_iter().filter(|(_, count)| *count > most);
        found.extend(over.map(|(name, _)| name.to_owned()));
    }
    found.into_iter().collect()
}

#[test]
fn each_domain_of_a_depot_counts() {
    // Two sites and two providers, in all pairs: a chunk lies on a pair that shares neither.
    let sites = [
        at("north,aws"),
        at("north , ovh"),
        at("south,aws"),
        at("south,ovh"),
    ];
    let mut desk = Desk::new(&sites);
    let state = desk.submit("1+1", 400, Duration::from_secs(40));
    assert_eq!(state, RequestState::Moving);
    assert!(desk.sent.len() > 2, "{:?}", desk.sent);
    assert_eq!(overfull(&desk, &sites, 1), Vec::<String>::new());
    // Three fragments find no place.
    let mut desk = Desk::new(&sites);
    let state = desk.submit("2+1", 400, Duration::from_secs(400));
    assert_eq!(state, RequestState::Refused);
    let refused = desk.happened.iter().find_map(|(_, reason)| match reason {
        Reason::TooFewDomains { available, .. } => Some(*available),
        _ => None,
    });
    assert_eq!(refused, Some(2));
    // Two of a domain do where as many may be lost.
    let mut desk = Desk::new(&sites);
    let state = desk.submit("2+2", 400, Duration::from_secs(400));
    assert_eq!(state, RequestState::Moving);
    assert_eq!(overfull(&desk, &sites, 2), Vec::<String>::new());
}

#[test]
fn depots_that_share_different_domains_with_a_third_do_not_share_one() {
    // Whoever begins with the first has no place for the second fragment.
    let sites = [at("north,aws"), at("north"), at("aws")];
    let mut desk = Desk::new(&sites);
    let state = desk.submit("1+1", 40, Duration::from_secs(60));
    assert_eq!(state, RequestState::Moving);
    assert_eq!(desk.fed(), BTreeSet::from([2, 3]));
    assert_eq!(overfull(&desk, &sites, 1), Vec::<String>::new());
    let finish = desk.mind.request(REQUEST).unwrap().finish;
    assert!(finish.is_some(), "it is in sight");
    let crowded = desk.happened.iter();
    let crowded = crowded.filter(|(happening, _)| *happening == Happening::Crowded);
    assert_eq!(crowded.count(), 0);
}

#[test]
fn what_was_lost_with_its_depots_finds_its_places_apart_again() {
    let sites = [at(""), at(""), at("north,aws"), at("north"), at("aws")];
    let mut desk = Desk::new(&sites);
    let state = desk.submit("1+1", 40, Duration::from_secs(600));
    assert_eq!(state, RequestState::Moving);
    desk.store_all();
    assert_eq!(desk.fed(), BTreeSet::from([1, 2]));
    desk.sent.clear();
    desk.give([down(1), down(2)].concat());
    desk.store_all();
    desk.wait(desk.now + Duration::from_secs(60));
    desk.store_all();
    assert_eq!(desk.fed(), BTreeSet::from([4, 5]), "{:?}", desk.sent);
    assert_eq!(overfull(&desk, &sites, 1), Vec::<String>::new());
}

#[test]
fn a_landmark_is_no_place_for_the_rest_where_others_suffice() {
    let landmark = DepotTerms {
        is_landmark: true,
        ..DepotTerms::default()
    };
    let lent = [at("north,aws"), at("north"), at("aws"), landmark];
    let mut desk = Desk::new(&lent);
    desk.submit("1+1", 40, Duration::from_secs(600));
    assert_eq!(desk.fed(), BTreeSet::from([2, 3]));
}

#[test]
fn terms_that_change_are_heeded_by_name() {
    let sites = [at("north,aws"), at("south,aws"), at("west")];
    let mut desk = Desk::new(&sites);
    let state = desk.submit("1+1", 4000, Duration::from_secs(4000));
    assert_eq!(state, RequestState::Moving);
    assert_eq!(overfull(&desk, &sites, 1), Vec::<String>::new());
    assert!(
        desk.sent
            .values()
            .all(|depots| depots.contains(&DepotId::new(3)))
    );
}

#[test]
fn as_much_as_the_parity_covers_may_lie_together_and_no_more() {
    let sites = [at("north"), at("north"), at("south"), at("south")];
    assert_eq!(
        Desk::new(&sites).submit("2+2", 40, Duration::from_secs(600)),
        RequestState::Moving
    );
    let mut desk = Desk::new(&sites);
    assert_eq!(
        desk.submit("3+1", 40, Duration::from_secs(600)),
        RequestState::Refused
    );
    let refused = desk
        .happened
        .iter()
        .find(|(what, _)| *what == Happening::Refused);
    let reason = &refused.unwrap().1;
    assert!(
        matches!(reason, Reason::TooFewDomains { available: 2, .. }),
        "{reason}"
    );
}

#[test]
fn landmarks_are_fed_when_the_others_do_not_suffice() {
    let landmark = DepotTerms {
        is_landmark: true,
        ..DepotTerms::default()
    };
    let lent = [landmark.clone(), DepotTerms::default(), landmark];
    let mut desk = Desk::new(&lent);
    desk.submit("1+0", 100, Duration::from_secs(600));
    assert_eq!(desk.fed(), BTreeSet::from([2]));
    let mut desk = Desk::new(&lent);
    desk.submit("1+0", 1000, Duration::from_secs(60));
    assert_eq!(desk.fed(), BTreeSet::from([1, 2, 3]));
}

#[test]
fn a_landmark_is_not_fed_where_depots_that_open_later_suffice() {
    let landmark = DepotTerms {
        is_landmark: true,
        ..DepotTerms::default()
    };
    let hour = Duration::from_secs(3600);
    let lent = [landmark, hours("09-06")];
    let mut desk = Desk::new(&lent);
    assert_eq!(desk.submit("1+0", 100, hour * 3), RequestState::Moving);
    let fed = desk.mind.request(REQUEST).unwrap();
    let fed = fed.shares.iter().filter(|share| share.active);
    assert_eq!(fed.map(|share| share.depot.get()).collect::<Vec<_>>(), [2]);
    // By half past eight only the landmark does it.
    let mut desk = Desk::new(&lent);
    desk.submit("1+0", 100, hour / 2);
    assert_eq!(desk.fed(), BTreeSet::from([1]));
}

#[test]
fn nothing_is_sent_outside_the_hours_and_the_plan_counts_on_them() {
    let mut desk = Desk::new(&[hours("09-06")]);
    // 100 GiB take three hours. By 11:00 there are two, by 14:00 five.
    let hour = Duration::from_secs(3600);
    assert_eq!(desk.submit("1+0", 102_400, hour * 3), RequestState::Refused);
    let mut desk = Desk::new(&[hours("09-06")]);
    assert_eq!(desk.submit("1+0", 102_400, hour * 6), RequestState::Moving);
    desk.wait(START + hour - Duration::from_secs(1));
    assert!(desk.sent.is_empty());
    desk.wait(START + hour);
    assert!(!desk.sent.is_empty());
}

#[test]
fn hours_that_change_open_and_close_at_once() {
    let mut desk = Desk::new(&[hours("09-06")]);
    assert_eq!(
        desk.submit("1+0", 102_400, Duration::from_secs(6 * 3600)),
        RequestState::Moving
    );
    let depot = DepotId::new(1);
    let lent = |terms| vec![Input::DepotLent { depot, terms }];
    assert!(desk.sent.is_empty());
    desk.give(lent(hours("08-06")));
    let sent = desk.sent.len();
    assert!(sent > 0);
    desk.give(lent(never()));
    for &chunk in &desk.sent.keys().copied().collect::<Vec<_>>() {
        desk.give(vec![Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment: posthaste_types::FragmentIndex::new(0),
        }]);
    }
    desk.wait(START + Duration::from_secs(600));
    assert_eq!(desk.sent.len(), sent);
}

#[test]
fn a_depot_that_goes_by_its_hours_is_not_lost_unless_it_stays_away() {
    let mut desk = Desk::new(&[hours("00-09"), DepotTerms::default(), DepotTerms::default()]);
    desk.submit("1+1", 4, Duration::from_secs(36_000));
    let chunk = ChunkIndex::new(0);
    for (fragment, depot) in (0..).zip(desk.sent[&chunk].clone()) {
        desk.give(vec![Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment: posthaste_types::FragmentIndex::new(fragment),
        }]);
    }
    assert_eq!(
        desk.mind.request(REQUEST).unwrap().state,
        RequestState::Safe
    );
    let other = *desk.sent[&chunk]
        .iter()
        .find(|depot| depot.get() != 1)
        .unwrap();
    assert_eq!(desk.sent[&chunk].len(), 2);
    assert!(desk.sent[&chunk].contains(&DepotId::new(1)));
    desk.wait(START + Duration::from_secs(3590));
    desk.give(down(1));
    assert_eq!(
        desk.mind.request(REQUEST).unwrap().state,
        RequestState::Safe
    );
    // At midnight it should be back; five minutes later it is overdue.
    desk.wait(START + Duration::from_secs(16 * 3600 + 30));
    desk.give(down(1));
    assert_eq!(
        desk.mind.request(REQUEST).unwrap().state,
        RequestState::Safe
    );
    desk.wait(START + Duration::from_secs(16 * 3600 + 300));
    desk.give(down(1));
    assert_eq!(
        desk.mind.request(REQUEST).unwrap().state,
        RequestState::Moving
    );
    assert!(desk.sent[&chunk].len() > 2, "nothing is repaired: {other}");
}
