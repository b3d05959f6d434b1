//! Where the slack of a request went, in one sentence.

use alloc::{format, string::String, vec::Vec};

use super::{Tale, words};
use crate::contract::Cause;

/// What moved the finish by less than this share of what moved it most is not named.
const NAMED_SHARE: i64 = 50;
/// Causes that are named, the largest first.
const NAMED_MAX: usize = 6;

/// One thing that cost slack, or won some.
struct Item {
    name: String,
    cost_micros: i64,
}

/// Where the slack went; none where nothing was answered or nothing moved.
pub(super) fn told(tale: &Tale) -> Option<String> {
    let (deadline, answered) = tale.answered?;
    let mut items = items(tale);
    let now = tale.view.spec.deadline;
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
    let tense = if tale.view.safe_at.is_some() {
        ["it ended", "it ended"]
    } else {
        ["it would now end", "it would now end"]
    };
    let end = if left >= 0 {
        format!(
            "{} {} before the deadline",
            tense[0],
            words::span_micros(left)
        )
    } else {
        format!("{} {} late", tense[1], words::span_micros(left))
    };
    Some(format!(
        "Where the slack went: {began}; {}; so {end}.",
        words::list(&named, "and")
    ))
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

fn items(tale: &Tale) -> Vec<Item> {
    let charges = tale.charges.iter();
    charges
        .map(|charge| {
            let depot = charge.depot;
            let depot = || tale.name_of(depot);
            let name = match charge.cause {
                Cause::Belief if charge.depot.is_none() => "the hope in the answer".into(),
                Cause::Belief => format!("what was believed of {} before it was measured", depot()),
                Cause::Loss => format!("the loss of {}", depot()),
                Cause::Hours => format!("the hours of {}", depot()),
                Cause::Rate => format!("the rate of {}", depot()),
                Cause::Course => "the choice of depots and ways".into(),
                Cause::Pace => "what got through".into(),
                Cause::Paused => "the pause".into(),
                Cause::Others => "more urgent requests".into(),
            };
            Item {
                name,
                cost_micros: charge.cost_micros,
            }
        })
        .collect()
}
