//! Depots that belong to an owner hold something of that owner's requests alone.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use std::{collections::BTreeSet, time::Duration};

use crate::support::desk::Desk;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{DepotId, RequestId};

const REQUEST: RequestId = RequestId::new(1);

/// Three depots, of which the third is alice's own.
fn desk() -> Desk {
    let mut desk = Desk::new(Settings::default());
    desk.give(own(3, "alice"));
    desk
}

fn own(number: u32, owner: &str) -> Input {
    Input::DepotOwned {
        depot: DepotId::new(number),
        owner: owner.into(),
    }
}

/// Submits a request of this owner over these depots.
fn ask(desk: &mut Desk, owner: &str, mebi: u64, deadline_s: u64, via: &[u32]) {
    let spec = desk.spec(mebi, deadline_s, via);
    let wishes = Wishes {
        owner: owner.into(),
        ..Wishes::default()
    };
    desk.give(Input::RequestAsked {
        request: REQUEST,
        spec,
        optimizer: Method::Auto,
        wishes,
    });
}

fn used(desk: &Desk) -> BTreeSet<u32> {
    desk.sent.iter().map(|(_, depot)| depot.get()).collect()
}

#[test]
fn only_its_owner_s_requests_are_sent_there() {
    for (owner, expected) in [
        ("alice", BTreeSet::from([1, 3])),
        ("bob", BTreeSet::from([1])),
        ("", BTreeSet::from([1])),
    ] {
        let mut desk = desk();
        ask(&mut desk, owner, 400, 600, &[3, 1]);
        desk.wait(Duration::from_secs(2));
        assert!(used(&desk).is_subset(&expected), "{owner}");
        let view = desk.mind.request(REQUEST).unwrap();
        let shares: BTreeSet<u32> = view.shares.iter().map(|share| share.depot.get()).collect();
        assert_eq!(shares, expected, "{owner}");
        assert_eq!(view.state, RequestState::Moving, "{owner}");
    }
}

#[test]
fn what_only_a_depot_of_somebody_else_could_take_is_refused() {
    let mut desk = desk();
    ask(&mut desk, "bob", 400, 600, &[3]);
    assert!(desk.sent.is_empty());
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(view.state, RequestState::Refused);
}

#[test]
fn a_destination_or_a_pin_of_somebody_else_is_as_one_that_is_not_there() {
    let depot = DepotId::new(3);
    for (is_pin, owner, is_refused) in [
        (true, "bob", true),
        (false, "bob", true),
        (true, "alice", false),
        (false, "alice", false),
    ] {
        let mut desk = desk();
        let mut spec = desk.spec(40, 600, &[1, 2]);
        let mut pinned = vec![depot];
        if !is_pin {
            spec.destinations = std::mem::take(&mut pinned);
        }
        desk.give(Input::RequestPinned {
            request: REQUEST,
            spec,
            optimizer: Method::Auto,
            wishes: Wishes {
                owner: owner.into(),
                ..Wishes::default()
            },
            purge_at: None,
            pinned,
        });
        let answer = desk.answer(REQUEST).cloned();
        let is_unknown = answer == Some(Reason::UnknownDepot { depot });
        assert_eq!(is_unknown, is_refused, "{owner}: {answer:?}");
    }
}

#[test]
fn no_offer_names_a_depot_of_somebody_else() {
    let offered = |owner: &str| {
        let mut desk = desk();
        desk.give(own(2, "alice"));
        // Two depots more would do.
        ask(&mut desk, owner, 4000, 250, &[1]);
        let view = desk.mind.request(REQUEST).unwrap();
        assert_eq!(view.state, RequestState::Refused);
        format!("{:?}", desk.answer(REQUEST).unwrap())
    };
    assert!(offered("alice").contains("depot-"), "{}", offered("alice"));
    assert!(!offered("bob").contains("depot-3"), "{}", offered("bob"));
    assert!(!offered("bob").contains("depot-2"), "{}", offered("bob"));
}

#[test]
fn a_depot_that_comes_to_belong_to_an_owner_gets_nothing_more_of_others() {
    let mut desk = Desk::new(Settings::default());
    ask(&mut desk, "bob", 4000, 6000, &[1, 3]);
    desk.give(own(3, "alice"));
    let before = desk.sent.len();
    desk.wait(Duration::from_secs(30));
    let later: BTreeSet<u32> = desk.sent[before..]
        .iter()
        .map(|(_, depot)| depot.get())
        .collect();
    assert!(!later.contains(&3), "{later:?}");
}

#[test]
fn a_snapshot_has_the_owner() {
    let desk = desk();
    let mind = Mind::restore(&desk.mind.snapshot()).unwrap();
    assert_eq!(mind, desk.mind);
    let mut later = Desk {
        mind,
        ..Desk::new(Settings::default())
    };
    later.now = desk.now;
    ask(&mut later, "bob", 400, 600, &[3]);
    let view = later.mind.request(REQUEST).unwrap();
    assert_eq!(view.state, RequestState::Refused);
}
