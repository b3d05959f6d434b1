//! Requests to depots and what leaves them cost what their owners say.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const AMPLE: Bytes = Bytes::mebi(1 << 20);
const CHUNK: Bytes = Bytes::mebi(4);

/// A mind with depots of 10 MiB/s that cost so much.
fn centre(depots: &[(DepotTerms, DepotPrices)]) -> Mind {
    let mut mind = Mind::new(Settings::default());
    for (depot, (terms, prices)) in (1..).map(DepotId::new).zip(depots) {
        let told = vec![
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
            Input::DepotPriced {
                depot,
                prices: prices.clone(),
            },
            Input::DepotUp {
                depot,
                free: AMPLE,
                rate_max: Some(ByteRate::new(10 << 20)),
            },
        ];
        mind.step(START, told, &mut Outbox::default());
    }
    Mind::restore(&mind.snapshot()).unwrap()
}

/// 100 chunks in 2+1, over all depots but where it goes, within ten minutes.
fn ask(mind: &mut Mind, number: u64, to: Option<u32>, wishes: Wishes) -> (RequestView, Outbox) {
    ask_by(mind, number, to, wishes, 600)
}

fn ask_by(
    mind: &mut Mind,
    number: u64,
    to: Option<u32>,
    wishes: Wishes,
    deadline_s: u64,
) -> (RequestView, Outbox) {
    let request = RequestId::new(number);
    let depots = u32::try_from(mind.depots().len()).unwrap();
    let spec = RequestSpec {
        bytes: Bytes::mebi(400),
        files: 1,
        chunk_size: CHUNK,
        deadline: START + Duration::from_secs(deadline_s),
        code: "2+1".parse().unwrap(),
        via: (1..=depots)
            .filter(|depot| Some(*depot) != to)
            .map(DepotId::new)
            .collect(),
        destinations: to.into_iter().map(DepotId::new).collect(),
        release: ReleasePolicy::Never,
        best_effort: false,
    };
    let mut out = Outbox::default();
    let asked = Input::RequestAsked {
        request,
        spec,
        optimizer: Method::Auto,
        wishes,
    };
    mind.step(START, vec![asked], &mut out);
    (mind.request(request).unwrap(), out)
}

fn budget(micro_usd: u64) -> Wishes {
    Wishes {
        budget_micro_usd: Some(micro_usd),
        keep_until: Some(START),
        ..Wishes::default()
    }
}

fn puts(micro_usd: u64) -> DepotPrices {
    DepotPrices {
        put_micro_usd: micro_usd,
        ..DepotPrices::default()
    }
}

fn free() -> (DepotTerms, DepotPrices) {
    (DepotTerms::default(), DepotPrices::default())
}

fn priced(prices: DepotPrices) -> (DepotTerms, DepotPrices) {
    (DepotTerms::default(), prices)
}

/// The depots that are fed.
fn fed(view: &RequestView) -> Vec<u32> {
    let fed = view.shares.iter().filter(|share| share.active);
    fed.map(|share| share.depot.get()).collect()
}

#[test]
fn a_budget_that_only_requests_break_is_refused() {
    // Each of 300 fragments is one PUT of 5.4 millionths, which count as six.
    let depots = vec![priced(puts(5_400)); 3];
    let (view, out) = ask(&mut centre(&depots), 1, None, budget(1_799));
    assert_eq!(view.state, RequestState::Refused);
    let refused = out.events.last().unwrap().reason.clone();
    let Reason::OverBudget { needed, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(needed, 1_800);
    let mut mind = centre(&depots);
    let (view, out) = ask(&mut mind, 1, None, budget(1_800));
    assert_eq!(view.state, RequestState::Moving);
    let sends = out.commands.iter();
    let sends = sends.filter(|command| matches!(command, Command::Send { .. }));
    let begun = u64::try_from(sends.count()).unwrap();
    assert!(begun > 0);
    assert_eq!(
        mind.request(RequestId::new(1)).unwrap().spent_micro_usd,
        6 * begun
    );
    assert_eq!(
        view.cost.send_micro_usd, 1_800,
        "a forecast counts them too"
    );
}

#[test]
fn of_depots_that_are_alike_the_cheaper_in_requests_and_egress_are_fed() {
    let egress = |micro_usd| DepotPrices {
        egress_micro_usd: micro_usd,
        ..DepotPrices::default()
    };
    let gets = DepotPrices {
        get_micro_usd: 400_000,
        ..DepotPrices::default()
    };
    for dear in [puts(400_000), gets, egress(90_000)] {
        let depots = [priced(dear.clone()), free(), free(), free()];
        let (view, _) = ask(&mut centre(&depots), 1, None, Wishes::default());
        assert_eq!(fed(&view), [2, 3, 4], "{dear:?}");
        // Where none costs anything the user's order decides.
        let depots = [free(), free(), free(), free()];
        let (view, _) = ask(&mut centre(&depots), 1, None, Wishes::default());
        assert_eq!(fed(&view), [1, 2, 3]);
    }
}

#[test]
fn what_leaves_for_the_destination_is_what_counts() {
    let to = |to: &str, micro_usd, otherwise| DepotPrices {
        egress_micro_usd: otherwise,
        egress_to: vec![EgressPrice {
            to: to.into(),
            micro_usd,
        }],
        ..DepotPrices::default()
    };
    // The first is dear in general and free to depot 5; the second the other way round; the third by its domain.
    let mut depots = vec![
        priced(to("d5", 0, 90_000)),
        priced(to("d5", 90_000, 0)),
        priced(to("north", 10_000, 90_000)),
        free(),
        free(),
    ];
    depots[4].0.domain = "north".into();
    // Over the direct way it is there in 40 s; in 30 depots are needed too, and the three cheapest are they.
    let near = |mind: &mut Mind, to| {
        let view = ask_by(mind, 1, to, Wishes::default(), 30).0;
        fed(&view)
    };
    assert_eq!(near(&mut centre(&depots), Some(5)), [1, 3, 4, 5]);
    assert_eq!(near(&mut centre(&depots), None), [2, 4, 5]);
}

#[test]
fn prices_of_today_count_for_what_is_begun_from_now_on() {
    let mut mind = centre(&vec![free(); 3]);
    let (view, _) = ask(&mut mind, 1, None, Wishes::default());
    assert_eq!((view.spent_micro_usd, view.cost), (0, Cost::default()));
    let depot = DepotId::new(1);
    let prices = DepotPrices {
        get_micro_usd: 2_000,
        ..puts(1_000)
    };
    let told = Input::DepotPriced { depot, prices };
    mind.step(START, vec![told], &mut Outbox::default());
    let view = mind.request(RequestId::new(1)).unwrap();
    // A third of 300 fragments, each a PUT and, of two in three, a GET.
    assert_eq!(view.cost.send_micro_usd, 100);
    assert_eq!(view.cost.read_micro_usd, 134);
}

#[test]
fn what_a_budget_does_not_bring_to_a_destination_is_said_at_once() {
    let egress = priced(DepotPrices {
        egress_micro_usd: 90_000,
        ..DepotPrices::default()
    });
    // What is taken there, or what leaves too many of those that hold it.
    for (holder, home, hindrance) in [
        (free(), priced(puts(1)), Some(Hindrance::Charges)),
        (egress.clone(), free(), Some(Hindrance::Unpaid)),
        (free(), free(), None),
    ] {
        let depots = [holder.clone(), holder.clone(), free(), home.clone()];
        let undelivered = |mind: &mut Mind, wishes: Wishes| {
            let (view, _) = ask(mind, 1, Some(4), wishes);
            assert_eq!(view.state, RequestState::Moving);
            view.delivery.unwrap().undelivered
        };
        let named = hindrance.map(|hindrance| Undelivered {
            depot: DepotId::new(4),
            hindrance,
        });
        let mut mind = centre(&depots);
        assert_eq!(undelivered(&mut mind, budget(1_000_000)), named);
        let story = mind.story(RequestId::new(1)).unwrap().join("\n");
        let is_told = story.contains("Nothing is delivered to d4: ");
        assert_eq!(is_told, named.is_some(), "{story}");
        assert_eq!(
            undelivered(&mut centre(&depots), Wishes::default()),
            None,
            "without a budget it costs what it costs"
        );
        let wishes = Wishes {
            deliver_by: Some(START + Duration::from_secs(1200)),
            ..budget(1_000_000)
        };
        let (view, out) = ask(&mut centre(&depots), 1, Some(4), wishes);
        let is_refused = view.state == RequestState::Refused;
        let said = out.events.first().unwrap();
        assert_eq!(is_refused, named.is_some(), "{said}");
    }
}
