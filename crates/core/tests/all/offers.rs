//! Offers that would make an infeasible request feasible: each holds when it is accepted.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, DepotId, Record, RequestId, Timestamp};

/// A Friday, 08:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const RATE: u64 = 10 << 20;

struct Desk {
    mind: Mind,
    asked: u64,
}

impl Desk {
    /// A mind with so many depots of 10 MiB/s.
    fn new(settings: Settings, depots: u32) -> Self {
        let mut desk = Self {
            mind: Mind::new(settings),
            asked: 1,
        };
        for number in 1..=depots {
            desk.add(number, Some(ByteRate::new(RATE)));
        }
        desk
    }

    fn add(&mut self, number: u32, rate_max: Option<ByteRate>) {
        let (depot, capacity) = (DepotId::new(number), Bytes::mebi(1 << 20));
        self.give(Input::DepotAdded {
            depot,
            name: format!("depot-{number}"),
            capacity,
            rate_max,
        });
        self.give(Input::DepotUp {
            depot,
            free: capacity,
            rate_max,
        });
    }

    fn give(&mut self, input: Input) -> Outbox {
        let mut out = Outbox::default();
        self.mind.step(START, vec![input], &mut out);
        out
    }

    fn lend(&mut self, number: u32, terms: DepotTerms) {
        let depot = DepotId::new(number);
        self.give(Input::DepotLent { depot, terms });
    }

    /// Asks for a request over some depots. Returns what was offered where it was refused.
    fn ask(&mut self, code: &str, mebi: u64, secs: u64, via: &[u32]) -> Option<Vec<WouldBuy>> {
        self.asked += 1;
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: START + Duration::from_secs(secs),
            code: code.parse().unwrap(),
            via: via.iter().copied().map(DepotId::new).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let request = RequestId::new(self.asked);
        let out = self.give(Input::RequestSubmitted { request, spec });
        let state = self.mind.request(request).unwrap().state;
        let refused = out.events.into_iter().find_map(|event| match event.reason {
            Reason::Infeasible { would_buy, .. } => Some(would_buy),
            _ => None,
        });
        assert_eq!(state == RequestState::Refused, refused.is_some());
        refused
    }
}

fn named(offers: &[WouldBuy]) -> Vec<Vec<String>> {
    let names = offers.iter().filter_map(|offer| match offer {
        WouldBuy::NamedDepots { names, finish } => {
            assert!(*finish > START);
            Some(names.clone())
        }
        _ => None,
    });
    names.collect()
}

#[test]
fn a_depot_that_was_not_named_is_offered_the_cheapest_first() {
    let mut desk = Desk::new(Settings::default(), 3);
    desk.lend(
        2,
        DepotTerms {
            send_micro_usd: 500_000,
            ..DepotTerms::default()
        },
    );
    // 100 s over one depot.
    let offers = desk.ask("1+0", 1000, 60, &[1]).unwrap();
    assert_eq!(named(&offers), [["depot-3"], ["depot-2"]], "{offers:?}");
    let last = offers.last().unwrap();
    assert!(matches!(last, WouldBuy::Later { .. }), "{offers:?}");
    assert_eq!(desk.ask("1+0", 1000, 60, &[1, 3]), None);
    let taken = desk.mind.tale(RequestId::new(3)).unwrap();
    let (deadline, finish) = taken.answered.unwrap();
    assert!(finish <= deadline);
}

#[test]
fn depots_are_offered_together_where_none_suffices_alone() {
    let mut desk = Desk::new(Settings::default(), 6);
    let offers = desk.ask("1+0", 1000, 30, &[1]).unwrap();
    let names = named(&offers);
    assert_eq!(names, [["depot-2", "depot-3", "depot-4"]], "{offers:?}");
    let told = offers[0].to_string();
    assert!(
        told.starts_with("depots depot-2, depot-3 and depot-4 as well (safe by 2027-01-15 08:00:"),
        "{told}"
    );
    assert_eq!(desk.ask("1+0", 1000, 30, &[1, 2, 3]).map(|_| ()), Some(()));
    assert_eq!(desk.ask("1+0", 1000, 30, &[1, 2, 3, 4]), None);
}

#[test]
fn a_depot_that_fails_together_with_another_is_offered_only_where_that_helps() {
    let at = |domain: &str| DepotTerms {
        domain: domain.into(),
        ..DepotTerms::default()
    };
    let mut desk = Desk::new(Settings::default(), 5);
    for (number, domain) in [(1, "north"), (2, "south"), (3, "north"), (4, "north")] {
        desk.lend(number, at(domain));
    }
    let offers = desk.ask("1+1", 1000, 60, &[1, 2]).unwrap();
    for names in named(&offers) {
        let more = names.iter().map(|name| name[6..].parse().unwrap());
        let via: Vec<u32> = [1, 2].into_iter().chain(more).collect();
        assert_eq!(desk.ask("1+1", 1000, 60, &via), None, "{names:?}");
        desk.give(Input::RequestCancelled {
            request: RequestId::new(desk.asked),
        });
    }
}

#[test]
fn a_lost_depot_is_offered_when_its_return_would_do() {
    let mut desk = Desk::new(Settings::default(), 2);
    let depot = DepotId::new(2);
    let fault = Fault::Unreachable;
    desk.give(Input::DepotDown { depot, fault });
    let before = desk.mind.snapshot();
    let offers = desk.ask("1+0", 1000, 60, &[1, 2]).unwrap();
    let back =
        |offer: &WouldBuy| matches!(offer, WouldBuy::DepotBack { name, .. } if name == "depot-2");
    assert!(offers.iter().any(back), "{offers:?}");
    assert_eq!(desk.mind.depots()[1].state, DepotState::Down);
    assert_ne!(before, desk.mind.snapshot());
    desk.give(Input::DepotUp {
        depot,
        free: Bytes::mebi(1 << 20),
        rate_max: None,
    });
    assert_eq!(desk.ask("1+0", 1000, 60, &[1, 2]), None);
}

#[test]
fn hours_that_are_in_the_way_are_named() {
    let mut desk = Desk::new(Settings::default(), 2);
    let night = DepotTerms {
        windows: "20-06".parse().unwrap(),
        ..DepotTerms::default()
    };
    desk.lend(2, night);
    let offers = desk.ask("1+0", 1000, 60, &[1, 2]).unwrap();
    let open =
        |offer: &WouldBuy| matches!(offer, WouldBuy::DepotHours { name, .. } if name == "depot-2");
    assert!(offers.iter().any(open), "{offers:?}");
    desk.lend(2, DepotTerms::default());
    assert_eq!(desk.ask("1+0", 1000, 60, &[1, 2]), None);
}

#[test]
fn another_requests_slack_is_named_with_how_much_of_it() {
    let mut desk = Desk::new(Settings::default(), 1);
    assert_eq!(desk.ask("1+0", 400, 70, &[1]), None);
    let offers = desk.ask("1+0", 400, 72, &[1]).unwrap();
    let slack = offers.iter().find_map(|offer| match offer {
        WouldBuy::OthersSlack {
            request,
            later,
            deadline,
        } => Some((*request, *later, *deadline)),
        _ => None,
    });
    let first = RequestId::new(2);
    let later = Duration::from_secs(300);
    let deadline = START + Duration::from_secs(70) + later;
    assert_eq!(slack, Some((first, later, deadline)), "{offers:?}");
    desk.give(Input::DeadlineMoved {
        request: first,
        deadline,
    });
    assert_eq!(desk.ask("1+0", 400, 72, &[1]), None);
}

#[test]
fn a_reservation_on_the_way_out_is_offered_where_that_is_the_bottleneck() {
    let with = |egress: u64| Settings {
        egress: Some(ByteRate::new(egress)),
        ..Settings::default()
    };
    let mut desk = Desk::new(with(RATE), 2);
    let offers = desk.ask("1+0", 1000, 60, &[1, 2]).unwrap();
    assert_eq!(named(&offers).len(), 0);
    let reserved = offers.iter().find_map(|offer| match offer {
        WouldBuy::Reservation { on, rate, .. } if on.is_empty() => Some(rate.get()),
        _ => None,
    });
    let rate = reserved.unwrap_or_else(|| panic!("{offers:?}"));
    // 16.7 MiB/s are needed, 10 are there.
    assert!((6 << 20..8 << 20).contains(&rate), "{rate}");
    let mut desk = Desk::new(with(RATE + rate), 2);
    assert_eq!(desk.ask("1+0", 1000, 60, &[1, 2]), None);
}

#[test]
fn a_reservation_on_a_link_is_not_offered_beyond_what_its_depot_takes() {
    let is_reserved = |offers: &[WouldBuy]| {
        let on =
            |offer: &WouldBuy| matches!(offer, WouldBuy::Reservation { on, .. } if on == "depot-1");
        offers.iter().any(on)
    };
    let mut desk = Desk::new(Settings::default(), 1);
    let offers = desk.ask("1+0", 1000, 60, &[1]).unwrap();
    assert!(!is_reserved(&offers), "{offers:?}");
    let mut desk = Desk::new(Settings::default(), 0);
    desk.add(1, None);
    for _ in 0..8 {
        desk.give(Input::Throughput {
            depot: DepotId::new(1),
            bytes: Bytes::new(RATE),
            window: Duration::from_secs(1),
            saturated: true,
        });
    }
    let offers = desk.ask("1+0", 1000, 60, &[1]).unwrap();
    assert!(is_reserved(&offers), "{offers:?}");
}

#[test]
fn too_few_depots_are_answered_with_those_that_were_not_named() {
    let mut desk = Desk::new(Settings::default(), 3);
    let deadline = START + Duration::from_secs(600);
    let spec = RequestSpec {
        bytes: Bytes::mebi(100),
        files: 1,
        chunk_size: Bytes::mebi(4),
        deadline,
        code: "2+1".parse().unwrap(),
        via: vec![DepotId::new(2)],
        destinations: Vec::new(),
        release: ReleasePolicy::Never,
        best_effort: false,
    };
    let request = RequestId::new(1);
    desk.give(Input::RequestSubmitted { request, spec });
    let decisions = desk.mind.explain(request).unwrap();
    assert!(matches!(decisions[0].reason, Reason::TooFewDepots { .. }));
    let Reason::Offered { would_buy } = &decisions[1].reason else {
        panic!("{decisions:?}");
    };
    assert_eq!(named(would_buy), [["depot-1", "depot-3"]]);
    let told = posthaste_core::story::tell(&desk.mind.tale(request).unwrap());
    let last = told.last().unwrap();
    assert!(
        last.contains("it would take depots depot-1 and depot-3 as well"),
        "{told:?}"
    );
    assert_eq!(desk.ask("2+1", 100, 600, &[2, 1, 3]), None);
}

#[test]
fn offers_are_few_whatever_there_is() {
    let mut desk = Desk::new(Settings::default(), 1000);
    let offers = desk.ask("1+0", 100_000, 60, &[1, 2]).unwrap();
    assert!(offers.len() <= 8, "{offers:?}");
}

#[test]
fn every_offer_comes_back_as_it_was_written() {
    let (name, finish) = (String::from("alpha"), START);
    let names = vec![name.clone()];
    let request = RequestId::new(7);
    let later = Duration::from_secs(60);
    for offer in [
        WouldBuy::MoreSpace {
            bytes: Bytes::new(1),
        },
        WouldBuy::MoreDepots { count: 2 },
        WouldBuy::NamedDepots { names, finish },
        WouldBuy::DepotBack {
            name: name.clone(),
            finish,
        },
        WouldBuy::DepotHours { name, finish },
        WouldBuy::OthersSlack {
            request,
            later,
            deadline: finish,
        },
        WouldBuy::Reservation {
            on: String::new(),
            rate: ByteRate::new(5),
            from: finish,
            until: finish,
        },
    ] {
        assert_eq!(WouldBuy::from_bytes(&offer.to_bytes()), Ok(offer));
    }
    let (from, to) = (START, START + later);
    let moved = Reason::NewDeadline { from, to };
    assert_eq!(Reason::from_bytes(&moved.to_bytes()), Ok(moved));
}
