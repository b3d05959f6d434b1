//! Rate reserved for requests: asked for where it is needed and pays, counted on while it is there, given
//! back when it is not needed, and done without where it is not given.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{
    ByteRate, Bytes, ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId,
    Timestamp,
};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const HOME: DepotId = DepotId::new(1);
const FIRST: ReservationId = ReservationId::new(1);
const MEBI: u64 = 1 << 20;

/// A centre whose one destination takes 10 MiB/s, told so by measurements, and a circuit to it.
struct Centre {
    mind: Mind,
    now: Timestamp,
    events: Vec<Event>,
    commands: Vec<Command>,
}

impl Centre {
    fn new(lead_s: u64) -> Self {
        let mut centre = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            events: Vec::new(),
            commands: Vec::new(),
        };
        let (depot, capacity) = (HOME, Bytes::mebi(1 << 20));
        centre.give(Input::DepotAdded {
            depot,
            name: "home".into(),
            capacity,
            rate_max: None,
        });
        centre.give(Input::DepotUp {
            depot,
            free: capacity,
            rate_max: None,
        });
        for _ in 0..30 {
            centre.measure(10);
        }
        let terms = CircuitTerms {
            name: "lambda".into(),
            depots: vec![HOME],
            rate_max: ByteRate::new(100 * MEBI),
            lead: Duration::from_secs(lead_s),
            least: Duration::ZERO,
            hour_micro_usd: 3_600_000,
            ways: Vec::new(),
        };
        let circuit = CircuitId::new(1);
        centre.give(Input::CircuitOffered { circuit, terms });
        centre
    }

    /// A second passes in which so many MiB went to the destination.
    fn measure(&mut self, mebi: u64) {
        self.now = self.now + Duration::from_secs(1);
        self.give(Input::Throughput {
            depot: HOME,
            bytes: Bytes::mebi(mebi),
            window: Duration::from_secs(1),
            saturated: true,
        });
    }

    fn give(&mut self, input: Input) {
        let mut out = Outbox::default();
        self.mind.step(self.now, vec![input], &mut out);
        self.events.extend(out.events);
        self.commands.extend(out.commands);
    }

    fn tell(&mut self, news: News) {
        let reservation = FIRST;
        self.give(Input::ReservationTold { reservation, news });
    }

    /// A request of so many MiB, wanted in so many seconds.
    fn ask(&mut self, mebi: u64, secs: u64, wishes: Wishes) -> RequestState {
        let request = RequestId::new(1);
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(10),
            deadline: self.now + Duration::from_secs(secs),
            code: "1+0".parse().unwrap(),
            via: Vec::new(),
            destinations: vec![HOME],
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        self.give(Input::RequestAsked {
            request,
            spec,
            optimizer: "auto".parse().unwrap(),
            wishes,
        });
        self.mind.request(request).unwrap().state
    }

    fn reserve(&self) -> Option<(ByteRate, Timestamp, Timestamp)> {
        let mut commands = self.commands.iter().rev();
        commands.find_map(|command| match command {
            Command::Reserve {
                rate, from, until, ..
            } => Some((*rate, *from, *until)),
            _ => None,
        })
    }

    fn reserved(&self) -> usize {
        let commands = self.commands.iter();
        commands
            .filter(|command| matches!(command, Command::Reserve { .. }))
            .count()
    }

    fn given_back(&self) -> bool {
        let mut commands = self.commands.iter();
        commands.any(|command| matches!(command, Command::GiveBack { .. }))
    }

    fn steps(&self) -> Vec<Step> {
        let events = self.events.iter();
        let steps = events.filter_map(|event| match event.happening {
            Happening::Reservation { step } => Some(step),
            _ => None,
        });
        steps.collect()
    }

    /// Everything that was sent arrives.
    fn store_all(&mut self) {
        let sends: Vec<(RequestId, DepotId, ChunkIndex, FragmentIndex)> = self
            .commands
            .drain(..)
            .filter_map(|command| match command {
                Command::Send {
                    request,
                    depot,
                    chunk,
                    fragment,
                    ..
                } => Some((request, depot, chunk, fragment)),
                _ => None,
            })
            .collect();
        for (request, depot, chunk, fragment) in sends {
            self.give(Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            });
        }
    }

    fn rate(&self) -> ByteRate {
        self.mind.depots()[0].rate_p50
    }
}

fn wishing(reserve: Reserve) -> Wishes {
    Wishes {
        reserve,
        ..Wishes::default()
    }
}

#[test]
fn a_deadline_that_only_a_circuit_keeps_is_taken_and_the_circuit_asked_for() {
    let mut centre = Centre::new(60);
    // 3000 MiB at 10 MiB/s take 300 s.
    let state = centre.ask(3000, 200, Wishes::default());
    assert_eq!(state, RequestState::Moving);
    let (rate, from, until) = centre.reserve().unwrap();
    // 600 MiB go meanwhile, and 2400 in 140 s.
    assert!(
        (17 * MEBI..20 * MEBI).contains(&rate.get()),
        "the least that suffices, not {rate}"
    );
    assert_eq!(from.since(centre.now).as_secs(), 60);
    let deadline = centre.now + Duration::from_secs(200);
    assert!(until > deadline && until < deadline + Duration::from_secs(30));
    let view = &centre.mind.reservations()[0];
    assert_eq!(
        (view.reservation, view.state),
        (FIRST, ReservationState::Asked)
    );
    assert_eq!(centre.steps(), [Step::Asked]);
}

#[test]
fn without_wanting_one_it_is_refused_and_the_circuit_offered() {
    let mut centre = Centre::new(60);
    assert_eq!(
        centre.ask(3000, 200, wishing(Reserve::Never)),
        RequestState::Refused
    );
    assert_eq!(centre.reserve(), None);
    let offers = centre.events.iter().find_map(|event| match &event.reason {
        Reason::Infeasible { would_buy, .. } => Some(would_buy.clone()),
        _ => None,
    });
    let is_circuit =
        |offer: &WouldBuy| matches!(offer, WouldBuy::Circuit { name, .. } if name == "lambda");
    assert!(offers.unwrap().iter().any(is_circuit));
}

#[test]
fn what_takes_longer_to_set_up_than_it_saves_is_not_asked_for() {
    let mut centre = Centre::new(60);
    // 300 MiB take 30 s, and nothing is up by then.
    assert_eq!(
        centre.ask(300, 25, Wishes::default()),
        RequestState::Refused
    );
    assert_eq!(centre.reserve(), None);
}

#[test]
fn what_can_not_be_paid_is_not_asked_for() {
    for (budget, state) in [
        (1000, RequestState::Refused),
        (10_000_000, RequestState::Moving),
    ] {
        let mut centre = Centre::new(60);
        let wishes = Wishes {
            budget_micro_usd: Some(budget),
            ..Wishes::default()
        };
        // 150 s at a dollar a thousand seconds.
        assert_eq!(centre.ask(3000, 200, wishes), state);
        assert_eq!(centre.reserve().is_some(), state == RequestState::Moving);
    }
}

#[test]
fn it_is_counted_on_while_it_is_up_and_not_believed_to_be_the_path() {
    let mut centre = Centre::new(60);
    centre.ask(30_000, 600, Wishes::default());
    let (rate, ..) = centre.reserve().unwrap();
    centre.tell(News::Granted);
    let finish = |centre: &Centre| centre.mind.request(RequestId::new(1)).unwrap().finish;
    for _ in 0..3 {
        centre.measure(10);
    }
    let deadline = START + Duration::from_secs(630);
    assert!(
        finish(&centre).unwrap().p90 <= deadline,
        "it is counted on before it is up"
    );
    centre.tell(News::Up);
    assert_eq!(centre.rate(), rate);
    for _ in 0..20 {
        centre.measure(rate.get() / MEBI);
    }
    centre.tell(News::Down);
    let after = centre.rate().get();
    assert!(
        (9 * MEBI..11 * MEBI).contains(&after),
        "the path is believed to carry {after}"
    );
    centre.tell(News::Up);
    assert_eq!(centre.rate(), rate);
    centre.tell(News::Failed);
    assert!(centre.rate().get() < 11 * MEBI);
    assert!(centre.mind.reservations().is_empty());
    assert_eq!(
        centre.steps(),
        [
            Step::Asked,
            Step::Granted,
            Step::Up,
            Step::Down,
            Step::Up,
            Step::Ended
        ]
    );
}

#[test]
fn what_is_measured_before_it_is_said_to_be_up_teaches_nothing_of_the_path() {
    let mut centre = Centre::new(10);
    centre.ask(30_000, 600, Wishes::default());
    let (rate, from, _) = centre.reserve().unwrap();
    centre.tell(News::Granted);
    while centre.now < from {
        centre.measure(10);
    }
    // It is up, and the news of that are on their way.
    for _ in 0..3 {
        centre.measure(rate.get() / MEBI);
    }
    let believed = centre.rate().get();
    assert!(believed < 11 * MEBI, "{believed}");
}

#[test]
fn what_carries_less_than_was_reserved_is_not_counted_on_for_more() {
    let mut centre = Centre::new(60);
    centre.ask(30_000, 600, Wishes::default());
    let (rate, ..) = centre.reserve().unwrap();
    centre.tell(News::Granted);
    centre.tell(News::Up);
    for _ in 0..12 {
        centre.measure(30);
    }
    assert!(rate.get() > 40 * MEBI);
    assert_eq!(centre.rate().get(), 30 * MEBI);
}

#[test]
fn a_refusal_is_followed_by_what_would_fit_and_then_by_patience() {
    let mut centre = Centre::new(60);
    centre.ask(30_000, 600, wishing(Reserve::Always));
    centre.measure(10);
    let (rate, ..) = centre.reserve().unwrap();
    let fits = ByteRate::new(rate.get() / 2);
    centre.tell(News::Refused { fits: Some(fits) });
    for _ in 0..5 {
        centre.measure(10);
    }
    assert_eq!(centre.reserved(), 2, "what would fit is asked for");
    let (second, ..) = centre.reserve().unwrap();
    assert!(second <= fits);
    let reservation = ReservationId::new(2);
    let news = News::Refused { fits: None };
    centre.give(Input::ReservationTold { reservation, news });
    for _ in 0..50 {
        centre.measure(10);
    }
    assert_eq!(centre.reserved(), 2, "nobody is asked again at once");
    assert_eq!(
        centre.steps(),
        [Step::Asked, Step::Refused, Step::Asked, Step::Refused]
    );
}

#[test]
fn whoever_is_always_refused_is_asked_so_many_times_and_no_more() {
    let mut centre = Centre::new(1);
    centre.ask(1_000_000, 50_000, wishing(Reserve::Always));
    for number in 1..=20 {
        for _ in 0..4000 {
            if centre.mind.reservations().is_empty() {
                centre.measure(10);
            }
        }
        let reservation = ReservationId::new(number);
        let news = News::Refused { fits: None };
        centre.give(Input::ReservationTold { reservation, news });
    }
    assert_eq!(centre.reserved(), 8);
}

#[test]
fn it_is_given_back_in_the_moment_all_is_safe() {
    let mut centre = Centre::new(5);
    centre.ask(300, 20, Wishes::default());
    centre.tell(News::Granted);
    centre.tell(News::Up);
    for _ in 0..100 {
        centre.store_all();
    }
    let request = centre.mind.request(RequestId::new(1)).unwrap();
    assert_eq!(request.state, RequestState::Delivered);
    assert_eq!(centre.steps().last(), Some(&Step::Returned));
    // 300 MiB of it were used for no time at all.
    assert_eq!(request.spent_micro_usd, 0);
    centre.tell(News::Over);
    assert!(centre.mind.reservations().is_empty());
}

#[test]
fn it_is_given_back_when_its_request_is_cancelled_and_asked_for_again_until_it_is() {
    let mut centre = Centre::new(60);
    centre.ask(3000, 200, Wishes::default());
    let request = RequestId::new(1);
    centre.give(Input::RequestCancelled { request });
    assert!(centre.given_back());
    // Nobody answers: it is given back so many times, then forgotten.
    for _ in 0..100 {
        let Some(at) = centre.mind.next_wakeup() else {
            break;
        };
        centre.now = at;
        centre.give(Input::ProbeAsked { depot: HOME });
    }
    let backs = centre.commands.iter();
    let backs = backs.filter(|command| matches!(command, Command::GiveBack { .. }));
    assert_eq!(backs.count(), 5);
    assert!(centre.mind.reservations().is_empty());
}

#[test]
fn one_that_nobody_knows_is_given_back() {
    let mut centre = Centre::new(60);
    centre.tell(News::Granted);
    assert!(centre.given_back());
}

#[test]
fn a_driver_that_starts_again_takes_up_what_is_reserved() {
    let mut centre = Centre::new(60);
    centre.ask(3000, 200, Wishes::default());
    let asked = centre.reserve();
    centre.tell(News::Granted);
    centre.mind = Mind::restore(&centre.mind.snapshot()).unwrap();
    centre.commands.clear();
    centre.give(Input::DriverStarted);
    assert_eq!(centre.reserve(), asked, "under the same number, as it was");
    assert_eq!(centre.mind.reservations().len(), 1);
}

#[test]
fn the_story_tells_each_turn() {
    let mut centre = Centre::new(60);
    centre.ask(3000, 200, Wishes::default());
    centre.tell(News::Refused { fits: None });
    let story = centre.mind.story(RequestId::new(1)).unwrap().join("\n");
    assert!(story.contains("a reservation was asked for"), "{story}");
    assert!(
        story.contains("the reservation was refused: lambda has no room for it"),
        "{story}"
    );
}

/// A request that is late whatever it gets, and has rate on two circuits to the same place.
fn with_two_reservations() -> (Centre, RequestId, [ReservationId; 2]) {
    let mut centre = Centre::new(10);
    let (_, mut terms) = centre.mind.circuits().remove(0);
    (terms.name, terms.rate_max) = ("mu".into(), ByteRate::new(40 * MEBI));
    let circuit = CircuitId::new(2);
    centre.give(Input::CircuitOffered { circuit, terms });
    let request = RequestId::new(1);
    let spec = RequestSpec {
        bytes: Bytes::mebi(500_000),
        files: 1,
        chunk_size: Bytes::mebi(10),
        deadline: centre.now + Duration::from_secs(600),
        code: "1+0".parse().unwrap(),
        via: Vec::new(),
        destinations: vec![HOME],
        release: ReleasePolicy::Never,
        best_effort: true,
    };
    centre.give(Input::RequestAsked {
        request,
        spec,
        optimizer: "auto".parse().unwrap(),
        wishes: wishing(Reserve::Always),
    });
    for _ in 0..100 {
        centre.measure(100);
        for held in centre.mind.reservations() {
            let reservation = held.reservation;
            let news = match held.state {
                ReservationState::Asked => vec![News::Granted, News::Up],
                _ => vec![News::Unchanged],
            };
            for news in news {
                centre.give(Input::ReservationTold { reservation, news });
            }
        }
    }
    let held = centre.mind.reservations();
    let is_up = |held: &ReservationView| held.state == ReservationState::Up;
    assert!(held.len() >= 2 && held.iter().all(is_up), "{held:?}");
    let ids = [held[0].reservation, held[1].reservation];
    (centre, request, ids)
}

fn chunk(number: u32) -> ChunkIndex {
    ChunkIndex::new(number)
}

#[test]
fn data_goes_under_the_reservation_of_its_request_while_that_is_up() {
    let mut centre = Centre::new(10);
    centre.ask(30_000, 600, Wishes::default());
    let request = RequestId::new(1);
    let named = |centre: &Centre| {
        let mind = &centre.mind;
        mind.reservation_for(request, HOME, chunk(5), |_| true)
    };
    assert_eq!(named(&centre), None, "it is only asked for");
    for (news, named_now) in [
        (News::Granted, None),
        (News::Up, Some(FIRST)),
        (News::Down, None),
        (News::Up, Some(FIRST)),
    ] {
        centre.tell(news);
        assert_eq!(named(&centre), named_now, "{news:?}");
    }
    let mind = &centre.mind;
    let elsewhere = [
        mind.reservation_for(RequestId::new(2), HOME, chunk(5), |_| true),
        mind.reservation_for(request, DepotId::new(2), chunk(5), |_| true),
        mind.reservation_for(request, HOME, chunk(5), |_| false),
    ];
    assert_eq!(elsewhere, [None; 3]);
    centre.tell(News::Failed);
    assert_eq!(named(&centre), None, "it is over");
}

#[test]
fn several_reservations_get_chunks_in_proportion_and_a_chunk_always_the_same() {
    let (centre, request, ids) = with_two_reservations();
    let held = centre.mind.reservations();
    let of = |number: u32| {
        let mind = &centre.mind;
        mind.reservation_for(request, HOME, chunk(number), |_| true)
    };
    let total: u64 = held.iter().map(|held| held.rate.get()).sum();
    for (place, id) in ids.into_iter().enumerate() {
        // Also of the first few in a row, wherever they begin.
        for (from, count) in [(0, 1000), (17, 100), (500, 20)] {
            let mine = (from..from + count)
                .filter(|at| of(*at) == Some(id))
                .count() as u64;
            let due = u64::from(count) * held[place].rate.get() / total;
            assert!(mine.abs_diff(due) <= 3, "{mine} of {count}, not {due}");
        }
    }
    assert!((0..100).all(|at| of(at).is_some() && of(at) == of(at)));
    let only = |circuit: CircuitId| circuit == held[1].circuit;
    let one = centre
        .mind
        .reservation_for(request, HOME, chunk(3), only)
        .unwrap();
    let circuit = held.iter().find(|held| held.reservation == one).unwrap();
    assert!(only(circuit.circuit));
}

#[test]
fn what_can_not_be_asked_for_is_told_apart_from_what_has_no_room() {
    for (why, said) in [
        (
            Obstacle::NotKnown,
            "who sells lambda does not take our credential",
        ),
        (
            Obstacle::NotUnderstood,
            "who sells lambda can't do what is asked",
        ),
        (
            Obstacle::NotOpen,
            "lambda is not among the circuits any more",
        ),
    ] {
        let mut centre = Centre::new(60);
        centre.ask(30_000, 600, wishing(Reserve::Always));
        centre.measure(10);
        centre.tell(News::Unobtainable { why });
        let story = centre.mind.story(RequestId::new(1)).unwrap().join("\n");
        assert!(story.contains(said), "{story}");
        assert!(!story.contains("no room"), "{story}");
        for _ in 0..50 {
            centre.measure(10);
        }
        assert_eq!(centre.reserved(), 1, "nobody is asked again at once");
        assert_eq!(centre.steps(), [Step::Asked, Step::Unobtainable]);
    }
    // Of one that was granted it is the end.
    let mut centre = Centre::new(60);
    centre.ask(30_000, 600, Wishes::default());
    centre.tell(News::Granted);
    let why = Obstacle::NotKnown;
    centre.tell(News::Unobtainable { why });
    assert!(centre.mind.reservations().is_empty());
    assert_eq!(centre.steps().last(), Some(&Step::Ended));
}
