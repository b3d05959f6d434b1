//! By when a request is wanted at its destinations: answered on submission, and said when it is in danger.

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOUR: Duration = Duration::from_secs(3600);
const HOME: DepotId = DepotId::new(8);
const LAB: DepotId = DepotId::new(9);
const REQUEST: RequestId = RequestId::new(1);

struct Desk {
    mind: Mind,
    now: Timestamp,
    said: Vec<Event>,
}

impl Desk {
    /// Three depots and two destinations.
    fn new() -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            said: Vec::new(),
        };
        for depot in [1, 2, 3].map(DepotId::new).into_iter().chain([HOME, LAB]) {
            let added = Input::DepotAdded {
                depot,
                name: format!("depot-{depot}"),
                capacity: Bytes::mebi(4096),
                rate_max: Some(ByteRate::new(10 << 20)),
            };
            let up = Input::DepotUp {
                depot,
                free: Bytes::mebi(4096),
                rate_max: None,
            };
            desk.give(vec![added, up]);
        }
        desk
    }

    /// Gives the mind inputs; nothing that it sends ever arrives.
    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        self.said.extend(out.events);
    }

    /// Lets time pass.
    fn wait(&mut self, until: Timestamp) {
        while let Some(wakeup) = self.mind.next_wakeup().filter(|at| *at <= until) {
            self.now = self.now.max(wakeup);
            self.give(Vec::new());
        }
        self.now = until;
    }

    fn ask(&mut self, destinations: Vec<DepotId>, deliver_by: Timestamp) -> RequestView {
        let spec = RequestSpec {
            bytes: Bytes::mebi(64),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: START + HOUR,
            code: "2+1".parse().unwrap(),
            via: [1, 2, 3].map(DepotId::new).to_vec(),
            destinations,
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let wishes = Wishes {
            deliver_by: Some(deliver_by),
            ..Wishes::default()
        };
        self.give(vec![Input::RequestAsked {
            request: REQUEST,
            spec,
            optimizer: Method::Auto,
            wishes,
        }]);
        self.mind.request(REQUEST).unwrap()
    }

    fn answer(&self) -> &Event {
        let is_answer =
            |event: &&Event| matches!(event.happening, Happening::Admitted | Happening::Refused);
        self.said.iter().find(is_answer).unwrap()
    }

    fn said_at(&self, name: &str) -> Option<Timestamp> {
        let said = self
            .said
            .iter()
            .find(|event| event.happening.name() == name);
        said.map(|event| event.at)
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut desk = Desk::new();
    desk.now = START + HOUR / 2;
    desk.ask(vec![HOME], START + HOUR / 4);
    let deliver_by = START + HOUR / 4;
    assert_eq!(
        desk.answer().reason,
        Reason::Delivery {
            why: DeliveryReason::Passed { deliver_by }
        }
    );
    let mut desk = Desk::new();
    desk.ask(Vec::new(), START + HOUR);
    assert_eq!(
        desk.answer().reason,
        Reason::Delivery {
            why: DeliveryReason::NoDestination
        }
    );
}

#[test]
fn a_destination_that_is_away_is_named_and_offered_back_or_left_out() {
    let mut desk = Desk::new();
    let fault = Fault::Unreachable;
    desk.give(vec![Input::DepotDown { depot: LAB, fault }]);
    let view = desk.ask(vec![HOME, LAB], START + Duration::from_secs(30));
    assert_eq!(view.state, RequestState::Refused);
    let Reason::Delivery {
        why:
            DeliveryReason::Infeasible {
                name,
                hindrance,
                earliest,
                would_buy,
                ..
            },
    } = &desk.answer().reason
    else {
        panic!("{}", desk.answer());
    };
    assert_eq!((name.as_str(), *hindrance), ("depot-d9", Hindrance::Away));
    let earliest = earliest.unwrap();
    let is_there = |wanted: fn(&WouldBuy) -> bool| would_buy.iter().any(wanted);
    assert!(is_there(
        |offer| matches!(offer, WouldBuy::DestinationBack { name, .. } if name == "depot-d9")
    ));
    assert!(is_there(
        |offer| matches!(offer, WouldBuy::WithoutDestination { name, .. } if name == "depot-d9")
    ));

    // What was offered is taken.
    let mut desk = Desk::new();
    desk.give(vec![Input::DepotDown { depot: LAB, fault }]);
    let view = desk.ask(vec![HOME, LAB], earliest);
    assert_eq!(view.state, RequestState::Moving, "{}", desk.answer());
    let view = Desk::new().ask(vec![HOME, LAB], START + Duration::from_secs(30));
    assert_eq!(view.state, RequestState::Moving);
    assert!(view.delivery.unwrap().is_assumed);
}

#[test]
fn danger_to_a_delivery_is_said_before_it_is_late_and_apart_from_being_safe() {
    let mut desk = Desk::new();
    let by = START + Duration::from_secs(300);
    assert_eq!(desk.ask(vec![HOME], by).state, RequestState::Moving);
    let fault = Fault::Unreachable;
    desk.now = START + Duration::from_secs(20);
    desk.give(vec![Input::DepotDown { depot: HOME, fault }]);
    desk.wait(START + Duration::from_secs(400));
    let at_risk = desk.said_at("delivery-at-risk").unwrap();
    assert!(at_risk < START + Duration::from_secs(30), "{at_risk}");
    assert_eq!(desk.said_at("delivery-missed"), Some(by));
    assert_eq!(desk.said_at("missed"), None);
    let view = desk.mind.request(REQUEST).unwrap();
    assert!(view.delivery.unwrap().missed && !view.missed);

    // Wanted later, it is on its way again.
    let later = Some(START + HOUR * 2);
    desk.give(vec![Input::DeliveryMoved {
        request: REQUEST,
        deliver_by: later,
    }]);
    let delivery = desk.mind.request(REQUEST).unwrap().delivery.unwrap();
    assert_eq!((delivery.deliver_by, delivery.missed), (later, false));
    let told = desk.mind.story(REQUEST).unwrap().join("\n");
    for what in [
        "delivered by",
        "its delivery was said to be at risk",
        "it is away",
    ] {
        assert!(told.contains(what), "{what}: {told}");
    }
}

#[test]
fn a_pull_says_nothing_for_a_destination_be_it_the_only_one() {
    let mut desk = Desk::new();
    desk.ask(vec![HOME], START + HOUR);
    desk.give(vec![Input::Delivered { request: REQUEST }]);
    let view = desk.mind.request(REQUEST).unwrap();
    assert_eq!(view.state, RequestState::Moving);
    assert!(desk.said_at("delivered").is_none());
    let story = desk.mind.story(REQUEST).unwrap().join("\n");
    assert!(story.contains("somebody has all of it"), "{story}");
}
