//! Account of a request's slack, in one sentence.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

use posthaste_types::Timestamp;

use crate::contract::{ArrivalTale, Cause, Charge, Decision, Happening, Party};
use crate::explain::story::{Tale, words};

/// Share of the largest cause below which a cause is not named, as its divisor.
const NAMED_SHARE: i64 = 50;
/// Most causes that are named, the largest first.
const NAMED_MAX: usize = 6;

/// Item that cost or won slack.
struct Item {
    name: String,
    cost_micros: i64,
}

/// Returns whether a decision was that a deadline is in danger, or missed.
pub(super) fn is_alarm(decision: &Decision) -> bool {
    let happening = &decision.happening;
    matches!(
        happening,
        Some(Happening::AtRisk { .. } | Happening::Missed)
    )
}

/// Facts for the sentence.
struct Account<'a> {
    /// Deadline at the time of the answer, and the p90 finish in it.
    answered: Option<(Timestamp, Timestamp)>,
    /// Present deadline.
    deadline: Timestamp,
    charges: &'a [Charge],
    has_ended: bool,
    /// True if it ended, or its end is in sight.
    has_end: bool,
    /// Phrase for choices by people or the mind, other than rates and losses.
    course: &'a str,
}

/// Returns the sentence about a request's slack; none if nothing was answered or nothing moved.
pub(super) fn told(tale: &Tale) -> Option<String> {
    let account = Account {
        answered: tale.answered,
        deadline: tale.view.spec.deadline,
        charges: &tale.charges,
        has_ended: tale.view.safe_at.is_some(),
        has_end: tale.view.safe_at.is_some() || tale.view.finish.is_some(),
        course: "the choice of depots and ways",
    };
    account.told(&|party| match party {
        Party::Depot { depot } => tale.name_of(Some(depot)),
        Party::Source { source } => source.to_string(),
    })
}

/// Returns the sentence about a stage-in's slack.
pub(super) fn told_of_arrival(tale: &ArrivalTale) -> Option<String> {
    let account = Account {
        answered: tale.answered,
        deadline: tale.view.spec.deadline,
        charges: &tale.charges,
        has_ended: tale.view.arrived_at.is_some(),
        has_end: tale.view.arrived_at.is_some() || tale.view.finish.is_some(),
        course: "another limit",
    };
    let shares = &tale.view.shares;
    account.told(&|party| match party {
        Party::Depot { depot } => depot.to_string(),
        Party::Source { source } => {
            let share = shares.iter().find(|share| share.source == source);
            share.map_or_else(|| source.to_string(), |share| share.name.clone())
        }
    })
}

impl Account<'_> {
    fn told(&self, name_of: &dyn Fn(Party) -> String) -> Option<String> {
        let (deadline, answered) = self.answered?;
        let mut items = self.items(name_of);
        let now = self.deadline;
        if now != deadline {
            items.push(Item {
                name: "moving the deadline".into(),
                cost_micros: deadline.slack_micros(now),
            });
        }
        let slack = deadline.slack_micros(answered);
        let left = slack - items.iter().map(|item| item.cost_micros).sum::<i64>();
        items.sort_by_key(|item| core::cmp::Reverse(item.cost_micros.abs()));
        let most = items.first()?.cost_micros.abs();
        let mut named = Vec::new();
        let mut rest = 0;
        for item in items {
            if named.len() < NAMED_MAX && item.cost_micros.abs() >= most / NAMED_SHARE {
                named.push(item);
            } else {
                rest += item.cost_micros;
            }
        }
        // Costs before gains: a chain that leads to the end.
        named.sort_by_key(|item| core::cmp::Reverse(item.cost_micros));
        if rest.abs() >= most / NAMED_SHARE && rest != 0 {
            named.push(Item {
                name: "the rest".into(),
                cost_micros: rest,
            });
        }
        let named: Vec<String> = named.iter().map(Item::told).collect();
        let began = if slack >= 0 {
            format!("the answer left {}", words::span_micros(slack))
        } else {
            let late = words::span_micros(slack);
            format!("the answer was {late} late")
        };
        let tense = if self.has_ended {
            "it ended"
        } else {
            "it would now end"
        };
        let end = if !self.has_end {
            String::from("no end of it is in sight now")
        } else if left >= 0 {
            format!("{tense} {} before the deadline", words::span_micros(left))
        } else {
            format!("{tense} {} late", words::span_micros(left))
        };
        Some(format!(
            "Where the slack went: {began}; {}; so {end}.",
            words::list(&named, "and")
        ))
    }

    fn items(&self, name_of: &dyn Fn(Party) -> String) -> Vec<Item> {
        let charges = self.charges.iter();
        charges
            .map(|charge| {
                let party = || charge.party.map_or_else(|| "no depot".into(), name_of);
                let name = match charge.cause {
                    Cause::Belief if charge.party.is_none() => "the hope in the answer".into(),
                    Cause::Belief => {
                        format!("what was believed of {} before it was measured", party())
                    }
                    Cause::Loss => format!("the loss of {}", party()),
                    Cause::Hours => format!("the hours of {}", party()),
                    Cause::Rate => format!("the rate of {}", party()),
                    Cause::Course => self.course.into(),
                    Cause::Pace => "what got through".into(),
                    Cause::Paused => "the pause".into(),
                    Cause::Refusal => "where it goes, which does not take what comes,".into(),
                    Cause::Others => "more urgent requests".into(),
                };
                Item {
                    name,
                    cost_micros: charge.cost_micros,
                }
            })
            .collect()
    }
}

impl Item {
    fn told(&self) -> String {
        let verb = if self.cost_micros >= 0 { "cost" } else { "won" };
        format!(
            "{} {verb} {}",
            self.name,
            words::span_micros(self.cost_micros)
        )
    }
}
