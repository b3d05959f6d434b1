//! Story of a stage-in.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use posthaste_types::{Bytes, Timestamp};

use crate::contract::{
    ArrivalState, ArrivalTale, ArrivalView, Decision, Dollars, Happening, Reason, SourceShareView,
};
use crate::explain::story::{slack, words};

/// Tells the story of a stage-in, a sentence an entry. Times are UTC; a date is given if the day
/// changes.
#[must_use]
pub fn tell_arrival(tale: &ArrivalTale) -> Vec<String> {
    let mut teller = Teller {
        tale,
        told: None,
        lines: Vec::new(),
    };
    teller.tell_question();
    for decision in &tale.decisions {
        teller.tell_decision(decision);
    }
    teller.tell_end();
    teller.lines
}

struct Teller<'a> {
    tale: &'a ArrivalTale,
    /// Last moment given.
    told: Option<Timestamp>,
    lines: Vec<String>,
}

impl Teller<'_> {
    /// Returns a moment; with its date if that differs from the last one given.
    fn moment(&mut self, at: Timestamp) -> String {
        words::next_moment(&mut self.told, at)
    }

    fn tell_question(&mut self) {
        let view = &self.tale.view;
        let spec = &view.spec;
        let moved = self.tale.decisions.iter().find_map(|decision| {
            if let Reason::NewDeadline { from, .. } = decision.reason {
                Some(from)
            } else {
                None
            }
        });
        let deadline = moved.unwrap_or(spec.deadline);
        let asked = self.moment(view.submitted);
        let by = self.moment(deadline);
        let (near, sources): (Vec<&SourceShareView>, Vec<&SourceShareView>) =
            view.shares.iter().partition(|share| share.near.is_some());
        let name_all = |shares: &[&SourceShareView], word| {
            let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
            words::list(&names, word)
        };
        let is_parted = sources.iter().any(|share| share.holds < spec.bytes);
        let not_before = match spec.not_before {
            Some(at) => format!(", not before {}", self.moment(at)),
            None => String::new(),
        };
        let files = u32::try_from(spec.files).unwrap_or(u32::MAX);
        self.lines.push(format!(
            "At {asked} {} was asked for: {} in {} {} by {by}, {} later{not_before}, from {}.",
            view.request,
            spec.bytes,
            words::count(files, "file"),
            place_of(view),
            words::span(deadline.since(view.submitted)),
            name_all(&sources, if is_parted { "and" } else { "or" }),
        ));
        if !near.is_empty() {
            let waits = name_all(&near, "and");
            self.lines
                .push(format!("Until it is welcome it may wait at {waits}."));
        }
        for share in sources.iter().filter(|_| is_parted) {
            let alone = match share.alone {
                Bytes::ZERO => String::new(),
                alone if alone == share.holds => ", which no other does".into(),
                alone => format!(", and no other does {alone} of that"),
            };
            let (name, holds) = (&share.name, share.holds);
            self.lines
                .push(format!("{name} holds {holds} of it{alone}."));
        }
    }

    fn tell_decision(&mut self, decision: &Decision) {
        let at = self.moment(decision.at);
        let view = &self.tale.view;
        let why = &decision.reason;
        let what = match &decision.happening {
            None => match why {
                Reason::NewDeadline { from, to } => {
                    format!("the deadline was moved from {from} to {to}")
                }
                Reason::DestinationRefuses { .. }
                | Reason::NotKeptThere { .. }
                | Reason::FromOneSource { .. } => why.to_string(),
                _ => format!("{}: {why}", decision.what()),
            },
            Some(Happening::Admitted) => match why {
                Reason::Infeasible { .. } | Reason::OnlyThere { .. } => {
                    format!("it was taken all the same: {why}")
                }
                _ => format!("it was taken: {why}"),
            },
            Some(Happening::Refused) => format!("it was refused: {why}"),
            Some(Happening::Fetching) => format!("it began: {why}"),
            Some(Happening::Prestaging) => {
                format!("it began to be gathered near the centre: {why}")
            }
            Some(Happening::AtRisk { .. }) => format!("it was said to be at risk: {why}"),
            Some(Happening::OnTime { .. }) => format!("the danger was over: {why}"),
            Some(Happening::Missed) => {
                let place = place_of(view);
                format!("the deadline passed and it was not {place}: {why}")
            }
            Some(Happening::SourceLeft { name }) => format!("{name} was left: {}", lost(why)),
            Some(Happening::SourceBack { name }) => format!("{name} gave again"),
            Some(Happening::Cancelled) => format!("it was cancelled: {why}"),
            Some(Happening::Failed) => format!("it was given up: {why}"),
            Some(Happening::Arrived { .. }) => {
                let slack = view.spec.deadline.slack_micros(decision.at);
                let side = if slack >= 0 { "before" } else { "after" };
                let span = words::span_micros(slack);
                let place = place_of(view);
                format!("all of it was {place}, {span} {side} the deadline: {why}")
            }
            Some(Happening::Paused | Happening::Resumed) => format!("it was {why}"),
            Some(other) => format!("{other}: {why}"),
        };
        let what = decision.at.undate(&what);
        self.lines.push(format!("At {at} {what}."));
    }

    fn tell_end(&mut self) {
        let view = &self.tale.view;
        let shares = view.shares.iter().filter(|share| share.arrived > 0);
        let gave: Vec<String> = shares.map(gave).collect();
        if !gave.is_empty() {
            let came: u32 = view.shares.iter().map(|share| share.arrived).sum();
            let again = match came.saturating_sub(view.chunks_here) {
                0 => String::new(),
                again => format!(", {again} of them once more"),
            };
            let twice = match view.duplicates {
                0 => String::new(),
                1 => "; 1 was asked for twice".into(),
                number => format!("; {number} were asked for twice"),
            };
            let gave = words::list(&gave, "and");
            self.lines
                .push(format!("Of its chunks {gave}{again}{twice}."));
        }
        let counts = view.state.is_live() || view.arrived_at.is_some();
        if counts && self.tale.decisions.iter().any(slack::is_alarm) {
            self.lines.extend(slack::told_of_arrival(self.tale));
        }
        if view.state.is_live() {
            let standing = self.standing(view);
            self.lines.push(standing);
        }
        let spent = Dollars(view.spent_micro_usd);
        if let Some(budget) = view.budget_micro_usd {
            let budget = Dollars(budget);
            self.lines
                .push(format!("It spent {spent} of its budget of {budget}."));
        } else if view.cost_micro_usd > 0 {
            self.lines.push(format!("It spent {spent}."));
        }
    }

    fn standing(&mut self, view: &ArrivalView) -> String {
        let chunks = view.chunks;
        let now = self.moment(self.tale.now);
        let finish = view.finish.map(|finish| finish.p90);
        let verdict = words::verdict((view.missed, view.at_risk), finish, view.spec.deadline);
        let here = format!(
            "Now, at {now}, {} of {chunks} chunks are {}",
            view.chunks_here,
            place_of(view)
        );
        let begins = match (view.state, view.begin_by) {
            (ArrivalState::Waiting, Some(at)) if at > self.tale.now => {
                format!("; it begins by {}", self.moment(at))
            }
            _ => String::new(),
        };
        let Some(finish) = view.finish else {
            return format!("{here}{begins} and no finish is in sight: {verdict}.");
        };
        let (middle, late) = (self.moment(finish.p50), self.moment(finish.p90));
        let all = super::all_be(view.paused.as_ref(), self.tale.now);
        format!(
            "{here}{begins}; {all} as likely as not by {middle}, nine times in ten by {late}: {verdict}."
        )
    }
}

/// Returns where it is once it has arrived.
const fn place_of(view: &ArrivalView) -> &'static str {
    if view.goes_out { "there" } else { "here" }
}

fn gave(share: &SourceShareView) -> String {
    format!("{} came from {}", share.arrived, share.name)
}

/// Returns why a source was dropped, without repeating its name.
fn lost(why: &Reason) -> String {
    match why {
        Reason::SourceLost { fault, .. } => fault.to_string(),
        other => other.to_string(),
    }
}
