//! Events on the way and the responses to them, each cause with its effects in one sentence.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what has no words of its own here is told in those it brings"
)]

use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};
use posthaste_types::{ByteRate, Bytes, Timestamp};

use crate::contract::{Decision, DeliveryReason, Fault, Happening, Reason, Step, Tale};
use crate::explain::story::{Teller, words};

/// Times that an event of one depot is told in full; further ones are summed up.
const TOLD_MAX: u32 = 3;
/// Most troubles named as the cause of one effect.
const TROUBLES_MAX: usize = 3;

/// Events that are summed up at the end.
#[derive(Default)]
struct Sums {
    /// Choices of each optimizer, the fewest and the most at once, by depot.
    tuned: BTreeMap<String, (u32, u32, u32)>,
    /// Retried sends, by what they were and their fault.
    retried: BTreeMap<(Tried, Fault), u32>,
    /// Paths that were probed.
    probed: Vec<String>,
    /// Number of times that an event happened, and the last time.
    told: BTreeMap<(String, String), (u32, Timestamp)>,
}

/// Something that was tried again: from whom to whom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Tried {
    noun: &'static str,
    way: String,
}

impl Tried {
    fn of(decision: &Decision) -> Self {
        let (depot, note) = (&decision.depot, &decision.note);
        let pushed = note.strip_prefix("a push from ");
        let pushed = pushed.and_then(|rest| rest.strip_suffix(" is tried again"));
        let (noun, way) = match pushed {
            Some(from) => ("fragment", format!("from {from} to {depot}")),
            None if **note == *"it did not code a chunk" => {
                ("chunk", format!("for {depot} to code"))
            }
            None => ("send", format!("to {depot}")),
        };
        Self { noun, way }
    }
}

/// Tells the decisions in order.
pub(super) fn tell(teller: &mut Teller<'_>, decisions: &[Decision]) {
    let mut sums = Sums::default();
    let mut troubles: Vec<String> = Vec::new();
    let mut place = 0;
    while let Some(decision) = decisions.get(place) {
        let same = |next: &&Decision| next.at == decision.at;
        let rest = &decisions[place + 1..];
        let together = rest.iter().take_while(same).count();
        let is_told = !sums.take(decision);
        place += 1;
        if !is_told {
            continue;
        }
        if decision.happening == Some(Happening::DepotDown) {
            place += tell_loss(teller, decision, &rest[..together]);
            let lost = format!("{} was lost", decision.depot);
            note(&mut troubles, lost);
            continue;
        }
        if let Some(sentence) = sentence(teller.tale, decision, &mut troubles) {
            let at = teller.opening(decision.at);
            let sentence = decision.at.undate(&sentence);
            teller.say(format!("{at} {sentence}."));
        }
    }
    sums.tell(teller);
}

/// Tells the loss of a depot with its immediate consequences. Returns how many decisions that took.
fn tell_loss(teller: &mut Teller<'_>, loss: &Decision, after: &[Decision]) -> usize {
    let why = match &loss.reason {
        Reason::DepotLost { fault } => fault.to_string(),
        Reason::GaveUp { fault, attempts } => format!("{attempts} sends in a row failed: {fault}"),
        _ => teller.tale.why(loss),
    };
    let mut effects = Vec::new();
    if loss.count > 0 {
        effects.push(format!("{} to it ended", words::count(loss.count, "send")));
    }
    let mut taken = 0;
    for decision in after {
        match (&decision.happening, &decision.reason) {
            (Some(Happening::Repairing { chunks }), _) => {
                let chunks = words::count(*chunks, "chunk");
                effects.push(format!("{chunks} had to be made again in part"));
            }
            // The line before or after says so.
            (Some(Happening::Unsafe { .. }), _) => {}
            (Some(Happening::DepotActivated), Reason::Repair { .. }) => {
                effects.push(format!("{} was added in its place", decision.depot));
            }
            _ => break,
        }
        taken += 1;
    }
    let at = teller.opening(loss.at);
    let effects = match words::list(&effects, "and") {
        none if none.is_empty() => none,
        some => format!(", so {some}"),
    };
    teller.say(format!("{at} {} was lost ({why}){effects}.", loss.depot));
    taken
}

fn note(troubles: &mut Vec<String>, trouble: String) {
    if !troubles.contains(&trouble) {
        troubles.push(trouble);
    }
}

/// Returns the causes of an effect told now; nothing is named twice.
fn because(troubles: &mut Vec<String>) -> String {
    let all = core::mem::take(troubles);
    let last = &all[all.len().saturating_sub(TROUBLES_MAX)..];
    match words::list(last, "and") {
        none if none.is_empty() => none,
        some => format!(" ({some})"),
    }
}

/// Returns one decision as a sentence without its moment; none if it is told elsewhere.
fn sentence(tale: &Tale, decision: &Decision, troubles: &mut Vec<String>) -> Option<String> {
    let (depot, why) = (&decision.depot, tale.why(decision));
    let Some(happening) = &decision.happening else {
        return plain(decision, &why);
    };
    Some(match happening {
        Happening::Admitted => format!("it was taken: {why}"),
        Happening::Refused => format!("it was refused: {why}"),
        Happening::AtRisk { .. } => {
            format!("it was said to be at risk: {why}{}", because(troubles))
        }
        Happening::OnTime { .. } => {
            troubles.clear();
            format!("the danger was over: {why}")
        }
        Happening::Missed => missed(&why, troubles),
        Happening::DepotActivated => added(tale, decision, troubles),
        Happening::DepotRetired => format!("{depot} was let go: {why}"),
        Happening::DepotDown => format!("{depot} was lost: {why}"),
        Happening::DepotUp => format!("{depot} was back"),
        Happening::DepotDraining => format!("{depot} was drained: {why}"),
        Happening::DepotUndrained => format!("{depot} was used again: {why}"),
        Happening::ForecastMoved => told_of_forecast(decision, &why, troubles),
        Happening::Repairing { chunks } => {
            let chunks = words::count(*chunks, "chunk");
            format!("{chunks} had to be made again in part: {why}")
        }
        Happening::Unsafe { chunks } => {
            format!("{} no longer safe: {why}", are(*chunks, "chunk"))
        }
        Happening::Safe { .. } => {
            let slack = tale.view.spec.deadline.slack_micros(decision.at);
            let side = if slack >= 0 { "before" } else { "after" };
            let span = words::span_micros(slack);
            format!("it was safe, {span} {side} the deadline: {why}")
        }
        Happening::Released => "scratch was released".into(),
        Happening::ReleaseFailed => format!("scratch could not be released: {why}"),
        Happening::Delivered => format!("it was delivered: {why}"),
        Happening::DeliveryAtRisk { .. }
        | Happening::DeliveryOnTime { .. }
        | Happening::DeliveryMissed => told_of_delivery(happening, &why, troubles),
        Happening::Cancelled => format!("it was cancelled: {why}"),
        Happening::Failed => format!("it was given up: {why}"),
        Happening::Paused | Happening::Resumed => format!("it was {why}"),
        Happening::Crowded => format!("fragments had to lie too close together: {why}"),
        Happening::Unpinned => format!("{depot} was pinned no longer: {why}"),
        Happening::Thinned { chunks } => {
            format!("{} short of fragments: {why}", are(*chunks, "chunk"))
        }
        Happening::Purged => format!("the source was gone: {why}"),
        Happening::LeftOut { bytes: Bytes::ZERO } => format!("something was left out: {why}"),
        Happening::LeftOut { bytes } => format!("a file of {bytes} was left out: {why}"),
        Happening::CodeChosen { code } => format!("code {code} was chosen: {why}"),
        Happening::Rerouted => {
            format!("the data took another way: {why}{}", because(troubles))
        }
        Happening::Pushing => format!("depots began to push on to {depot}: {why}"),
        Happening::Delivering => {
            format!("{depot} began to take from others what it lacked: {why}")
        }
        Happening::Pushed => format!("all had been pushed on: {why}"),
        Happening::Reservation { step } => told_of_circuit(*step, &why),
        Happening::WayTried { name } => {
            format!("the way {name} to {depot} was tried: {why}")
        }
        Happening::WayTaken { name } => {
            format!("data for {depot} took the way {name}: {why}")
        }
        // Stage-ins have a story of their own.
        _ => format!("{happening}: {why}"),
    })
}

/// Returns the sentence about a path's forecast.
fn told_of_forecast(decision: &Decision, why: &str, troubles: &mut Vec<String>) -> String {
    let depot = &decision.depot;
    let Reason::RateMoved { from, to } = decision.reason else {
        return format!("the forecast of {depot} moved: {why}");
    };
    let verb = if to < from { "fell" } else { "rose" };
    if to < from {
        note(troubles, format!("the forecast of {depot} fell"));
    }
    format!("the forecast of {depot} {verb} from {from} to {to}")
}

/// Returns the sentence about timely delivery.
fn told_of_delivery(happening: &Happening, why: &str, troubles: &mut Vec<String>) -> String {
    match happening {
        Happening::DeliveryAtRisk { .. } => {
            let because = because(troubles);
            format!("its delivery was said to be at risk: {why}{because}")
        }
        Happening::DeliveryMissed => {
            let because = because(troubles);
            format!("it was not delivered when it was wanted{because}: {why}")
        }
        _ => format!("the danger to its delivery was over: {why}"),
    }
}

/// Returns the sentence about a reservation.
fn told_of_circuit(step: Step, why: &str) -> String {
    let what = match step {
        Step::Asked => "a reservation was asked for",
        Step::Granted => "it was given rate of its own",
        Step::Refused => "the reservation was refused",
        Step::Up => "its data went over a circuit",
        Step::Down => "its data went at best effort for a while",
        Step::Changing => "the reservation was to be changed",
        Step::Changed => "the reservation was changed",
        Step::Unchanged => "the reservation could not be changed",
        Step::Returned => "the reservation was given back",
        Step::Ended => "the reservation was over",
        Step::Passed => "the reservation went on for another request",
        Step::Unobtainable => "the reservation could not be had",
    };
    format!("{what}: {why}")
}

/// Returns the phrase for a user's change of a rate limit.
fn limit_changed(from: Option<ByteRate>, to: Option<ByteRate>) -> String {
    match (from, to) {
        (_, None) => "the limit on what may be sent was taken away".into(),
        (None, Some(to)) => format!("what may be sent was limited to {to}"),
        (Some(from), Some(to)) => {
            format!("the limit on what may be sent was changed from {from} to {to}")
        }
    }
}

fn missed(why: &str, troubles: &mut Vec<String>) -> String {
    let because = because(troubles);
    format!("the deadline passed and it was not safe: {why}{because}")
}

/// Returns the sentence for a decision that is no event.
fn plain(decision: &Decision, why: &str) -> Option<String> {
    match &decision.reason {
        Reason::NewDeadline { from, to } => {
            Some(format!("the deadline was moved from {from} to {to}"))
        }
        Reason::Delivery {
            why: DeliveryReason::NewDeliverBy { .. },
        } => Some(format!("by when it is delivered was moved: {why}")),
        Reason::NewLimit { from, to } => Some(limit_changed(*from, *to)),
        // Told with the answer, or by the event that follows.
        Reason::Spare { .. } | Reason::AllSafe { .. } | Reason::Offered { .. } => None,
        _ => Some(format!("{}: {why}", decision.what())),
    }
}

fn are(number: u32, noun: &str) -> String {
    let verb = if number == 1 { "was" } else { "were" };
    format!("{} {verb}", words::count(number, noun))
}

/// Returns the sentence for an added depot, with the reason and its causes.
fn added(tale: &Tale, decision: &Decision, troubles: &mut Vec<String>) -> String {
    let depot = &decision.depot;
    let why = tale.why(decision);
    match &decision.reason {
        Reason::Behind { fan_out, .. } | Reason::SlackThin { fan_out, .. } => format!(
            "{} depot, {depot}, was added, because {why}{}",
            words::one_more(*fan_out),
            because(troubles)
        ),
        Reason::Infeasible { .. } => {
            format!("{depot} was added, because {why}{}", because(troubles))
        }
        Reason::Repair { lost } => {
            format!(
                "{depot} was added in place of {}",
                tale.name_of(Some(*lost))
            )
        }
        _ => format!("{depot} was added: {why}"),
    }
}

impl Sums {
    /// Counts a decision that is summed up. Returns whether it is not told by itself.
    fn take(&mut self, decision: &Decision) -> bool {
        let depot = || String::from(&*decision.depot);
        match &decision.reason {
            Reason::Tuned { .. } => {
                let at_once = decision.count;
                let (times, least, most) = self.tuned.entry(depot()).or_insert((0, at_once, 0));
                (*times, *least, *most) = (*times + 1, (*least).min(at_once), (*most).max(at_once));
                return true;
            }
            Reason::Retry { fault, .. } => {
                let tried = Tried::of(decision);
                *self.retried.entry((tried, *fault)).or_default() += 1;
                return true;
            }
            Reason::PathStale { .. } => {
                if !self.probed.iter().any(|depot| **depot == *decision.depot) {
                    self.probed.push(depot());
                }
                return true;
            }
            _ => {}
        }
        let kind = decision.happening.as_ref().map_or("", Happening::name);
        if matches!(kind, "" | "safe" | "missed" | "delivery-missed") {
            return false;
        }
        let key = (depot(), String::from(kind));
        let (times, last) = self.told.entry(key).or_insert((0, decision.at));
        *times += 1;
        *last = decision.at;
        *times > TOLD_MAX
    }

    fn tell(&self, teller: &mut Teller<'_>) {
        for ((depot, kind), (times, last)) in &self.told {
            let Some(more) = times.checked_sub(TOLD_MAX).filter(|more| *more > 0) else {
                continue;
            };
            let of = if depot.is_empty() {
                String::new()
            } else {
                format!(" of {depot}")
            };
            let last = teller.moment(*last);
            let times = words::count(more, "more time");
            teller.say(format!(
                "The same{of}, {kind}, {times}, the last at {last}."
            ));
        }
        if !self.retried.is_empty() {
            let sends = self.retried.iter().map(|((tried, fault), times)| {
                format!(
                    "{} {} ({fault})",
                    words::count(*times, tried.noun),
                    tried.way
                )
            });
            let sends: Vec<String> = sends.collect();
            teller.say(format!("Tried again: {}.", words::list(&sends, "and")));
        }
        if !self.probed.is_empty() {
            let paths = words::list(&self.probed, "and");
            teller.say(format!(
                "Probed, since nothing had measured them lately: {paths}."
            ));
        }
        if !self.tuned.is_empty() {
            let times: u32 = self.tuned.values().map(|(times, _, _)| times).sum();
            let range = |(depot, (_, least, most)): (&String, &(u32, u32, u32))| {
                if least == most {
                    format!("{depot} {least}")
                } else {
                    format!("{depot} {least} to {most}")
                }
            };
            let ranges: Vec<String> = self.tuned.iter().map(range).collect();
            teller.say(format!(
                "The optimizer chose {} how many fragments were on their way at once: {}.",
                words::count(times, "time"),
                words::list(&ranges, "and"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Timestamp;

    #[test]
    fn what_was_tried_again_is_named_with_both_ends() {
        for (note, told) in [
            ("a send is tried again", "2 sends to beta"),
            (
                "a push from alpha is tried again",
                "2 fragments from alpha to beta",
            ),
            ("it did not code a chunk", "2 chunks for beta to code"),
        ] {
            let tried = Tried::of(&Decision {
                at: Timestamp::from_secs(1),
                happening: None,
                depot: "beta".into(),
                count: 1,
                note: note.into(),
                reason: Reason::Asked,
            });
            let said = format!("{} {}", words::count(2, tried.noun), tried.way);
            assert_eq!(said, told);
        }
    }
}
