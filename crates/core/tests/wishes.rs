//! What users wish of a request beyond its deadline is kept while it runs.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test may stop at once"
)]

use std::time::Duration;

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
            destination: None,
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
}
