//! Wishes of a request beyond its deadline are kept while it runs.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

use crate::support::confirmed;
use posthaste_core::{Mind, Settings, contract::*, story};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

/// A Friday, 08:00 UTC.
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
const REQUEST: RequestId = RequestId::new(1);
const CHUNK: Bytes = Bytes::mebi(4);

/// A mind whose depots store what they are sent after half a second.
struct Desk {
    mind: Mind,
    now: Timestamp,
    due: Vec<(Timestamp, Input)>,
    sent: Vec<(Timestamp, DepotId, ChunkIndex, FragmentIndex)>,
    commands: Vec<Command>,
    happened: Vec<(Timestamp, Happening, Reason)>,
}

impl Desk {
    /// With a depot of 10 MiB/s on each of these terms.
    fn new(lent: &[DepotTerms]) -> Self {
        let mut desk = Self {
            mind: Mind::new(Settings::default()),
            now: START,
            due: Vec::new(),
            sent: Vec::new(),
            commands: Vec::new(),
            happened: Vec::new(),
        };
        for (depot, terms) in (1..).map(DepotId::new).zip(lent) {
            desk.give(vec![
                Input::DepotAdded {
                    depot,
                    name: format!("depot {depot}"),
                    capacity: Bytes::mebi(1 << 20),
                    rate_max: Some(ByteRate::new(10 << 20)),
                },
                Input::DepotLent {
                    depot,
                    terms: terms.clone(),
                },
                up(depot),
            ]);
        }
        desk
    }

    fn give(&mut self, inputs: Vec<Input>) {
        let mut out = Outbox::default();
        self.mind.step(self.now, inputs, &mut out);
        // What is known survives a snapshot.
        self.mind = Mind::restore(&self.mind.snapshot()).unwrap();
        for event in out.events {
            self.happened
                .push((event.at, event.happening, event.reason));
        }
        let answers = out.commands.iter();
        let answers: Vec<Input> = answers
            .filter_map(|command| confirmed(&self.mind, command))
            .collect();
        for command in out.commands {
            if let Command::Send {
                request,
                depot,
                chunk,
                fragment,
                ..
            } = command
            {
                self.sent.push((self.now, depot, chunk, fragment));
                let stored = Input::FragmentStored {
                    request,
                    depot,
                    chunk,
                    fragment,
                };
                self.due
                    .push((self.now + Duration::from_millis(500), stored));
            } else {
                self.commands.push(command);
            }
        }
        if !answers.is_empty() {
            self.give(answers);
        }
    }

    fn submit(&mut self, code: &str, mebi: u64, deadline_s: u64, wishes: Wishes) -> RequestState {
        let depots = u32::try_from(self.mind.depots().len()).unwrap();
        let spec = RequestSpec {
            bytes: Bytes::mebi(mebi),
            files: 1,
            chunk_size: CHUNK,
            deadline: self.now + Duration::from_secs(deadline_s),
            code: code.parse().unwrap(),
            via: (1..=depots).map(DepotId::new).collect(),
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        self.ask(spec, wishes)
    }

    fn ask(&mut self, spec: RequestSpec, wishes: Wishes) -> RequestState {
        self.give(vec![Input::RequestAsked {
            request: REQUEST,
            spec,
            optimizer: Method::Auto,
            wishes,
        }]);
        self.view().state
    }

    fn view(&self) -> RequestView {
        self.mind.request(REQUEST).unwrap()
    }

    /// Lets time pass: depots answer, and the mind is woken whenever it wants to be.
    fn pass(&mut self, secs: u64) {
        let end = self.now + Duration::from_secs(secs);
        loop {
            let due = self.due.iter().map(|(at, _)| *at).min();
            let next = due.into_iter().chain(self.mind.next_wakeup()).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            let now = self.now;
            let (ripe, rest) = self.due.drain(..).partition(|(at, _)| *at <= now);
            self.due = rest;
            let ripe: Vec<(Timestamp, Input)> = ripe;
            self.give(ripe.into_iter().map(|(_, input)| input).collect());
        }
    }

    /// Bytes of fragments sent from one moment to another, in a code of `data` data fragments.
    fn sent_between(&self, from_s: u64, to_s: u64, data: u64) -> u64 {
        let span = START + Duration::from_secs(from_s)..START + Duration::from_secs(to_s);
        let sent = self.sent.iter().filter(|(at, ..)| span.contains(at));
        sent.count() as u64 * CHUNK.get() / data
    }

    fn story(&self) -> String {
        story::tell(&self.mind.tale(REQUEST).unwrap()).join("\n")
    }
}

fn up(depot: DepotId) -> Input {
    Input::DepotUp {
        depot,
        free: Bytes::mebi(1 << 20),
        rate_max: Some(ByteRate::new(10 << 20)),
    }
}

fn alike(depots: usize) -> Vec<DepotTerms> {
    vec![DepotTerms::default(); depots]
}

fn limited(mebi_per_s: u64) -> Wishes {
    Wishes {
        rate_max: Some(ByteRate::new(mebi_per_s << 20)),
        ..Wishes::default()
    }
}

#[test]
fn what_is_sent_keeps_to_the_limit_and_a_user_may_change_it() {
    let mut desk = Desk::new(&alike(4));
    assert_eq!(
        desk.submit("2+1", 200, 600, limited(4)),
        RequestState::Moving
    );
    desk.pass(20);
    // 4 MiB/s for 20 s, and not a fragment less than that.
    let first = desk.sent_between(0, 20, 2) >> 20;
    assert!((80..=84).contains(&first), "{first} MiB");
    let rate_max = Some(ByteRate::new(8 << 20));
    let request = REQUEST;
    desk.give(vec![Input::RateLimited { request, rate_max }]);
    desk.pass(20);
    let second = desk.sent_between(20, 40, 2) >> 20;
    assert!((158..=164).contains(&second), "{second} MiB");
    let limit = Input::RateLimited {
        request,
        rate_max: None,
    };
    desk.give(vec![limit]);
    desk.pass(10);
    assert_eq!(desk.view().state, RequestState::Safe);
    let story = desk.story();
    assert!(
        story.contains("changed from 4.0 MiB/s to 8.0 MiB/s"),
        "{story}"
    );
    assert!(story.contains("was taken away"), "{story}");
}

#[test]
fn a_limit_counts_in_the_answer_and_the_limit_that_would_do_is_offered() {
    // 300 MiB coded.
    let mut desk = Desk::new(&alike(4));
    assert_eq!(
        desk.submit("2+1", 200, 60, limited(4)),
        RequestState::Refused
    );
    let would_buy = desk
        .happened
        .iter()
        .find_map(|(_, _, reason)| match reason {
            Reason::Infeasible { would_buy, .. } => Some(would_buy.clone()),
            _ => None,
        });
    let offered = would_buy.unwrap();
    let Some(WouldBuy::HigherLimit { rate, finish }) = offered.first() else {
        panic!("{offered:?}");
    };
    assert!(*finish <= START + Duration::from_secs(60));
    let mut taken = Desk::new(&alike(4));
    let wishes = Wishes {
        rate_max: Some(*rate),
        ..Wishes::default()
    };
    assert_eq!(taken.submit("2+1", 200, 60, wishes), RequestState::Moving);
    let forecast = taken.view().finish.unwrap().p90.since(START).as_secs();
    assert!((55..=60).contains(&forecast), "{forecast} s");
}

fn lent(send_usd: f64, keep_usd: f64) -> DepotTerms {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some dollars"
    )]
    let micro = |usd: f64| (usd * 1e6) as u64;
    DepotTerms {
        send_micro_usd: micro(send_usd),
        keep_micro_usd: micro(keep_usd),
        ..DepotTerms::default()
    }
}

fn budget(micro_usd: u64) -> Wishes {
    Wishes {
        budget_micro_usd: Some(micro_usd),
        // Nothing is kept, so that only sending costs.
        keep_until: Some(START),
        ..Wishes::default()
    }
}

#[test]
fn what_the_budget_does_not_pay_is_refused_with_what_would() {
    // 1000 MiB as 2+1 are 1500 MiB; over three depots of 10 MiB/s that takes 50 s, over six 25 s; at p10 a seventh more.
    let terms = [vec![lent(0.1, 0.0); 3], vec![lent(1.0, 0.0); 3]].concat();
    let gigabytes = 1500.0 * f64::from(1 << 20) / 1e9;
    let mut desk = Desk::new(&terms);
    assert_eq!(
        desk.submit("2+1", 1000, 300, budget(200_000)),
        RequestState::Moving
    );
    desk.pass(280);
    let view = desk.view();
    assert_eq!(view.state, RequestState::Safe);
    // Only the cheap ones, and all of the price.
    assert!(desk.sent.iter().all(|(_, depot, ..)| depot.get() <= 3));
    let spent = f64::from(u32::try_from(view.spent_micro_usd).unwrap()) / 1e6;
    assert!((spent - gigabytes * 0.1).abs() < 0.001, "${spent}");
    assert!(
        desk.story().contains("of its budget of $0.20"),
        "{}",
        desk.story()
    );

    let mut hasty = Desk::new(&terms);
    assert_eq!(
        hasty.submit("2+1", 1000, 45, budget(200_000)),
        RequestState::Refused
    );
    let (_, _, reason) = hasty.happened.last().unwrap().clone();
    let Reason::OverBudget {
        needed,
        finish: Some(finish),
        ..
    } = reason
    else {
        panic!("{reason}");
    };
    assert!(finish <= START + Duration::from_secs(45));
    let mut taken = Desk::new(&terms);
    assert_eq!(
        taken.submit("2+1", 1000, 45, budget(needed)),
        RequestState::Moving
    );
    taken.pass(45);
    assert_eq!(taken.view().state, RequestState::Safe);
    assert!(taken.view().spent_micro_usd <= needed);

    let mut poor = Desk::new(&terms);
    assert_eq!(
        poor.submit("2+1", 1000, 300, budget(100_000)),
        RequestState::Refused
    );
}

#[test]
fn keeping_counts_and_failures_are_paid_until_the_budget_ends() {
    let month = Wishes {
        keep_until: Some(START + Duration::from_secs(730 * 3600)),
        ..budget(150_000)
    };
    // A tenth of a dollar to keep 1.05 GB for a month.
    let mut desk = Desk::new(&vec![lent(0.0, 0.1); 3]);
    assert_eq!(
        desk.submit("2+1", 667, 300, month.clone()),
        RequestState::Moving
    );
    let mut dear = Desk::new(&vec![lent(0.0, 0.2); 3]);
    assert_eq!(dear.submit("2+1", 667, 300, month), RequestState::Refused);

    // Depots that take everything and keep nothing use up the budget, and that is said.
    let mut desk = Desk::new(&vec![lent(0.1, 0.0); 3]);
    assert_eq!(
        desk.submit("2+1", 1000, 600, budget(170_000)),
        RequestState::Moving
    );
    for _ in 0..300 {
        for (_, input) in &mut desk.due {
            if let Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            } = input.clone()
            {
                let fault = Fault::Corrupt;
                *input = Input::FragmentFailed {
                    request,
                    depot,
                    chunk,
                    fragment,
                    fault,
                };
            }
        }
        desk.pass(1);
        let again: Vec<Input> = (1..=3).map(DepotId::new).map(up).collect();
        desk.give(again);
    }
    assert!(desk.view().spent_micro_usd <= 170_000);
    desk.pass(290);
    let said = desk
        .happened
        .iter()
        .any(|(_, happening, _)| matches!(happening, Happening::AtRisk { .. }));
    assert!(said, "{}", desk.story());
    // Where nothing can end it any more, no end is told.
    desk.give((1..=3).map(down).collect());
    desk.pass(700);
    assert_eq!(desk.view().finish, None);
    let story = desk.story();
    assert!(!story.contains("it would now end"), "{story}");
}

/// A desk whose request of 40 MiB in code 1+3 is safe on four of five depots.
fn lazily(repair: Repair, release: ReleasePolicy) -> Desk {
    let mut desk = Desk::new(&alike(4));
    let wishes = Wishes {
        repair,
        ..Wishes::default()
    };
    assert_eq!(desk.submit("1+3", 40, 600, wishes), RequestState::Moving);
    desk.pass(60);
    assert_eq!(desk.view().state, RequestState::Safe, "{release:?}");
    // A fifth would take what is lost, were it wanted.
    desk.sent.clear();
    desk
}

fn down(depot: u32) -> Input {
    Input::DepotDown {
        depot: DepotId::new(depot),
        fault: Fault::Unreachable,
    }
}

#[test]
fn lazy_repair_waits_until_one_more_loss_is_all_that_is_survived() {
    let mut eager = lazily(Repair::Eager, ReleasePolicy::Never);
    eager.give(vec![down(1)]);
    assert_eq!(eager.view().state, RequestState::Moving);

    let mut lazy = lazily(Repair::Lazy, ReleasePolicy::Never);
    lazy.give(vec![down(1)]);
    assert_eq!(lazy.view().state, RequestState::Safe);
    let thinned = lazy.happened.last().unwrap();
    assert!(
        matches!(thinned.1, Happening::Thinned { chunks: 10 }),
        "{thinned:?}"
    );
    assert!(
        thinned.2.to_string().contains("any 2 depots"),
        "{thinned:?}"
    );
    lazy.give(vec![down(2)]);
    assert_eq!(lazy.view().state, RequestState::Moving);
    // Both are back and empty: all is made whole again.
    lazy.pass(30);
    let held = |depot| Input::DepotInventory {
        depot,
        request: REQUEST,
        held: Vec::new(),
    };
    for depot in [1, 2].map(DepotId::new) {
        lazy.give(vec![up(depot)]);
        lazy.give(vec![held(depot)]);
    }
    lazy.pass(30);
    assert_eq!(lazy.view().state, RequestState::Safe, "{}", lazy.story());
    assert_eq!(lazy.sent.len(), 20);
}

fn purged(desk: &mut Desk, deadline_s: u64, purge_s: u64) -> RequestState {
    let spec = RequestSpec {
        bytes: Bytes::mebi(100),
        files: 1,
        chunk_size: CHUNK,
        deadline: START + Duration::from_secs(deadline_s),
        code: "2+1".parse().unwrap(),
        via: (1..=3).map(DepotId::new).collect(),
        destinations: Vec::new(),
        release: ReleasePolicy::Never,
        best_effort: false,
    };
    desk.give(vec![Input::RequestAskedBy {
        request: REQUEST,
        spec,
        optimizer: Method::Auto,
        wishes: Wishes::default(),
        purge_at: START + Duration::from_secs(purge_s),
    }]);
    desk.view().state
}

#[test]
fn the_purge_binds_where_it_comes_first_and_explain_says_so() {
    let mut desk = Desk::new(&alike(3));
    assert_eq!(purged(&mut desk, 3600, 300), RequestState::Moving);
    assert_eq!(desk.view().spec.deadline, START + Duration::from_secs(300));
    assert!(
        desk.story()
            .contains("the purge of its source at 08:05:00Z comes before"),
        "{}",
        desk.story()
    );
    // The user moves a deadline that does not bind; then it becomes known that the purge comes later.
    let (request, deadline) = (REQUEST, START + Duration::from_secs(7200));
    desk.give(vec![Input::DeadlineMoved { request, deadline }]);
    assert_eq!(desk.view().spec.deadline, START + Duration::from_secs(300));
    let purge_at = Some(START + Duration::from_secs(9000));
    desk.give(vec![Input::PurgeMoved { request, purge_at }]);
    assert_eq!(desk.view().spec.deadline, deadline);
    assert!(
        desk.story()
            .contains("comes before the purge of its source"),
        "{}",
        desk.story()
    );

    let mut late = Desk::new(&alike(3));
    assert_eq!(purged(&mut late, 3600, 3), RequestState::Refused);
    let later = late
        .happened
        .iter()
        .any(|(_, _, reason)| reason.to_string().contains("a deadline of"));
    assert!(
        !later,
        "a later deadline is offered, and the source is gone by then"
    );
}

#[test]
fn a_source_that_was_purged_after_all_was_safe_costs_nothing_that_depots_hold() {
    let mut desk = Desk::new(&alike(4));
    assert_eq!(purged(&mut desk, 3600, 300), RequestState::Moving);
    desk.pass(60);
    assert_eq!(desk.view().state, RequestState::Safe);
    desk.pass(300);
    // A depot is lost, repair begins, and the source is not there any more.
    desk.give(vec![down(1)]);
    desk.pass(10);
    desk.give(vec![up(DepotId::new(1))]);
    desk.give(vec![Input::DepotInventory {
        depot: DepotId::new(1),
        request: REQUEST,
        held: Vec::new(),
    }]);
    let Some((_, depot, chunk, fragment)) = desk.sent.last().copied() else {
        panic!("nothing is sent again");
    };
    let fault = Fault::SourceVanished;
    desk.due.clear();
    desk.give(vec![Input::FragmentFailed {
        request: REQUEST,
        depot,
        chunk,
        fragment,
        fault,
    }]);
    assert_eq!(desk.view().state, RequestState::Released);
    assert!(
        desk.happened
            .iter()
            .any(|(_, happening, _)| *happening == Happening::Purged)
    );
    let forgets = desk
        .commands
        .iter()
        .any(|command| matches!(command, Command::Forget { .. }));
    assert!(!forgets, "the only copy is deleted");
}

/// A request whose source is to be removed once it is safe.
fn to_be_released() -> Desk {
    to_be_released_with(Wishes::default())
}

fn to_be_released_with(wishes: Wishes) -> Desk {
    let mut desk = Desk::new(&alike(3));
    let spec = RequestSpec {
        bytes: Bytes::mebi(40),
        files: 1,
        chunk_size: CHUNK,
        deadline: START + Duration::from_secs(600),
        code: "2+1".parse().unwrap(),
        via: (1..=3).map(DepotId::new).collect(),
        destinations: Vec::new(),
        release: ReleasePolicy::WhenSafe,
        best_effort: false,
    };
    assert_eq!(desk.ask(spec, wishes), RequestState::Moving);
    desk
}

fn count(desk: &Desk, wanted: fn(&Command) -> bool) -> usize {
    desk.commands
        .iter()
        .filter(|command| wanted(command))
        .count()
}

#[test]
fn a_release_that_fails_is_tried_again_later_and_later_and_not_for_ever() {
    let mut desk = to_be_released();
    let mut tried = Vec::new();
    for second in 0..10_000 {
        desk.pass(1);
        let releases = count(&desk, |command| matches!(command, Command::Release { .. }));
        if releases > tried.len() {
            tried.push(second);
            let (request, fault) = (REQUEST, Fault::Other);
            desk.give(vec![Input::SourceKept { request, fault }]);
        }
    }
    let pauses: Vec<i32> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960], "{}", desk.story());
    let said = desk
        .happened
        .iter()
        .filter(|(_, happening, _)| *happening == Happening::ReleaseFailed);
    assert_eq!(said.count(), 7);
}

#[test]
fn a_source_stays_once_depots_keep_its_data_no_longer() {
    let keep_until = Some(START + Duration::from_secs(300));
    let mut desk = to_be_released_with(Wishes {
        keep_until,
        ..Wishes::default()
    });
    let is_release = |command: &Command| matches!(command, Command::Release { .. });
    let mut last = None;
    for second in 0..3_000 {
        desk.pass(1);
        if count(&desk, is_release) > 0 {
            desk.commands.retain(|command| !is_release(command));
            last = Some(second);
            let (request, fault) = (REQUEST, Fault::Other);
            desk.give(vec![Input::SourceKept { request, fault }]);
        }
    }
    // It failed at some 10, 40, 100 and 220 s; the next try would be at 460 s.
    assert!(
        last.is_some_and(|last| (200..300).contains(&last)),
        "{last:?}\n{}",
        desk.story()
    );
}

#[test]
fn nothing_is_sent_once_depots_keep_it_no_longer() {
    for (keeps_s, is_sent_again) in [(300, false), (100_000, true)] {
        let mut desk = Desk::new(&alike(3));
        let keep_until = Some(START + Duration::from_secs(keeps_s));
        let wishes = Wishes {
            keep_until,
            ..Wishes::default()
        };
        desk.submit("2+1", 40, 100, wishes);
        desk.pass(400);
        let sent = desk.sent.len();
        assert!(sent > 0, "{}", desk.story());
        // Depots that come back hold nothing any more.
        for depot in (1..=3).map(DepotId::new) {
            let fault = Fault::Unreachable;
            desk.give(vec![Input::DepotDown { depot, fault }, up(depot)]);
            let (request, held) = (REQUEST, Vec::new());
            desk.give(vec![Input::DepotInventory {
                depot,
                request,
                held,
            }]);
        }
        desk.pass(400);
        assert_eq!(desk.sent.len() > sent, is_sent_again, "{}", desk.story());
    }
}

#[test]
fn a_release_that_can_never_succeed_ends_at_once_and_one_of_a_file_in_use_does_not() {
    for (fault, is_over) in [(Fault::Unremovable, true), (Fault::SourceBusy, false)] {
        let mut desk = to_be_released();
        let is_release = |command: &Command| matches!(command, Command::Release { .. });
        while !desk.commands.iter().any(is_release) {
            desk.pass(1);
        }
        let (request, what) = (REQUEST, String::from("can't remove /s/one"));
        let named = what.clone();
        desk.give(vec![Input::SourceFileKept {
            request,
            what: named,
        }]);
        desk.give(vec![Input::SourceKept { request, fault }]);
        assert_eq!(desk.view().source_kept, is_over, "{}", desk.story());
        let is_failure = |event: &&(_, Happening, Reason)| event.1 == Happening::ReleaseFailed;
        let (.., why) = desk.happened.iter().find(is_failure).unwrap();
        assert_eq!(*why, Reason::SourceFile { fault, what });
        // It is named once.
        assert_eq!(
            desk.story().matches("/s/one").count(),
            1,
            "{}",
            desk.story()
        );
        desk.pass(10_000);
        let releases = desk.commands.iter().filter(|command| is_release(command));
        assert_eq!(
            releases.count(),
            if is_over { 1 } else { 2 },
            "{}",
            desk.story()
        );
    }
}

#[test]
fn who_cancels_after_a_release_that_failed_half_way_loses_nothing() {
    let mut desk = to_be_released();
    for _ in 0..600 {
        desk.pass(1);
        if count(&desk, |command| matches!(command, Command::Release { .. })) > 0 {
            break;
        }
    }
    let (request, fault) = (REQUEST, Fault::Other);
    desk.give(vec![Input::SourceKept { request, fault }]);
    desk.give(vec![Input::RequestCancelled { request }]);
    desk.pass(60);
    let forgotten = count(&desk, |command| matches!(command, Command::Forget { .. }));
    assert_eq!(forgotten, 0, "depots may hold the only copy");
    assert_ne!(desk.view().state, RequestState::Cancelled);
}

#[test]
fn a_release_that_removed_some_says_nothing_of_what_was_lost_meanwhile_but_that() {
    for is_commanded in [false, true] {
        let mut desk = to_be_released();
        let is_release = |command: &Command| matches!(command, Command::Release { .. });
        while !desk.commands.iter().any(is_release) {
            desk.pass(1);
        }
        let request = REQUEST;
        if !is_commanded {
            // Some files went, and one could not.
            let fault = Fault::Other;
            desk.give(vec![Input::SourceKept { request, fault }]);
        }
        // Meanwhile a depot loses all that it had.
        let depot = DepotId::new(1);
        desk.give(vec![down(1)]);
        desk.give(vec![up(depot)]);
        let held = Vec::new();
        desk.give(vec![Input::DepotInventory {
            depot,
            request,
            held,
        }]);
        desk.due.clear();
        let releases = desk.commands.iter().filter(|command| is_release(command));
        assert_eq!(releases.count(), 1, "{}", desk.story());
        if is_commanded {
            desk.give(vec![Input::SourceReleased { request }]);
        } else {
            let Some((_, depot, chunk, fragment)) = desk.sent.last().copied() else {
                panic!("nothing is sent again");
            };
            let fault = Fault::SourceVanished;
            desk.give(vec![Input::FragmentFailed {
                request,
                depot,
                chunk,
                fragment,
                fault,
            }]);
        }
        let is_told = |(_, happening, reason): &(Timestamp, Happening, Reason)| {
            matches!(happening, Happening::Released) && matches!(reason, Reason::AllSafe { .. })
        };
        assert!(!desk.happened.iter().any(is_told), "{}", desk.story());
        let (_, last, reason) = desk.happened.last().unwrap();
        assert_eq!(
            (last, reason),
            (&Happening::Unsafe { chunks: 10 }, &Reason::Purged)
        );
        let view = desk.view();
        assert_eq!((view.state, view.chunks_safe), (RequestState::Released, 0));
    }
}
