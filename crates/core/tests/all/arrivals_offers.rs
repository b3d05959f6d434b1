//! Offers that would make a refused stage-in possible.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use posthaste_core::contract::*;
use posthaste_types::{ByteRate, RequestId};

use crate::support::arrivals::*;

/// Returns the offers that came with the refusal of a request.
fn offered(desk: &Desk, request: RequestId) -> Vec<WouldBuy> {
    let mut happened = desk.happened.iter();
    let refused = happened
        .find(|(of, happening, _)| *of == request && matches!(happening, Happening::Refused));
    match refused {
        Some((_, _, Reason::Infeasible { would_buy, .. })) => would_buy.clone(),
        other => panic!("not refused for its deadline: {other:?}"),
    }
}

#[test]
fn what_its_own_limit_makes_impossible_is_possible_with_the_limit_that_is_offered() {
    let mut desk = Desk::new([10, 10]);
    let slow = ArrivalSpec {
        rate_max: Some(ByteRate::new(1 << 20)),
        ..spec(30, None)
    };
    desk.ask(R1, slow.clone());
    let rate = offered(&desk, R1)
        .into_iter()
        .find_map(|offer| match offer {
            WouldBuy::HigherLimit { rate, .. } => Some(rate),
            _ => None,
        });
    let rate = rate.unwrap();
    assert!(rate < ByteRate::new(8 << 20), "{rate}");
    let quicker = ArrivalSpec {
        rate_max: Some(rate),
        ..slow
    };
    desk.ask(R2, quicker);
    assert_eq!(desk.said(R2)[0], "admitted");
}

#[test]
fn the_slack_of_another_that_is_offered_is_enough() {
    let mut desk = Desk::new([10, 10]);
    desk.ask(R1, spec(10, None));
    desk.ask(R2, spec(9, None));
    let later = offered(&desk, R2)
        .into_iter()
        .find_map(|offer| match offer {
            WouldBuy::OthersSlack {
                request, deadline, ..
            } => Some((request, deadline)),
            _ => None,
        });
    let (request, deadline) = later.unwrap();
    assert_eq!(request, R1);
    desk.give(vec![Input::DeadlineMoved { request, deadline }]);
    let third = RequestId::new(3);
    desk.ask(third, spec(9, None));
    assert_eq!(desk.said(third)[0], "admitted");
}

#[test]
fn a_source_that_is_lost_is_offered_where_it_would_do_and_a_reservation_where_none_is() {
    let mut desk = Desk::new([10, 1]);
    desk.ask(R2, spec(3000, None));
    while desk.asked.iter().any(|(_, source, _)| *source == A) {
        fault(&mut desk, A, Fault::Unreachable);
    }
    desk.pass(1, [0, 1]);
    desk.ask(R1, spec(60, None));
    let offers = offered(&desk, R1);
    assert!(
        offers.iter().any(
            |offer| matches!(offer, WouldBuy::SourceBack { name, .. } if *name == "source s1")
        ),
        "{offers:?}"
    );
    assert!(
        offers.iter().any(|offer| matches!(
            offer,
            WouldBuy::Reservation { on, rate, .. } if on == "source s2" && *rate < ByteRate::new(4 << 20)
        )),
        "{offers:?}"
    );
    // The least effort comes first, and waiting last.
    let place = |is: fn(&WouldBuy) -> bool| offers.iter().position(is).unwrap();
    let back = place(|offer| matches!(offer, WouldBuy::SourceBack { .. }));
    let reserved = place(|offer| matches!(offer, WouldBuy::Reservation { .. }));
    let later = place(|offer| matches!(offer, WouldBuy::Later { .. }));
    assert!(back < reserved && reserved < later, "{offers:?}");
    assert_eq!(later + 1, offers.len(), "{offers:?}");
}
