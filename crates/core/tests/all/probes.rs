//! Probes: only where a request could use what nobody measured, one at a time, within a budget.

use std::time::Duration;

use posthaste_core::{Mind, Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const REQUEST: RequestId = RequestId::new(1);
const MEBI: u64 = 1 << 20;

fn depot(number: u32) -> DepotId {
    DepotId::new(number)
}

struct Desk {
    mind: Mind,
    now: Timestamp,
    probes: Vec<(DepotId, Bytes, Reason)>,
    crossings: Vec<(DepotId, DepotId, Bytes)>,
    sent: Vec<(
        DepotId,
        posthaste_types::ChunkIndex,
        posthaste_types::FragmentIndex,
    )>,
}

impl Desk {
    /// Depots that are up and advertise 20 MiB/s each.
    fn new(depots: u32) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            probes: Vec::new(),
            crossings: Vec::new(),
            sent: Vec::new(),
        };
        desk.arrive(depots);
        desk
    }

    fn arrive(&mut self, depots: u32) {
        for number in 1..=depots {
            let (capacity, rate_max) = (Bytes::mebi(100_000), Some(ByteRate::new(20 * MEBI)));
            self.give(vec![
                Input::DepotAdded {
                    depot: depot(number),
                    name: format!("depot-{number}"),
                    capacity,
                    rate_max,
                },
                Input::DepotUp {
                    depot: depot(number),
                    free: capacity,
                    rate_max,
                },
            ]);
        }
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        for command in out.commands {
            match command {
                Command::Probe {
                    depot,
                    budget,
                    reason,
                } => self.probes.push((depot, budget, reason)),
                Command::ProbeCrossing {
                    from, to, budget, ..
                } => self.crossings.push((from, to, budget)),
                Command::Send {
                    depot,
                    chunk,
                    fragment,
                    ..
                } => self.sent.push((depot, chunk, fragment)),
                Command::Abandon { .. }
                | Command::Recall { .. }
                | Command::Inventory { .. }
                | Command::Release { .. }
                | Command::Forget { .. }
                | Command::Fetch { .. }
                | Command::Prestage { .. }
                | Command::Quit { .. }
                | Command::Survey { .. }
                | Command::Settle { .. }
                | Command::Forward { .. }
                | Command::Follow { .. }
                | Command::Gather { .. }
                | Command::Mend { .. }
                | Command::Scatter { .. }
                | Command::Reserve { .. }
                | Command::Rearrange { .. }
                | Command::GiveBack { .. }
                | Command::ReserveSpace { .. }
                | Command::LeaveOut { .. }
                | Command::Renew { .. }
                | Command::ReleaseSpace { .. }
                | Command::Take { .. }
                | Command::Solve { .. } => {}
            }
        }
    }

    /// A request of `mebi`, coded 1+1, over all depots, that has hours.
    fn submit(&mut self, mebi: u64, depots: u32) {
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: Bytes::mebi(4),
            deadline: self.now + Duration::from_secs(36_000),
            code: "1+1".parse().unwrap(),
            via: (1..=depots).map(depot).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        self.give(vec![Input::RequestSubmitted {
            request: REQUEST,
            spec,
        }]);
    }

    /// Lets `seconds` pass: the depots that are fed store a little and are measured.
    fn live(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            let mut inputs = Vec::new();
            for (depot, chunk, fragment) in std::mem::take(&mut self.sent) {
                inputs.push(Input::FragmentStored {
                    request: REQUEST,
                    depot,
                    chunk,
                    fragment,
                });
                inputs.push(Input::Throughput {
                    depot,
                    bytes: Bytes::mebi(4),
                    window: Duration::from_secs(1),
                    saturated: true,
                });
            }
            self.give(inputs);
        }
    }

    /// Lets `seconds` pass: the depots that are fed are measured and store nothing yet.
    fn wait(&mut self, seconds: u64) {
        let fed: std::collections::BTreeSet<DepotId> =
            self.sent.iter().map(|(depot, _, _)| *depot).collect();
        for _ in 0..seconds {
            self.now = self.now + Duration::from_secs(1);
            let moved = fed.iter().map(|&depot| Input::Throughput {
                depot,
                bytes: Bytes::mebi(4),
                window: Duration::from_secs(1),
                saturated: true,
            });
            self.give(moved.collect());
        }
    }

    fn answer(&mut self, sent_mebi: u64, rate_mebi: u64, is_bound: bool) {
        let depot = self.probes.last().unwrap().0;
        self.give(vec![Input::Probed {
            depot,
            sent: Bytes::mebi(sent_mebi),
            bytes: Bytes::mebi(rate_mebi * 3),
            window: Duration::from_secs(3),
            is_bound,
        }]);
    }

    fn path(&self, number: u32) -> PathView {
        let mut paths = self.mind.paths(self.now).into_iter();
        paths.find(|path| path.depot == depot(number)).unwrap()
    }
}

#[test]
fn depots_that_a_request_does_not_feed_are_probed_one_after_the_other() {
    let mut desk = Desk::new(4);
    desk.submit(20_000, 4);
    desk.live(3);
    assert_eq!(desk.probes.len(), 1, "{:?}", desk.probes);
    let view = desk.mind.request(REQUEST).unwrap();
    let is_fed = |depot| {
        view.shares
            .iter()
            .any(|share| share.depot == depot && share.active)
    };
    let (first, budget, reason) = desk.probes[0].clone();
    assert!(!is_fed(first), "transfers measure what is fed");
    // Five seconds at the 20 MiB/s it says.
    assert_eq!(budget, Bytes::mebi(100));
    let said = Reason::PathStale {
        measured_at: None,
        budget,
    };
    assert_eq!(reason, said);
    desk.live(10);
    assert_eq!(desk.probes.len(), 1, "one at a time");
    desk.answer(60, 12, false);
    desk.live(2);
    assert_eq!(desk.probes.len(), 2, "then the next");
    let second = desk.probes[1].0;
    assert!(second != first && !is_fed(second));
    let number = first.get();
    assert_eq!(desk.path(number).knowledge, Knowledge::Probe);
    assert_eq!(desk.path(number).rates.p50, ByteRate::new(12 * MEBI));
    desk.answer(60, 15, false);
    desk.live(248);
    assert_eq!(desk.probes.len(), 2, "both were measured lately");
    desk.live(100);
    assert_eq!(desk.probes.len(), 3, "the first is stale again");
    assert_eq!(desk.probes[2].0, first);
    let explained = desk.mind.explain(REQUEST).unwrap();
    assert!(
        explained
            .iter()
            .any(|decision| decision.what().ends_with("probed"))
    );
}

#[test]
fn probes_cost_a_hundredth_of_what_is_sent_at_most() {
    let mut desk = Desk::new(12);
    // 10,000 MiB twice, as the code is 1+1: 200 MiB for probes.
    desk.submit(10_000, 12);
    desk.live(2);
    let mut answered = 0;
    while answered < desk.probes.len() {
        answered += 1;
        let (_, budget, _) = desk.probes[answered - 1];
        desk.answer(budget.get() / MEBI, 10, false);
        desk.live(2);
    }
    let spent = desk.probes.iter().map(|(_, budget, _)| budget.get());
    assert_eq!(spent.sum::<u64>(), 200 * MEBI);
    assert_eq!(desk.probes.len(), 2, "twelve depots want to be known");
}

#[test]
fn what_a_probe_did_not_spend_is_left_for_the_next() {
    let mut desk = Desk::new(4);
    desk.submit(5_500, 4);
    desk.live(2);
    assert_eq!(desk.probes[0].1, Bytes::mebi(100));
    desk.answer(30, 10, false);
    desk.live(2);
    // 110 - 30 = 80 of 110.
    assert_eq!(desk.probes[1].1, Bytes::mebi(80));
}

#[test]
fn small_requests_and_those_nearly_done_pay_for_no_probe() {
    let mut desk = Desk::new(4);
    desk.submit(150, 4);
    desk.live(20);
    assert_eq!(
        desk.probes,
        [],
        "a hundredth of 300 MiB ends inside slow start"
    );
    let mut desk = Desk::new(4);
    desk.mind = Mind::new(Settings {
        probe_lead: Duration::from_secs(7200),
        ..Settings::default()
    });
    desk.arrive(4);
    desk.submit(20_000, 4);
    desk.live(20);
    assert_eq!(desk.probes, [], "its answer would come too late");
}

#[test]
fn a_lower_bound_raises_what_is_believed_and_lowers_nothing() {
    let mut desk = Desk::new(4);
    desk.submit(20_000, 4);
    desk.live(2);
    let number = desk.probes[0].0.get();
    let believed = desk.path(number).rates;
    desk.answer(60, 2, true);
    assert_eq!(desk.path(number).rates, believed);
    assert_eq!(desk.path(number).knowledge, Knowledge::Advertised);
}

#[test]
fn a_person_has_any_path_probed_once_its_link_is_idle() {
    let mut desk = Desk::new(3);
    desk.give(vec![Input::ProbeAsked { depot: depot(2) }]);
    assert_eq!(desk.probes.len(), 1);
    assert_eq!(desk.probes[0].2, Reason::Asked);
    desk.give(vec![Input::ProbeAsked { depot: depot(3) }]);
    assert_eq!(desk.probes.len(), 1, "one at a time");
    desk.answer(10, 10, false);
    assert_eq!(desk.probes[1].0, depot(3));
    desk.answer(10, 10, false);
    desk.submit(2_000, 3);
    desk.live(2);
    let fed = desk.mind.request(REQUEST).unwrap().shares[0].depot;
    let before = desk.probes.len();
    desk.give(vec![Input::ProbeAsked { depot: fed }]);
    assert_eq!(desk.probes.len(), before, "its transfers tell more");
}

#[test]
fn a_probe_that_never_ends_and_a_driver_that_died_free_the_way_for_the_next() {
    let mut desk = Desk::new(4);
    desk.submit(40_000, 4);
    desk.live(2);
    assert_eq!(desk.probes.len(), 1);
    desk.live(70);
    assert_eq!(desk.probes.len(), 2, "forgotten after a minute");
    desk.give(vec![Input::DriverStarted]);
    desk.live(2);
    assert_eq!(desk.probes.len(), 3, "it died with the driver");
}

#[test]
fn a_window_that_a_probe_shared_is_only_a_lower_bound() {
    let mut desk = Desk::new(1);
    let carry = |desk: &mut Desk, mebi| {
        desk.now = desk.now + Duration::from_secs(1);
        desk.give(vec![Input::Throughput {
            depot: depot(1),
            bytes: Bytes::mebi(mebi),
            window: Duration::from_secs(1),
            saturated: true,
        }]);
    };
    (0..30).for_each(|_| carry(&mut desk, 10));
    let before = desk.path(1).rates.p50;
    desk.give(vec![Input::ProbeAsked { depot: depot(1) }]);
    (0..4).for_each(|_| carry(&mut desk, 3));
    assert_eq!(desk.path(1).rates.p50, before);
}

fn lend(desk: &mut Desk, number: u32, hours: Option<&str>, send_micro_usd: u64) {
    let terms = DepotTerms {
        windows: hours.map_or_else(Windows::default, |hours| hours.parse().unwrap()),
        send_micro_usd,
        ..DepotTerms::default()
    };
    let depot = depot(number);
    desk.give(vec![Input::DepotLent { depot, terms }]);
}

#[test]
fn a_depot_is_not_probed_outside_its_hours_nor_just_before_they_end() {
    // It is eight in the morning.
    let mut desk = Desk::new(3);
    lend(&mut desk, 3, Some("20-06"), 0);
    desk.submit(20_000, 3);
    desk.live(10);
    assert_eq!(desk.probes, []);
    desk.give(vec![Input::ProbeAsked { depot: depot(3) }]);
    desk.live(2);
    assert_eq!(desk.probes, [], "a person's question waits");
    lend(&mut desk, 3, None, 0);
    desk.live(2);
    assert_eq!(desk.probes.len(), 1);
    let mut desk = Desk::new(3);
    lend(&mut desk, 3, Some("07-08:01"), 0);
    desk.now = desk.now + Duration::from_secs(45);
    desk.submit(20_000, 3);
    desk.live(10);
    assert_eq!(desk.probes, [], "it closes in a quarter of a minute");
}

#[test]
fn probes_cost_a_hundredth_of_what_the_request_pays_at_most() {
    let mut desk = Desk::new(3);
    lend(&mut desk, 3, None, 1000);
    desk.submit(20_000, 3);
    desk.live(10);
    assert_eq!(desk.probes, [], "who pays nothing pays for no probe");
    let mut desk = Desk::new(4);
    for (number, price) in [(1, 100_000), (2, 100_000), (3, 1_000_000), (4, 1_000_000)] {
        lend(&mut desk, number, None, price);
    }
    // 40,000 MiB at ten cents a gigabyte: a hundredth of that buys 40 MiB at ten times the price.
    desk.submit(20_000, 4);
    desk.live(3);
    let budget = desk.probes[0].1;
    assert!((39..=40).contains(&(budget.get() / MEBI)), "{budget}");
    desk.answer(20, 10, false);
    desk.live(3);
    let budget = desk.probes[1].1;
    assert!(
        (19..=20).contains(&(budget.get() / MEBI)),
        "what was left: {budget}"
    );
    desk.answer(19, 10, false);
    desk.live(3);
    assert_eq!(desk.probes.len(), 2, "all is spent");
}

/// Depots 1 and 2 are near; 3 and 4 are of a level nearer the destination.
fn two_levels() -> Desk {
    let mut desk = Desk::new(4);
    for number in 3..=4 {
        let (depot, level) = (depot(number), 2);
        desk.give(vec![Input::DepotLevelled { depot, level }]);
    }
    desk
}

#[test]
fn paths_between_depots_are_probed_when_no_other_is_stale_and_within_the_same_budget() {
    let mut desk = two_levels();
    desk.submit(30_000, 4);
    desk.wait(3);
    let mut answered = 0;
    while answered < desk.probes.len() {
        answered += 1;
        desk.answer(20, 10, false);
        desk.wait(2);
    }
    assert_eq!(answered, 2, "what is fed is measured by that");
    assert_eq!(
        desk.crossings.len(),
        1,
        "one at a time: {:?}",
        desk.crossings
    );
    let (from, to, budget) = desk.crossings[0];
    assert!(from.get() <= 2 && to.get() >= 3, "{from} to {to}");
    desk.wait(10);
    assert_eq!(desk.crossings.len(), 1);
    let probed = |(from, to, budget): (DepotId, DepotId, Bytes)| Input::CrossingProbed {
        from,
        to,
        sent: budget,
        bytes: Bytes::mebi(30),
        window: Duration::from_secs(3),
        is_bound: false,
        round_trip: Some(Duration::from_millis(40)),
    };
    assert!(desk.mind.crossings(desk.now).is_empty());
    desk.give(vec![probed((from, to, budget))]);
    let known = desk.mind.crossings(desk.now);
    assert_eq!(known.len(), 1);
    assert_eq!(known[0].rates.p50, ByteRate::new(10 * MEBI));
    assert_eq!(known[0].knowledge, Knowledge::Probe);
    assert_eq!(known[0].round_trip, Some(Duration::from_millis(40)));
    // Each path once, until the hundredth is used up.
    for _ in 0..20 {
        desk.wait(2);
        let last = *desk.crossings.last().unwrap();
        desk.give(vec![probed(last)]);
    }
    let paths: std::collections::BTreeSet<_> = desk
        .crossings
        .iter()
        .map(|(from, to, _)| (*from, *to))
        .collect();
    assert_eq!(paths.len(), desk.crossings.len(), "none twice");
    let spent: u64 = desk.crossings.iter().map(|(_, _, bytes)| bytes.get()).sum();
    assert!(spent + 40 * MEBI <= 600 * MEBI, "{spent}");
}

#[test]
fn how_far_depots_are_says_their_order_and_their_level() {
    let mut desk = Desk::new(4);
    let auto = |number| Input::DepotLevelled {
        depot: depot(number),
        level: 0,
    };
    desk.give(vec![auto(2), auto(3)]);
    let far = |number, millis| Input::DistanceTold {
        depot: depot(number),
        round_trip: Duration::from_millis(millis),
    };
    desk.give(vec![far(1, 60), far(2, 50), far(3, 5)]);
    let between = |from, to, millis| Input::CrossingProbed {
        from: depot(from),
        to: depot(to),
        sent: Bytes::ZERO,
        bytes: Bytes::ZERO,
        window: Duration::ZERO,
        is_bound: true,
        round_trip: Some(Duration::from_millis(millis)),
    };
    desk.give(vec![between(2, 1, 10), between(1, 3, 55)]);
    let ranked = desk.mind.ranked(Some(depot(1)), desk.now);
    let order: Vec<(u32, u8)> = ranked
        .iter()
        .map(|view| (view.depot.get(), view.level))
        .collect();
    assert_eq!(
        order,
        [(3, 1), (2, 2), (4, 1)],
        "what is not known comes last"
    );
    assert_eq!(ranked[0].to_destination, Some(Duration::from_millis(55)));
}
