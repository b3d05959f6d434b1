//! Each optimizer that can be asked for by name governs what a request sends, and says so.

use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, Code, DepotId, RequestId, Timestamp};

const REQUEST: RequestId = RequestId::new(1);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const RATE: ByteRate = ByteRate::new(20 << 20);
const CHUNK: Bytes = Bytes::mebi(1);

/// A mind with one depot that stores a fragment after another at its rate.
struct Desk {
    mind: Mind,
    now: Timestamp,
    open: Vec<Input>,
    /// Most that was in flight to a depot at once.
    most: usize,
}

impl Desk {
    fn new(optimizer: Method) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            open: Vec::new(),
            most: 0,
        };
        let depot = DepotId::new(1);
        let (capacity, rate_max) = (Bytes::mebi(4096), Some(RATE));
        let spec = RequestSpec {
            bytes: Bytes::mebi(1000),
            files: 1,
            chunk_size: CHUNK,
            deadline: START + Duration::from_secs(600),
            code: Code::NONE,
            via: vec![depot],
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        desk.give(vec![
            Input::DepotAdded {
                depot,
                name: "ash".into(),
                capacity,
                rate_max,
            },
            Input::DepotUp {
                depot,
                free: capacity,
                rate_max,
            },
            Input::RequestSubmittedWith {
                request: REQUEST,
                spec,
                optimizer,
            },
        ]);
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        let mut sent = BTreeMap::new();
        for command in out.commands {
            if let Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                let stored = Input::FragmentStored {
                    request,
                    depot,
                    chunk,
                    fragment,
                };
                assert_eq!(sent.insert(chunk, fragment), None, "{chunk:?} twice");
                self.open.push(stored);
            }
        }
        self.most = self.most.max(self.open.len());
    }

    /// Stores one fragment after another until nothing is open.
    fn run(&mut self) {
        let each = Duration::from_micros(CHUNK.get() * 1_000_000 / RATE.get());
        while !self.open.is_empty() {
            self.now = self.now + each;
            let oldest = self.open.remove(0);
            let measured = Input::Throughput {
                depot: DepotId::new(1),
                bytes: CHUNK,
                window: each,
                saturated: true,
            };
            self.give(vec![measured, oldest]);
        }
    }

    fn story(&self) -> Vec<String> {
        let decisions = self.mind.explain(REQUEST).unwrap();
        let lines = decisions.iter();
        lines
            .map(|decision| format!("{}: {}", decision.what(), decision.reason))
            .collect()
    }
}

#[test]
fn each_optimizer_brings_a_request_home_and_is_named() {
    for (name, method) in Method::NAMES {
        let mut desk = Desk::new(method);
        desk.run();
        let state = desk.mind.request(REQUEST).unwrap().state;
        assert_eq!(state, RequestState::Safe, "{name}");
        let story = desk.story();
        let named = format!("optimizer {name}: the user asked for it");
        let is_named = story.contains(&named);
        assert_eq!(is_named, method != Method::Auto, "{name}: {story:#?}");
        let chose = story.iter().any(|line| line.contains("at once: "));
        assert!(chose, "{name} says nothing of what it chose: {story:#?}");
    }
}

#[test]
fn what_was_fixed_is_never_exceeded() {
    for at_once in [1, 2, 5] {
        let fixed = format!("fixed:{at_once},1,1").parse().unwrap();
        let mut desk = Desk::new(fixed);
        desk.run();
        assert_eq!(desk.most, at_once);
        let noun = if at_once == 1 {
            "fragment"
        } else {
            "fragments"
        };
        let told = format!("ash: {at_once} {noun} at once: asked for");
        assert!(desk.story().contains(&told), "{:#?}", desk.story());
    }
}

#[test]
fn methods_that_search_say_what_they_measured() {
    let mut desk = Desk::new(Method::Falcon);
    desk.run();
    let story = desk.story();
    let compared = story.iter().any(|line| line.contains(" carried "));
    assert!(compared, "{story:#?}");
}
