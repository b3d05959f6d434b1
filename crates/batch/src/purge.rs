//! What a centre's purge removes, and when: its rules as a model, and the deadline of each file by them.
//!
//! [`read`] takes rules as we write them in TOML, configuration of Robinhood and policies of Spectrum Scale;
//! [`Policy::death`] says when a file goes. `docs/reference/purge-policy.md` has the forms.

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

/// Largest policy read, in bytes: people write them by hand.
pub const POLICY_BYTES_MAX: u64 = 4 << 20;
/// Rules of one policy: each is asked about each file.
const RULES_MAX: usize = 1024;
/// Complaints about one policy: the first ones tell what is misunderstood.
const COMPLAINTS_MAX: usize = 20;

/// Whose words a policy is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// TOML of ours.
    Toml,
    /// Configuration of Robinhood 3.
    Robinhood,
    /// Policy rules of Spectrum Scale.
    Scale,
}

impl Language {
    /// What a policy seems to be written in. Only ours has `[[rule]]`, only Scale's rules are statements that begin with `RULE`.
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

/// What rules do to the files that they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// They go.
    Purge,
    /// They stay, whatever the rules after this one say.
    Keep,
}

/// What makes a purge run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    /// It always runs, or every day.
    Continuous,
    /// It runs by the calendar.
    Calendar(Schedule),
    /// It runs when the file system is this full, until it is that empty.
    Watermark {
        /// Where it begins.
        high: Level,
        /// Where it ends, where that is said.
        low: Option<Level>,
    },
}

/// Lists that a purge announces its files in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidates {
    /// A pattern of the files that are lists: one path a line.
    pub files: String,
    /// A file goes this long after the list that names it was written, in seconds.
    pub notice_s: i64,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// What it is called.
    pub name: String,
    /// Where it stands, from 1.
    pub line: usize,
    /// What it does.
    pub act: Act,
    /// To which files, and when.
    pub when: Condition,
    /// What makes it run.
    pub trigger: Trigger,
    /// From being condemned to being removed, in seconds.
    pub grace_s: i64,
    /// For how long what was removed can be had back, in seconds.
    pub trash_s: i64,
    /// Where it announces what it removes.
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

    /// Says it for people: which rule, which clock, what makes it run.
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

/// Whole days, hours or minutes where it is that, else seconds.
fn show(seconds: i64) -> String {
    for (unit_s, unit) in [(condition::DAY_S, "d"), (3600, "h"), (60, "min")] {
        if seconds % unit_s == 0 && seconds != 0 {
            return format!("{} {unit}", seconds / unit_s);
        }
    }
    format!("{seconds} s")
}

/// How sure a deadline is, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Nothing but a change of the file moves it.
    Certain,
    /// It is when the file system will be full, as it fills now.
    Predicted,
    /// It may go from then on; nobody can say when, or whether a condition that can't be seen holds.
    Possible,
}

impl Confidence {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Certain => "certain",
            Self::Predicted => "predicted",
            Self::Possible => "possible",
        }
    }
}

/// When a file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// In seconds since 1970; what should be gone already goes now.
    pub at_s: i64,
    /// How sure that is.
    pub confidence: Confidence,
    /// The place of the rule in the policy.
    pub rule: usize,
}

/// Something that was not understood and does no harm, or was taken with care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where it stands, from 1.
    pub line: usize,
    /// What it is, and what was made of it.
    pub text: String,
}

/// The rules of a purge, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The rules.
    pub rules: Vec<Rule>,
    /// What was not understood.
    pub remarks: Vec<Remark>,
}

impl Policy {
    /// When a file goes, by the rule that takes it first. A deadline that nobody is sure of counts only where there is no
    /// other. `None` while no rule takes it. O(ages × conditions).
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

    /// The earliest moment at which a file may go, however unsure: of what is only remembered, no file goes before.
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

    /// From when on a rule may take a file, as far as anybody can tell now.
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

    /// Whether any rule asks when a file was made.
    #[must_use]
    pub fn asks_birth(&self) -> bool {
        self.rules.iter().any(|rule| {
            let mut ages = Vec::new();
            rule.when.ages(&mut ages);
            ages.iter().any(|(clock, _)| clock.asks_birth())
        })
    }
}

/// Reads a policy. `owners` knows the numbers of users by their names.
///
/// # Errors
/// All that is wrong with it, in order, twenty at most.
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

/// Texts of policies stand in messages of one line.
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

/// The number of a user who is named, or is a number.
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
