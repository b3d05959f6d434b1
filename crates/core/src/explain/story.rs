//! Story of a request in sentences: what was asked and answered, what happened and what was done
//! about it, and how it stands or ended. For a request in danger or late it adds where its slack
//! went.
//!
//! Built from what the mind remembers ([`Mind::tale`](crate::Mind::tale)) and nothing else, so the
//! service and the simulator tell the same story. Recurring events are summed up.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what has no words of its own here is told in those it brings"
)]

mod arrival;
mod events;
mod slack;
mod words;

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use posthaste_types::{DepotId, Timestamp};

pub use arrival::tell_arrival;

use crate::contract::{
    Decision, DeliveryReason, Dollars, Happening, Pause, Reason, ReleasePolicy, RequestState, Tale,
};

/// Tells the story, a sentence an entry. Times are UTC; a date is given if the day changes.
#[must_use]
pub fn tell(tale: &Tale) -> Vec<String> {
    let mut teller = Teller {
        tale,
        told: None,
        at: None,
        lines: Vec::new(),
    };
    teller.tell_question();
    let rest = teller.tell_answer();
    events::tell(&mut teller, rest);
    teller.tell_end();
    teller.lines
}

impl Tale {
    /// Returns the name of a depot; its number if the name is unknown.
    fn name_of(&self, depot: Option<DepotId>) -> String {
        let Some(depot) = depot else {
            return "no depot".into();
        };
        let known = self.names.iter().find(|(id, _)| *id == depot);
        known.map_or_else(|| depot.to_string(), |(_, name)| name.clone())
    }

    /// Returns the reason of a decision in words: depots by name, and moments of other days with
    /// their date.
    fn why(&self, decision: &Decision) -> String {
        let when = |at: Timestamp| words::moment(at, decision.at);
        match &decision.reason {
            Reason::Repair { lost } => {
                format!("a fragment was lost with {}", self.name_of(Some(*lost)))
            }
            Reason::Behind {
                finish, deadline, ..
            } => format!(
                "p90 finish {} was after the deadline {}",
                when(*finish),
                when(*deadline)
            ),
            Reason::DirectTooSlow { finish, deadline } => format!(
                "the direct path was too slow, its p90 finish {} after the deadline {}",
                when(*finish),
                when(*deadline)
            ),
            Reason::SlackThin {
                finish, deadline, ..
            } => format!(
                "p90 finish {} left too little slack to the deadline {}",
                when(*finish),
                when(*deadline)
            ),
            Reason::Ahead {
                finish, deadline, ..
            } => format!(
                "p90 finish {} was well before the deadline {}",
                when(*finish),
                when(*deadline)
            ),
            Reason::Infeasible {
                earliest: None,
                would_buy,
                ..
            } if would_buy.is_empty() => "no finish was in sight".into(),
            reason => decision.at.undate(&reason.to_string()),
        }
    }

    /// Returns the deadline as first asked for.
    fn first_deadline(&self) -> Timestamp {
        let moved = self.decisions.iter().find_map(|decision| {
            if let Reason::NewDeadline { from, .. } = decision.reason {
                Some(from)
            } else {
                None
            }
        });
        moved.unwrap_or(self.view.spec.deadline)
    }

    /// Returns the deliver-by as first asked for.
    fn first_deliver_by(&self) -> Option<Timestamp> {
        let moved = self.decisions.iter().find_map(|decision| {
            if let Reason::Delivery {
                why: DeliveryReason::NewDeliverBy { from, .. },
            } = decision.reason
            {
                Some(from)
            } else {
                None
            }
        });
        moved.unwrap_or(self.view.wishes.deliver_by)
    }

    fn was_at_risk(&self) -> bool {
        self.view.at_risk || self.view.missed || self.decisions.iter().any(slack::is_alarm)
    }
}

struct Teller<'a> {
    tale: &'a Tale,
    /// Last moment given.
    told: Option<Timestamp>,
    /// Moment of the last sentence.
    at: Option<Timestamp>,
    lines: Vec<String>,
}

impl<'a> Teller<'a> {
    /// Returns a moment; with its date if that differs from the last one given.
    fn moment(&mut self, at: Timestamp) -> String {
        words::next_moment(&mut self.told, at)
    }

    /// Returns the opening of a sentence about a moment.
    fn opening(&mut self, at: Timestamp) -> String {
        if self.at.replace(at) == Some(at) {
            "At once".into()
        } else {
            format!("At {}", self.moment(at))
        }
    }

    fn say(&mut self, sentence: impl Into<String>) {
        self.lines.push(sentence.into());
    }

    /// Returns how far a moment lies before the deadline, or after it.
    fn against_deadline(&self, at: Timestamp) -> String {
        let slack = self.tale.view.spec.deadline.slack_micros(at);
        let side = if slack >= 0 { "before" } else { "after" };
        format!("{} {side} the deadline", words::span_micros(slack))
    }

    fn tell_question(&mut self) {
        let tale = self.tale;
        let (view, spec) = (&tale.view, &tale.view.spec);
        let deadline = tale.first_deadline();
        let asked = self.moment(view.submitted);
        let by = self.moment(deadline);
        let span = words::span(deadline.since(view.submitted));
        let via: Vec<String> = spec.via.iter().map(|id| tale.name_of(Some(*id))).collect();
        let ends = spec.destinations.iter().map(|id| tale.name_of(Some(*id)));
        let ends: Vec<String> = ends.collect();
        let over = match (ends.as_slice(), via.as_slice()) {
            (ends @ [_, ..], []) => format!(", straight to {}", words::list(ends, "and")),
            (ends @ [_, ..], via) => {
                let (ends, via) = (words::list(ends, "and"), words::list(via, "or"));
                match spec.code.parity() {
                    0 => format!(", straight to {ends} or as {} over {via}", spec.code),
                    _ => format!(", as {} over {via} to {ends}", spec.code),
                }
            }
            ([], via) => format!(", as {} over {}", spec.code, words::list(via, "or")),
        };
        let release = match spec.release {
            ReleasePolicy::Never => "",
            ReleasePolicy::WhenSafe => "; scratch is to be released then",
        };
        let files = u32::try_from(spec.files).unwrap_or(u32::MAX);
        let delivered = match tale.first_deliver_by() {
            Some(by) => format!(", delivered by {}", self.moment(by)),
            None => String::new(),
        };
        self.say(format!(
            "At {asked} {} was asked for: {} in {} safe by {by}, {span} later{delivered}{over}{release}.",
            view.request,
            spec.bytes,
            words::count(files, "file"),
        ));
    }

    /// Tells the answer. Returns the decisions after that.
    fn tell_answer(&mut self) -> &'a [Decision] {
        let tale = self.tale;
        let Some((first, rest)) = tale.decisions.split_first() else {
            return &[];
        };
        let is_answer = matches!(
            first.happening,
            Some(Happening::Admitted | Happening::Refused)
        );
        if !is_answer {
            return &tale.decisions;
        }
        let spares: Vec<&str> = rest
            .iter()
            .filter(|decision| matches!(decision.reason, Reason::Spare { .. }))
            .map(|decision| &*decision.depot)
            .collect();
        let spares = match spares.len() {
            0 => String::new(),
            1 => format!("; {} was kept in reserve", spares[0]),
            _ => format!("; {} were kept in reserve", words::list(&spares, "and")),
        };
        let why = tale.why(first);
        let is_refused = first.happening == Some(Happening::Refused);
        let taken = match (&first.reason, tale.answered) {
            _ if is_refused => format!("It was refused: {why}"),
            (Reason::Infeasible { .. }, _) => format!("It was taken all the same: {why}"),
            (_, Some((deadline, finish))) if finish <= deadline => {
                let slack = words::span(deadline.since(finish));
                format!("It was taken: {why}, with {slack} of slack")
            }
            _ => format!("It was taken: {why}"),
        };
        self.say(format!("{taken}{spares}."));
        let offered = rest
            .iter()
            .find(|other| matches!(other.reason, Reason::Offered { .. }));
        if let Some(offered) = offered {
            let offers = offered.at.undate(&offered.reason.to_string());
            self.say(format!("To be possible {offers}."));
        }
        rest
    }

    fn tell_end(&mut self) {
        let tale = self.tale;
        let view = &tale.view;
        if view.state == RequestState::Refused {
            return;
        }
        if tale.was_at_risk()
            && let Some(told) = slack::told(tale)
        {
            self.say(told);
        }
        match view.duplicates {
            0 => {}
            1 => self.say("One late send was made a second time, where that was faster."),
            count => self.say(format!(
                "{count} late sends were made a second time, where that was faster."
            )),
        }
        if view.state == RequestState::Moving {
            let standing = self.standing();
            self.say(standing);
        }
        if let Some(standing) = self.delivery_standing() {
            self.say(standing);
        }
        if let Some(budget) = view.wishes.budget_micro_usd {
            let (spent, budget) = (Dollars(view.spent_micro_usd), Dollars(budget));
            self.say(format!("It spent {spent} of its budget of {budget}."));
        }
        if let Some(undelivered) = view.delivery.and_then(|delivery| delivery.undelivered) {
            let (name, why) = (tale.name_of(Some(undelivered.depot)), undelivered.hindrance);
            self.say(format!("Nothing is delivered to {name}: {why}."));
        }
        let ended = self.ended();
        if let Some(at) = ended {
            let lay = at.since(view.submitted);
            let what = match view.spec.release {
                ReleasePolicy::WhenSafe => "It lay on scratch for",
                ReleasePolicy::Never => "Scratch had to keep it for",
            };
            let hours = exposure(view.spec.bytes.get(), lay.as_secs());
            self.say(format!("{what} {}: {hours}.", words::span(lay)));
        }
    }

    /// Returns when scratch was no longer needed.
    fn ended(&self) -> Option<Timestamp> {
        let released = self.tale.decisions.iter().rev();
        let mut released =
            released.filter(|decision| decision.happening == Some(Happening::Released));
        match self.tale.view.spec.release {
            ReleasePolicy::WhenSafe => released.next().map(|decision| decision.at),
            ReleasePolicy::Never => self.tale.view.safe_at,
        }
    }

    /// Returns the state of its delivery; none without a deliver-by, or if each destination has all
    /// of it.
    fn delivery_standing(&mut self) -> Option<String> {
        let delivery = self.tale.view.delivery?;
        let by = delivery.deliver_by?;
        if self.tale.view.state == RequestState::Delivered || delivery.whole_at.is_some() {
            return None;
        }
        let finish = delivery.finish.map(|finish| finish.p90);
        let verdict = words::verdict((delivery.missed, delivery.at_risk), finish, by);
        let by = self.moment(by);
        Some(match delivery.finish {
            None => format!(
                "It is wanted at its destinations by {by}, and no end of that is in sight: {verdict}."
            ),
            Some(finish) => {
                let (middle, late) = (self.moment(finish.p50), self.moment(finish.p90));
                let assumed = match delivery.is_assumed {
                    true => ", where some ways are assumed that nothing went yet",
                    false => "",
                };
                format!(
                    "It is wanted at its destinations by {by} and will be there as likely as not by {middle}, \
                     nine times in ten by {late}{assumed}: {verdict}."
                )
            }
        })
    }

    fn standing(&mut self) -> String {
        let view = &self.tale.view;
        let chunks = view.spec.chunks();
        let safe = view.chunks_safe;
        let now = self.moment(self.tale.now);
        // Work after it is safe has no deadline.
        let verdict = match (view.safe_at, view.at_risk) {
            (Some(_), false) => "on time",
            _ => {
                let finish = view.finish.map(|finish| finish.p90);
                words::verdict((view.missed, view.at_risk), finish, view.spec.deadline)
            }
        };
        let Some(finish) = view.finish else {
            return format!(
                "Now, at {now}, {safe} of {chunks} chunks are safe and no finish is in sight: {verdict}."
            );
        };
        let (middle, late) = (self.moment(finish.p50), self.moment(finish.p90));
        let against = self.against_deadline(finish.p90);
        let all = all_be(self.tale.view.paused.as_ref(), self.tale.now);
        format!(
            "Now, at {now}, {safe} of {chunks} chunks are safe; {all} as likely as not by {middle}, nine times in \
             ten by {late}, {against}: {verdict}."
        )
    }
}

/// Returns the phrase for when all will be there; for a waiting request, when it would be.
fn all_be(paused: Option<&Pause>, now: Timestamp) -> String {
    paused.map_or("all will be".into(), |pause| {
        let (by, since) = (&pause.by, words::moment(pause.since, now));
        format!("it is paused by {by} since {since}, and all would be, if it went on now,")
    })
}

/// Returns gigabytes (10^9 bytes) times hours on scratch.
fn exposure(bytes: u64, seconds: u64) -> String {
    let byte_hours = u128::from(bytes) * u128::from(seconds) / 3600;
    let thousandths = byte_hours / 1_000_000;
    format!("{}.{:03} GB·h", thousandths / 1000, thousandths % 1000)
}
