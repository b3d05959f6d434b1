//! Reports about a request hold: before it begins, and after depots were lost.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use crate::support::confirmed;
use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const REQUEST: RequestId = RequestId::new(1);
const HOME: DepotId = DepotId::new(9);

/// A mind whose depots store at once what they are sent, and whose sources are removed when it says so.
struct Desk {
    mind: Mind,
    now: Timestamp,
    said: Vec<Event>,
}

impl Desk {
    /// Depots 1 to 3 and a destination, of rates that are advertised or that nobody knows.
    fn new(rate_max: Option<ByteRate>) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            said: Vec::new(),
        };
        for depot in (1..=3).map(DepotId::new).chain([HOME]) {
            let added = Input::DepotAdded {
                depot,
                name: format!("depot-{depot}"),
                capacity: Bytes::mebi(1 << 20),
                rate_max,
            };
            let up = Input::DepotUp {
                depot,
                free: Bytes::mebi(1 << 20),
                rate_max,
            };
            desk.give(vec![added, up], false);
        }
        desk
    }

    fn give(&mut self, mut inputs: Vec<Input>, stores: bool) {
        while !inputs.is_empty() {
            let mut out = Outbox::default();
            self.mind.step(self.now, inputs, &mut out);
            self.said.extend(out.events);
            let answers = out.commands.into_iter().filter(|_| stores);
            let mind = &self.mind;
            let answer = |command| confirmed(mind, &command).or_else(|| answer(command));
            inputs = answers.filter_map(answer).collect();
        }
    }

    fn ask(&mut self, spec: RequestSpec, stores: bool) -> RequestView {
        let asked = Input::RequestAsked {
            request: REQUEST,
            spec,
            optimizer: Method::default(),
            wishes: Wishes::default(),
        };
        self.give(vec![asked], stores);
        self.view()
    }

    fn view(&self) -> RequestView {
        self.mind.request(REQUEST).unwrap()
    }

    fn lose(&mut self, depot: u32) {
        let lost = Input::DepotDown {
            depot: DepotId::new(depot),
            fault: Fault::Unreachable,
        };
        self.give(vec![lost], false);
    }

    fn reason(&self, name: &str) -> String {
        let mut said = self.said.iter().rev();
        let found = said.find(|event| event.happening.name() == name);
        found.unwrap().reason.to_string()
    }
}

fn answer(command: Command) -> Option<Input> {
    match command {
        Command::Send {
            request,
            depot,
            chunk,
            fragment,
            ..
        } => Some(Input::FragmentStored {
            request,
            depot,
            chunk,
            fragment,
        }),
        Command::Release { request, .. } => Some(Input::SourceReleased { request }),
        _ => None,
    }
}

/// So many MiB in so many seconds, over three depots.
fn spec(mebi: u64, deadline_s: u64) -> RequestSpec {
    RequestSpec {
        bytes: Bytes::mebi(mebi),
        files: 1,
        chunk_size: Bytes::mebi(4),
        deadline: START + Duration::from_secs(deadline_s),
        code: "2+1".parse().unwrap(),
        via: (1..=3).map(DepotId::new).collect(),
        destinations: Vec::new(),
        release: ReleasePolicy::WhenSafe,
        best_effort: false,
    }
}

#[test]
fn what_can_not_be_had_any_more_is_at_risk_and_out_of_reach() {
    let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
    let view = desk.ask(spec(40, 600), true);
    assert_eq!(view.state, RequestState::Released);
    assert_eq!((view.at_risk, view.chunks_out_of_reach), (false, 0));
    desk.lose(1);
    let view = desk.view();
    assert!(
        view.is_unsafe && view.at_risk,
        "one more loss is not survived"
    );
    assert_eq!(view.chunks_out_of_reach, 0, "and this one is");
    assert_eq!(desk.mind.tally().at_risk, 1);
    desk.lose(2);
    let view = desk.view();
    assert_eq!((view.at_risk, view.chunks_out_of_reach), (true, 10));
    assert_eq!(desk.mind.pressing(), [REQUEST], "it is looked at first");
}

#[test]
fn what_nobody_has_any_more_is_not_said_to_be_repaired() {
    let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
    let one = RequestSpec {
        code: "1+0".parse().unwrap(),
        via: vec![DepotId::new(1)],
        ..spec(40, 600)
    };
    assert_eq!(desk.ask(one, true).state, RequestState::Released);
    desk.lose(1);
    assert_eq!(desk.view().chunks_out_of_reach, 10);
    let said = |name: &str| desk.said.iter().any(|event| event.happening.name() == name);
    assert!(said("unsafe") && !said("repairing"), "{:?}", desk.said);
    // What the others of a code have is made again.
    let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
    desk.ask(spec(40, 600), true);
    desk.lose(1);
    assert!(
        desk.said
            .iter()
            .any(|event| event.happening.name() == "repairing")
    );
}

#[test]
fn what_is_unsafe_again_before_its_source_went_is_forecast_anew() {
    let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
    let kept = RequestSpec {
        release: ReleasePolicy::Never,
        ..spec(40, 600)
    };
    assert_eq!(desk.ask(kept, true).state, RequestState::Safe);
    desk.lose(1);
    let view = desk.view();
    assert_eq!((view.state, view.is_unsafe), (RequestState::Moving, true));
    assert!(view.at_risk, "no finish of it is in sight");
    assert_eq!(view.chunks_out_of_reach, 0, "its source is there");
}

/// 4 MiB/s are assumed for sure, 1 GiB/s at most.
#[test]
fn what_is_taken_in_hope_is_at_risk_from_the_beginning() {
    let mut desk = Desk::new(None);
    let view = desk.ask(spec(2_000, 100), false);
    assert_eq!(view.state, RequestState::Moving);
    let finish = view.finish.unwrap();
    assert!(
        finish.p90 > view.spec.deadline && view.at_risk,
        "{finish:?}"
    );
    assert_eq!(desk.mind.tally().at_risk, 1);
}

#[test]
fn a_store_gathers_nothing_and_is_not_promised_to() {
    for (code, via, is_taken) in [("2+1", 3, false), ("1+0", 1, false), ("1+0", 0, true)] {
        let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
        let (depot, stores) = (HOME, true);
        desk.give(vec![Input::DepotStores { depot, stores }], false);
        let to_store = RequestSpec {
            code: code.parse().unwrap(),
            via: (1..=via).map(DepotId::new).collect(),
            destinations: vec![HOME],
            ..spec(40, 600)
        };
        let view = desk.ask(to_store, true);
        if is_taken {
            assert_eq!(view.state, RequestState::Delivered);
            continue;
        }
        assert_eq!(view.state, RequestState::Refused, "{code} over {via}");
        let said = desk.reason("refused");
        assert!(said.contains("gathers nothing"), "{said}");
    }
}

/// An answer to a few bytes takes as long as the way there is, whatever that carries.
#[test]
fn what_a_few_bytes_take_makes_no_path_slow() {
    for (bytes, is_slow) in [(Bytes::new(10), false), (Bytes::mebi(400), true)] {
        let mut desk = Desk::new(None);
        let measure = |desk: &mut Desk, bytes: Bytes, times: u32| {
            for _ in 0..times {
                desk.now = desk.now + Duration::from_secs(1);
                let taken = (1..=3).map(|depot| Input::Throughput {
                    depot: DepotId::new(depot),
                    bytes,
                    window: Duration::from_secs(1),
                    saturated: true,
                });
                desk.give(taken.collect(), false);
            }
            desk.mind
                .paths(desk.now)
                .iter()
                .map(|path| path.rates.p50)
                .min()
        };
        let before = measure(&mut desk, Bytes::mebi(100), 20);
        // It stays under way.
        let few = RequestSpec {
            bytes,
            ..spec(1, 600)
        };
        assert_eq!(desk.ask(few, false).state, RequestState::Moving);
        let after = measure(&mut desk, Bytes::new(300), 20);
        assert_eq!(
            after < before,
            is_slow,
            "{bytes}: {before:?}, then {after:?}"
        );
    }
}

/// A destination loses what was delivered there: of a source that is there it is sent again, and else nobody has it.
#[test]
fn what_is_lost_after_it_was_delivered_is_not_called_so() {
    for (release, lost) in [
        (ReleasePolicy::Never, RequestState::Moving),
        (ReleasePolicy::WhenSafe, RequestState::Released),
    ] {
        let mut desk = Desk::new(Some(ByteRate::new(10 << 20)));
        let asked = RequestSpec {
            code: "1+0".parse().unwrap(),
            via: Vec::new(),
            destinations: vec![HOME],
            release,
            ..spec(40, 600)
        };
        assert_eq!(desk.ask(asked, true).state, RequestState::Delivered);
        desk.lose(9);
        let away = desk.view();
        assert_eq!(away.state, RequestState::Delivered, "it may have it all");
        desk.now = desk.now + Duration::from_secs(60);
        let up = Input::DepotUp {
            depot: HOME,
            free: Bytes::mebi(1 << 20),
            rate_max: None,
        };
        let empty = Input::DepotInventory {
            depot: HOME,
            request: REQUEST,
            held: Vec::new(),
        };
        desk.give(vec![up, empty], false);
        let view = desk.view();
        assert_eq!(
            (view.state, view.is_unsafe, view.at_risk),
            (lost, true, true)
        );
        assert_eq!(view.delivery.unwrap().whole_at, None);
        let out_of_reach = if lost == RequestState::Released {
            10
        } else {
            0
        };
        assert_eq!(view.chunks_out_of_reach, out_of_reach);
        assert!(
            desk.reason("unsafe").contains("lost"),
            "{}",
            desk.reason("unsafe")
        );
    }
}
