//! Model of a centre's purge: its rules, and the deadline of each file under them.
//!
//! [`read`] accepts our TOML rules, Robinhood configurations and Spectrum Scale policies.
//! [`Policy::death`] predicts when a file is removed. `docs/reference/purge-policy.md` has the
//! forms.

mod account;
mod coming;
mod condition;
mod facts;
mod ours;
mod pattern;
mod robinhood;
mod scale;
pub mod scan;
mod schedule;
pub mod site;
mod tokens;
mod world;

use std::fmt::Write as _;

pub use account::{Account, Day, Group, Sum};
pub use coming::{Coming, first};
pub use condition::{Age, Condition, Sight};
pub use facts::{Clock, Facts, Kind, Stamp};
pub use pattern::Pattern;
pub use schedule::Schedule;
pub use world::{Fill, Level, Listed, World};

use crate::script::Complaint;

/// Largest policy accepted, in bytes: people write them by hand.
pub const POLICY_BYTES_MAX: u64 = 4 << 20;
/// Most rules of one policy: each is evaluated for each file.
const RULES_MAX: usize = 1024;
/// Most complaints about one policy: the first ones show the misunderstanding.
const COMPLAINTS_MAX: usize = 20;

/// Language of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// Our own TOML.
    Toml,
    /// Configuration of Robinhood 3.
    Robinhood,
    /// Policy rules of Spectrum Scale.
    Scale,
}

impl Language {
    /// Guesses the language of a policy. Only our TOML has `[[rule]]`; only Scale's rules are
    /// statements that begin with `RULE`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let lines = || text.lines().map(str::trim_start);
        let is_statement = |line: &str| {
            let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let (word, rest) = line.split_at(end.unwrap_or(line.len()));
            let is_rule = word.eq_ignore_ascii_case("rule") && !rest.contains(['{', '=']);
            is_rule || word == "define"
        };
        if lines().any(|line| line.starts_with("[[") || line.starts_with("exempt")) {
            Self::Toml
        } else if lines().any(is_statement) {
            Self::Scale
        } else if text.contains('{') && text.contains("_rules") {
            Self::Robinhood
        } else {
            Self::Toml
        }
    }
}

/// Effect of a rule on the files it matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Removal.
    Purge,
    /// Protection from all later rules.
    Keep,
}

/// Condition that starts a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// Purge that runs all the time, or every day.
    Continuous,
    /// Purge that runs by the calendar.
    Calendar(Schedule),
    /// Purge that runs when the file system is as full as `high`, until it is as empty as `low`.
    Watermark {
        /// Level at which the purge begins.
        high: Level,
        /// Level at which the purge ends, if the policy has one.
        low: Option<Level>,
    },
}

/// Lists in which a purge announces the files it will remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// Pattern of the paths of lists. A list has one path a line.
    pub files: String,
    /// Time from writing a list to removing its files, in seconds.
    pub notice_s: i64,
}

/// Rule of a policy.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Name of the rule.
    pub name: String,
    /// Line of the rule, from 1.
    pub line: usize,
    /// Effect on matching files.
    pub act: Act,
    /// Files that match, and when.
    pub when: Condition,
    /// Condition that starts the purge.
    pub trigger: Trigger,
    /// Time from matching to removal, in seconds.
    pub grace_s: i64,
    /// Time in which a removed file can be restored, in seconds.
    pub trash_s: i64,
    /// Lists that announce the files to be removed, if there are any.
    pub candidates: Option<Candidates>,
}

impl Rule {
    pub(self) fn keep(name: &str, line: usize, when: Condition) -> Self {
        Self {
            act: Act::Keep,
            ..Self::purge(name, line, when)
        }
    }

    pub(self) fn purge(name: &str, line: usize, when: Condition) -> Self {
        Self {
            name: name.to_owned(),
            line,
            act: Act::Purge,
            when,
            trigger: Trigger::Continuous,
            grace_s: 0,
            trash_s: 0,
            candidates: None,
        }
    }

    /// Describes the rule for people: its name, its ages and its trigger.
    #[must_use]
    pub fn explain(&self) -> String {
        let mut text = format!("rule `{}` (line {})", self.name, self.line);
        let mut ages = Vec::new();
        self.when.ages(&mut ages);
        for (place, (clock, age)) in ages.iter().enumerate() {
            let before = if place == 0 { ": " } else { ", " };
            let _ = match age {
                Age::Seconds(seconds) => write!(text, "{before}{} after {clock}", show(*seconds)),
                Age::Midnights(days) => {
                    write!(
                        text,
                        "{before}from the {days}th midnight (UTC) after {clock}"
                    )
                }
            };
        }
        let _ = match &self.trigger {
            Trigger::Continuous => Ok(()),
            Trigger::Calendar(schedule) => write!(text, ", run {}", schedule.text()),
            Trigger::Watermark { high, low: None } => write!(text, ", run from {high} full"),
            Trigger::Watermark {
                high,
                low: Some(low),
            } => write!(text, ", run from {high} full until {low}"),
        };
        if self.grace_s > 0 {
            let _ = write!(text, ", {} of grace", show(self.grace_s));
        }
        if self.trash_s > 0 {
            let _ = write!(text, ", {} in the trash", show(self.trash_s));
        }
        text
    }
}

/// Formats seconds as whole days, hours or minutes if possible, else as seconds.
fn show(seconds: i64) -> String {
    for (unit_s, unit) in [(condition::DAY_S, "d"), (3600, "h"), (60, "min")] {
        if seconds % unit_s == 0 && seconds != 0 {
            return format!("{} {unit}", seconds / unit_s);
        }
    }
    format!("{seconds} s")
}

/// Confidence in a deadline, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Deadline that only a change of the file moves.
    Certain,
    /// Deadline extrapolated from how fast the file system fills.
    Predicted,
    /// Earliest possible removal: the time, or a condition that can't be seen, is unknown.
    Possible,
}

impl Confidence {
    /// Returns the word for the level of confidence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Predicted => "predicted",
            Self::Possible => "possible",
        }
    }
}

/// Predicted removal of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// Time in seconds since 1970; now if the removal is overdue.
    pub at_s: i64,
    /// Confidence in that time.
    pub confidence: Confidence,
    /// Index of the rule in the policy.
    pub rule: usize,
}

/// Remark on text that was ignored without harm, or interpreted with caution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Line of that text, from 1.
    pub line: usize,
    /// Description of the text and of its interpretation.
    pub text: String,
}

/// Rules of a purge, in order of evaluation.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Rules, in order of evaluation.
    pub rules: Vec<Rule>,
    /// Remarks on text that was not understood.
    pub remarks: Vec<Remark>,
}

impl Policy {
    /// Returns when a file is removed, by the rule that removes it first. [`Confidence::Possible`]
    /// deadlines count only if there is no other. `None` while no rule removes it. O(ages ×
    /// conditions).
    #[must_use]
    pub fn death(&self, sight: &Sight<'_>, world: &World) -> Option<Death> {
        let mut first: Option<Death> = None;
        for death in self.deaths(sight, world) {
            let key = |death: &Death| (death.confidence == Confidence::Possible, death.at_s);
            if first.is_none_or(|first| key(&death) < key(&first)) {
                first = Some(death);
            }
        }
        first
    }

    /// Returns the earliest possible removal of a file, however unsure. For remembered facts this
    /// is a lower bound: the file is not removed before.
    #[must_use]
    pub fn earliest_s(&self, sight: &Sight<'_>, world: &World) -> Option<i64> {
        self.deaths(sight, world).map(|death| death.at_s).min()
    }

    fn deaths<'a>(
        &'a self,
        sight: &'a Sight<'_>,
        world: &'a World,
    ) -> impl Iterator<Item = Death> + 'a {
        let purges = self.rules.iter().enumerate();
        let purges = purges.filter(|(_, rule)| rule.act == Act::Purge);
        purges.filter_map(|(place, rule)| {
            let since_s = self.condemned_s(place, sight, world.now_s);
            let dying = since_s.and_then(|since_s| world.removal(rule, since_s));
            let listed = world.listed_s(place, sight.path);
            let (at_s, confidence) = match (dying, listed) {
                (Some((at_s, _)), Some(listed_s)) => (at_s.min(listed_s), Confidence::Certain),
                (None, Some(listed_s)) => (listed_s, Confidence::Certain),
                (Some(dying), None) => dying,
                (None, None) => return None,
            };
            let unsure = listed.is_none() && rule.when.has_unknown();
            Some(Death {
                at_s: at_s.max(world.now_s),
                confidence: if unsure {
                    Confidence::Possible
                } else {
                    confidence
                },
                rule: place,
            })
        })
    }

    /// Returns from when on a rule may remove a file, as far as can be known now.
    fn condemned_s(&self, place: usize, sight: &Sight<'_>, now_s: i64) -> Option<i64> {
        let rule = &self.rules[place];
        let keeps = || {
            let before = self.rules[..place].iter();
            before.filter(|rule| rule.act == Act::Keep)
        };
        let dies = |at_s: i64| {
            rule.when.truth(sight, at_s).may
                && !keeps().any(|keep| keep.when.truth(sight, at_s).must)
        };
        let mut turns = Vec::new();
        rule.when.turns(sight.facts, &mut turns);
        for keep in keeps() {
            keep.when.turns(sight.facts, &mut turns);
        }
        turns.sort_unstable();
        let (past, coming) = turns.split_at(turns.partition_point(|turn| *turn <= now_s));
        if dies(now_s) {
            let since = past.iter().rev().take_while(|turn| dies(**turn)).last();
            return Some(since.copied().unwrap_or(now_s));
        }
        coming.iter().copied().find(|turn| dies(*turn))
    }

    /// Returns whether any rule needs the creation time of files.
    #[must_use]
    pub fn asks_birth(&self) -> bool {
        self.rules.iter().any(|rule| {
            let mut ages = Vec::new();
            rule.when.ages(&mut ages);
            ages.iter().any(|(clock, _)| clock.asks_birth())
        })
    }
}

/// Reads a policy. `owners` maps names of users to their numbers.
///
/// # Errors
/// All complaints about the policy, in order, twenty at most.
pub fn read(
    text: &str,
    language: Language,
    owners: &dyn Fn(&str) -> Option<u32>,
) -> Result<Policy, Vec<Complaint>> {
    let read = match language {
        Language::Toml => ours::read(text, owners),
        Language::Robinhood => robinhood::read(text, owners),
        Language::Scale => scale::read(text, owners),
    };
    let mut policy = read.map_err(|complaints| {
        let mut complaints: Vec<Complaint> = complaints.into_iter().take(COMPLAINTS_MAX).collect();
        for complaint in &mut complaints {
            complaint.what = printable(&complaint.what);
            complaint.meant = complaint.meant.as_deref().map(printable);
        }
        complaints
    })?;
    for rule in &mut policy.rules {
        rule.name = printable(&rule.name);
    }
    for remark in &mut policy.remarks {
        remark.text = printable(&remark.text);
    }
    if policy.rules.len() > RULES_MAX {
        let line = policy.rules[RULES_MAX].line;
        let most = format!("a policy has {RULES_MAX} rules at most");
        return Err(vec![Complaint::new(line, most)]);
    }
    if !policy.rules.iter().any(|rule| rule.act == Act::Purge) {
        let complaint = Complaint::new(1, "no rule of it purges anything");
        return Err(vec![complaint]);
    }
    policy.remarks.sort_by_key(|remark| remark.line);
    Ok(policy)
}

/// Replaces characters that a terminal would obey: texts of policies appear in one-line messages.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if posthaste_types::is_obeyed(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Reads an owner given by name or by number.
fn owner_condition(
    name: &str,
    line: usize,
    owners: &dyn Fn(&str) -> Option<u32>,
    remarks: &mut Vec<Remark>,
) -> Condition {
    let known = name.parse().ok().or((name == "root").then_some(0));
    match known.or_else(|| owners(name)) {
        Some(owner) => Condition::Owner(owner),
        None => {
            let text =
                format!("nobody here is called `{name}`: whether a file is theirs stays open");
            remarks.push(Remark { line, text });
            Condition::Unknown
        }
    }
}

#[cfg(test)]
mod tests;
