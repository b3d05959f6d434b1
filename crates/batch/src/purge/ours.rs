//! Our own policies, in TOML.

use serde::Deserialize;
use toml::Spanned;

use posthaste_types::Bytes;

use super::{
    Age, Candidates, Clock, Condition, Level, Pattern, Policy, Remark, Rule, Schedule, Stamp,
    Trigger, condition::DAY_S, owner_condition,
};
use crate::script::Complaint;

/// Longest span of a rule, in days: nobody purges after a century.
const DAYS_MAX: f64 = 36_525.0;

/// Words for clocks.
const CLOCKS: [&str; 4] = ["atime", "mtime", "ctime", "birth"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    exempt: Vec<Spanned<String>>,
    #[serde(default)]
    exempt_owners: Vec<Spanned<String>>,
    #[serde(default, rename = "rule")]
    rules: Vec<Spanned<WrittenRule>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRule {
    name: Option<String>,
    #[serde(default)]
    paths: Vec<Spanned<String>>,
    #[serde(default)]
    except: Vec<Spanned<String>>,
    #[serde(default)]
    except_owners: Vec<Spanned<String>>,
    clock: Spanned<Clocks>,
    days: Option<Spanned<f64>>,
    #[serde(default)]
    days_by_size: Vec<SizeClass>,
    watermark: Option<Watermark>,
    calendar: Option<Spanned<String>>,
    grace_days: Option<Spanned<f64>>,
    trash_days: Option<Spanned<f64>>,
    candidates: Option<Spanned<String>>,
    notice_days: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "one of atime, mtime, ctime, birth, or a list of them"
)]
enum Clocks {
    One(String),
    Latest(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeClass {
    from: Spanned<String>,
    days: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Watermark {
    high: Spanned<String>,
    low: Option<Spanned<String>>,
}

/// Reads a policy in our TOML.
pub(super) fn read(
    text: &str,
    owners: &dyn Fn(&str) -> Option<u32>,
) -> Result<Policy, Vec<Complaint>> {
    let written: Written = toml::from_str(text).map_err(|cause| {
        let at = cause.span().map_or(0, |span| span.start);
        vec![Complaint::new(line_of(text, at), one_line(cause.message()))]
    })?;
    let mut reader = Reader {
        text,
        owners,
        complaints: Vec::new(),
        remarks: Vec::new(),
    };
    let mut rules = Vec::new();
    let mut exempt = reader.patterns(&written.exempt);
    exempt.extend(reader.owners_of(&written.exempt_owners));
    if !exempt.is_empty() {
        rules.push(Rule::keep("exempt", 1, Condition::Any(exempt)));
    }
    for (place, rule) in written.rules.iter().enumerate() {
        let line = line_of(text, rule.span().start);
        rules.extend(reader.rule(place, line, rule.get_ref()));
    }
    if reader.complaints.is_empty() {
        Ok(Policy {
            rules,
            remarks: reader.remarks,
        })
    } else {
        reader.complaints.sort_by_key(|complaint| complaint.line);
        Err(reader.complaints)
    }
}

struct Reader<'a> {
    text: &'a str,
    owners: &'a dyn Fn(&str) -> Option<u32>,
    complaints: Vec<Complaint>,
    remarks: Vec<Remark>,
}

impl Reader<'_> {
    fn complain<T>(&mut self, about: &Spanned<T>, what: impl Into<String>) {
        let line = line_of(self.text, about.span().start);
        self.complaints.push(Complaint::new(line, what));
    }

    fn rule(&mut self, place: usize, line: usize, written: &WrittenRule) -> Option<Rule> {
        let clock = self.clock(&written.clock)?;
        let mut all = Vec::new();
        if !written.paths.is_empty() {
            all.push(Condition::Any(self.patterns(&written.paths)));
        }
        let mut except = self.patterns(&written.except);
        except.extend(self.owners_of(&written.except_owners));
        if !except.is_empty() {
            all.push(Condition::Not(Box::new(Condition::Any(except))));
        }
        all.push(self.ages(line, &clock, written)?);
        let name = written
            .name
            .clone()
            .unwrap_or_else(|| (place + 1).to_string());
        let mut rule = Rule::purge(&name, line, Condition::All(all));
        rule.trigger = self.trigger(written)?;
        rule.grace_s = self.optional_days(written.grace_days.as_ref());
        rule.trash_s = self.optional_days(written.trash_days.as_ref());
        let notice_s = self.optional_days(written.notice_days.as_ref());
        match (&written.candidates, &written.notice_days) {
            (Some(files), Some(_)) => {
                rule.candidates = Some(Candidates {
                    files: files.get_ref().clone(),
                    notice_s,
                });
            }
            (Some(files), None) => {
                self.complain(files, "`candidates` wants `notice_days` beside it");
            }
            (None, Some(days)) => self.complain(days, "`notice_days` wants `candidates` beside it"),
            (None, None) => {}
        }
        Some(rule)
    }

    fn clock(&mut self, written: &Spanned<Clocks>) -> Option<Clock> {
        let names = match written.get_ref() {
            Clocks::One(name) => std::slice::from_ref(name),
            Clocks::Latest(names) => names,
        };
        let mut stamps = Vec::new();
        for name in names {
            stamps.push(match &**name {
                "atime" => Stamp::Accessed,
                "mtime" => Stamp::Modified,
                "ctime" => Stamp::Changed,
                "birth" => Stamp::Born,
                other => {
                    let line = line_of(self.text, written.span().start);
                    let complaint = Complaint::unknown(line, other, "clock", &CLOCKS);
                    self.complaints.push(complaint);
                    return None;
                }
            });
        }
        let clock = Clock::latest_of(stamps);
        if clock.is_none() {
            self.complain(written, "`clock` names no clock");
        }
        clock
    }

    /// Reads `days` for all files, or by size: a file's class is the one with the largest `from`
    /// that it reaches.
    fn ages(&mut self, line: usize, clock: &Clock, written: &WrittenRule) -> Option<Condition> {
        let mut classes = Vec::new();
        if let Some(days) = &written.days {
            classes.push((0, self.days(days)?));
        }
        for class in &written.days_by_size {
            let Ok(from) = class.from.get_ref().parse::<Bytes>() else {
                let what = format!("`{}` is no size: write 10GB", class.from.get_ref());
                self.complain(&class.from, what);
                return None;
            };
            if classes.iter().any(|(known, _)| *known == from.get()) {
                let what = format!("there are two classes from {from}");
                self.complain(&class.from, what);
                return None;
            }
            classes.push((from.get(), self.days(&class.days)?));
        }
        if classes.is_empty() {
            let what = "a rule wants `days`, or `days_by_size`";
            self.complaints.push(Complaint::new(line, what));
            return None;
        }
        classes.sort_unstable();
        let mut any = Vec::new();
        for (place, (from, seconds)) in classes.iter().enumerate() {
            let mut all = Vec::new();
            if *from > 0 {
                all.push(Condition::SizeFrom(*from));
            }
            if let Some((next, _)) = classes.get(place + 1) {
                all.push(Condition::Not(Box::new(Condition::SizeFrom(*next))));
            }
            all.push(Condition::Age(clock.clone(), Age::Seconds(*seconds)));
            any.push(Condition::All(all));
        }
        Some(Condition::Any(any))
    }

    fn trigger(&mut self, written: &WrittenRule) -> Option<Trigger> {
        match (&written.watermark, &written.calendar) {
            (None, None) => Some(Trigger::Continuous),
            (Some(watermark), None) => Some(Trigger::Watermark {
                high: self.level(&watermark.high)?,
                low: match &watermark.low {
                    None => None,
                    Some(low) => Some(self.level(low)?),
                },
            }),
            (None, Some(calendar)) => match Schedule::read(calendar.get_ref()) {
                Ok(schedule) => Some(Trigger::Calendar(schedule)),
                Err(what) => {
                    self.complain(calendar, what);
                    None
                }
            },
            (Some(_), Some(calendar)) => {
                self.complain(
                    calendar,
                    "a rule has a `watermark` or a `calendar`, not both",
                );
                None
            }
        }
    }

    fn level(&mut self, written: &Spanned<String>) -> Option<Level> {
        let level = level(written.get_ref());
        if level.is_none() {
            let what = format!(
                "`{}` is no level: write \"80%\", \"500TB\" or \"100M files\"",
                written.get_ref()
            );
            self.complain(written, what);
        }
        level
    }

    fn optional_days(&mut self, days: Option<&Spanned<f64>>) -> i64 {
        days.and_then(|days| self.days(days)).unwrap_or(0)
    }

    /// Converts days to seconds.
    fn days(&mut self, days: &Spanned<f64>) -> Option<i64> {
        if !(0.0..=DAYS_MAX).contains(days.get_ref()) {
            let what = format!("{} days are no age: from 0 to {DAYS_MAX}", days.get_ref());
            self.complain(days, what);
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "in range"
        )]
        Some((days.get_ref() * DAY_S as f64).round() as i64)
    }

    fn patterns(&mut self, written: &[Spanned<String>]) -> Vec<Condition> {
        let mut patterns = Vec::new();
        for one in written {
            match Pattern::path(one.get_ref()) {
                Ok(pattern) => patterns.push(Condition::Path(pattern)),
                Err(cause) => {
                    let what = format!("`{}` is no pattern: {cause}", one.get_ref());
                    self.complain(one, what);
                }
            }
        }
        patterns
    }

    fn owners_of(&mut self, written: &[Spanned<String>]) -> Vec<Condition> {
        let owners = written.iter().map(|one| {
            let line = line_of(self.text, one.span().start);
            owner_condition(one.get_ref(), line, self.owners, &mut self.remarks)
        });
        owners.collect()
    }
}

/// Reads `80%`, `500TB` or `100M files`.
fn level(text: &str) -> Option<Level> {
    if let Some(percent) = text.strip_suffix('%') {
        return permille(percent.trim()).map(Level::Permille);
    }
    if let Some(files) = text.strip_suffix("files") {
        return super::tokens::count(files.trim()).map(Level::Files);
    }
    text.parse::<Bytes>()
        .ok()
        .map(|size| Level::Used(size.get()))
}

/// Reads per cent from 0 to 100 with up to one decimal, in thousandths.
pub(super) fn permille(percent: &str) -> Option<u64> {
    let (whole, tenth) = percent.split_once('.').unwrap_or((percent, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(tenth) || whole.len() > 3 || tenth.len() > 1 {
        return None;
    }
    let permille = whole.parse::<u64>().ok()? * 10 + tenth.parse::<u64>().ok()?;
    (permille <= 1000).then_some(permille)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
