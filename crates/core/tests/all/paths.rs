//! Knowledge of paths: its sources, its accuracy, and how it ages.

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, Code, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const DEPOT: DepotId = DepotId::new(1);

struct Desk {
    mind: Mind,
    now: Timestamp,
    said: Vec<Event>,
}

impl Desk {
    /// Returns a desk with one depot that is up and declares `rate_max`.
    fn new(rate_max: Option<ByteRate>) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            said: Vec::new(),
        };
        desk.give(Input::DepotAdded {
            depot: DEPOT,
            name: "alpha".into(),
            capacity: Bytes::mebi(100_000),
            rate_max,
        });
        desk.give(Input::DepotUp {
            depot: DEPOT,
            free: Bytes::mebi(100_000),
            rate_max,
        });
        desk
    }

    fn give(&mut self, input: Input) {
        let mut out = Outbox::default();
        self.mind.step(self.now, vec![input], &mut out);
        self.said.extend(out.events);
    }

    /// Transfers carry these rates, one measurement a second.
    fn carry(&mut self, rates_mebi: &[u64]) {
        for &rate in rates_mebi {
            self.now = self.now + Duration::from_secs(1);
            self.give(Input::Throughput {
                depot: DEPOT,
                bytes: Bytes::mebi(rate),
                window: Duration::from_secs(1),
                saturated: true,
            });
        }
    }

    fn path(&self) -> PathView {
        self.mind.paths(self.now).remove(0)
    }

    /// Returns whether `mebi` by `deadline_s` from now are accepted.
    fn takes(&mut self, mebi: u64, deadline_s: u64) -> bool {
        let request = RequestId::new(self.mind.requests().count() as u64 + 1);
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: self.now + Duration::from_secs(deadline_s),
            code: Code::NONE,
            via: vec![DEPOT],
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        self.give(Input::RequestSubmitted { request, spec });
        self.mind.request(request).unwrap().state != RequestState::Refused
    }
}

#[test]
fn how_a_path_is_known_is_said() {
    let desk = Desk::new(None);
    assert_eq!(desk.path().knowledge, Knowledge::Assumed);
    assert_eq!(desk.path().measured_at, None);
    let mut desk = Desk::new(Some(ByteRate::new(100 << 20)));
    assert_eq!(desk.path().knowledge, Knowledge::Advertised);
    desk.carry(&[50, 60, 55]);
    let path = desk.path();
    assert_eq!(path.knowledge, Knowledge::Transfers);
    assert_eq!((path.transfers, path.probes), (3, 0));
    assert_eq!(path.measured_at, Some(desk.now));
    assert_eq!(path.score.samples, 2, "the first was judged by no forecast");
    assert!(path.score.error_permille().unwrap() > 0);
}

#[test]
fn a_path_unused_for_a_night_is_less_certain_and_its_requests_are_still_taken() {
    let mut desk = Desk::new(None);
    desk.carry(&[45, 50, 55].repeat(20));
    let fresh = desk.path().rates;
    desk.now = desk.now + Duration::from_secs(36_000);
    let aged = desk.path().rates;
    assert_eq!(fresh.p50, aged.p50);
    assert!(aged.p10 < fresh.p10.scaled(3, 4), "{fresh:?} {aged:?}");
    assert!(aged.p90 > fresh.p90.scaled(5, 4), "{fresh:?} {aged:?}");
    // 40 MiB/s for 100 s are less than p10 was last night, and more than it is this morning.
    assert!(aged.p10 < ByteRate::new(40 << 20));
    assert!(desk.takes(4000, 103));
    assert!(!desk.takes(10_000, 103), "nothing is refused any more");
}

#[test]
fn a_mind_that_slept_decides_as_one_that_was_restored() {
    let mut desk = Desk::new(None);
    desk.carry(&[45, 50, 55].repeat(5));
    let restored = Mind::restore(&desk.mind.snapshot()).unwrap();
    let later = desk.now + Duration::from_secs(7200);
    assert_eq!(restored.paths(later), desk.mind.paths(later));
}
