//! `#POSTHASTE` directives, and equivalent lines of other programs.

use posthaste_types::{Bytes, Code};

use super::{
    After, Complaint, Deadline, Lent, Release, Said, StageIn, StageOut, deadline::FORMS, words,
};

const VERBS: [&str; 3] = ["stage_in", "stage_out", "depot"];

/// Beginnings of words that Slurm reads itself in any line: space in a pool of its burst buffer.
const ROOM: [&str; 2] = ["pool=", "capacity="];

/// Reads `stage_in`, `stage_out` or `depot` with its keys, or a burst buffer request, which is
/// Slurm's.
pub(super) fn read(line: usize, text: &str) -> Result<Said, Complaint> {
    let all = words::split(line, text)?;
    let words = without(&all, &ROOM);
    match words.split_first() {
        Some((verb, rest)) if verb == "stage_in" => stage_in(line, rest),
        Some((verb, rest)) if verb == "stage_out" => stage_out(line, rest),
        Some((verb, rest)) if verb == "depot" => depot(line, rest),
        Some((verb, _)) => Err(Complaint::unknown(line, verb, "directive", &VERBS)),
        None if !all.is_empty() => Ok(Said::Nothing),
        None => Err(Complaint::new(line, "it says nothing").meant(VERBS.join(", "))),
    }
}

/// Reads a line with Slurm's or DataWarp's mark. Lines that stage nothing are theirs, as are the
/// keys for pools and kinds of files.
pub(super) fn read_alias(line: usize, text: &str) -> Result<Said, Complaint> {
    let all = words::split(line, text)?;
    let words = without(&without(&all, &ROOM), &["type=file", "type=directory"]);
    match words.split_first() {
        Some((verb, rest)) if verb == "stage_in" => stage_in(line, rest),
        Some((verb, rest)) if verb == "stage_out" => stage_out(line, rest),
        Some(_) | None => Ok(Said::Nothing),
    }
}

/// Returns the words that begin with none of these.
fn without(words: &[String], beginnings: &[&str]) -> Vec<String> {
    let is_theirs = |word: &&String| beginnings.iter().any(|begin| word.starts_with(begin));
    let ours = words.iter().filter(|word| !is_theirs(word));
    ours.cloned().collect()
}

/// Words after the verb, each key at most once.
struct Keys<'a> {
    line: usize,
    verb: &'static str,
    known: &'static [&'static str],
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Keys<'a> {
    fn read(
        line: usize,
        verb: &'static str,
        known: &'static [&'static str],
        words: &'a [String],
    ) -> Result<Self, Complaint> {
        let mut left: Vec<(&str, &str)> = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if !known.contains(&key) {
                return Err(Complaint::unknown(
                    line,
                    key,
                    &format!("key of {verb}"),
                    known,
                ));
            }
            if value.is_empty() && key != "optional" {
                return Err(
                    Complaint::new(line, format!("`{key}` has no value")).meant(format!("{key}=…"))
                );
            }
            if left.iter().any(|(other, _)| *other == key) {
                return Err(Complaint::new(line, format!("`{key}` is said twice")));
            }
            left.push((key, value));
        }
        Ok(Self {
            line,
            verb,
            known,
            left,
        })
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        debug_assert!(self.known.contains(&key));
        let found = self.left.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| *value)
    }

    fn needed(&self, key: &str) -> Result<String, Complaint> {
        let missing = || {
            let what = format!("{} without `{key}`", self.verb);
            Complaint::new(self.line, what).meant(format!("{key}=…"))
        };
        self.get(key).map(str::to_owned).ok_or_else(missing)
    }

    fn wrong(&self, key: &str, value: &str, form: &str) -> Complaint {
        let what = format!("`{key}={value}` can't be read");
        Complaint::new(self.line, what).meant(format!("{key}={form}"))
    }

    /// Parses the value of a key with `understand`.
    fn understood<T>(
        &self,
        key: &str,
        form: &str,
        understand: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Complaint> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let understood = understand(value).ok_or_else(|| self.wrong(key, value, form))?;
        Ok(Some(understood))
    }
}

/// Splits names at commas.
fn names(value: &str) -> Option<Vec<String>> {
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

fn stage_in(line: usize, words: &[String]) -> Result<Said, Complaint> {
    const KEYS: [&str; 5] = ["source", "destination", "deadline", "via", "optional"];
    let keys = Keys::read(line, "stage_in", &KEYS, words)?;
    let optional = keys.understood("optional", "yes", |value| match value {
        "" | "yes" | "true" => Some(true),
        "no" | "false" => Some(false),
        _ => None,
    })?;
    Ok(Said::StageIn(StageIn {
        line,
        source: keys.needed("source")?,
        destination: keys.needed("destination")?,
        deadline: keys.understood("deadline", FORMS, Deadline::read)?,
        via: keys
            .understood("via", "ash,birch", names)?
            .unwrap_or_default(),
        is_optional: optional.unwrap_or(false),
    }))
}

fn stage_out(line: usize, words: &[String]) -> Result<Said, Complaint> {
    const KEYS: [&str; 8] = [
        "source",
        "destination",
        "deadline",
        "via",
        "pin",
        "code",
        "release",
        "after",
    ];
    let keys = Keys::read(line, "stage_out", &KEYS, words)?;
    let release = keys.understood("release", "when-safe or never", |value| match value {
        "when-safe" => Some(Release::WhenSafe),
        "never" => Some(Release::Never),
        _ => None,
    })?;
    let after = keys.understood("after", "ok, notok or any", |value| match value {
        "ok" => Some(After::Ok),
        "notok" => Some(After::NotOk),
        "any" => Some(After::Any),
        _ => None,
    })?;
    let via = keys.understood("via", "ash,birch", names)?;
    let pin = keys.understood("pin", "ash", names)?;
    Ok(Said::StageOut(StageOut {
        line,
        source: keys.needed("source")?,
        destination: keys.needed("destination")?,
        deadline: keys.understood("deadline", FORMS, Deadline::read)?,
        via: via.unwrap_or_default(),
        pin: pin.unwrap_or_default(),
        code: keys.understood("code", "8+4", |value| value.parse::<Code>().ok())?,
        release: release.unwrap_or_default(),
        after: after.unwrap_or_default(),
    }))
}

fn depot(line: usize, words: &[String]) -> Result<Said, Complaint> {
    const FORM: &str = "depot NAME:50GB [when=20-06] [load<0.5]";
    let Some((lent, rest)) = words.split_first() else {
        return Err(Complaint::new(line, "depot without a name").meant(FORM));
    };
    let (name, space) = lent_space(lent).ok_or_else(|| {
        let what = format!("`{lent}` is no depot with its space");
        Complaint::new(line, what).meant(FORM)
    })?;
    let (mut hours, mut load_max_permille) = (None, None);
    for word in rest {
        let unreadable = || Complaint::new(line, format!("`{word}` can't be read")).meant(FORM);
        if let Some(when) = word.strip_prefix("when=") {
            let read = when.parse().map_err(|_| unreadable())?;
            if hours.replace(read).is_some() {
                return Err(Complaint::new(line, "`when` is said twice"));
            }
        } else if let Some(load) = word.strip_prefix("load<") {
            let read = permille(load).ok_or_else(unreadable)?;
            if load_max_permille.replace(read).is_some() {
                return Err(Complaint::new(line, "`load` is said twice"));
            }
        } else {
            return Err(Complaint::unknown(
                line,
                word,
                "term of a depot",
                &["when=20-06", "load<0.5"],
            ));
        }
    }
    Ok(Said::Depot(Lent {
        line,
        name: name.to_owned(),
        space,
        hours: hours.unwrap_or_default(),
        load_max_permille,
    }))
}

/// Reads `NAME:50GB`; the name may contain colons.
pub(super) fn lent_space(text: &str) -> Option<(&str, Bytes)> {
    let (name, space) = text.rsplit_once(':')?;
    let space: Bytes = space.parse().ok()?;
    (!name.is_empty() && space > Bytes::ZERO).then_some((name, space))
}

/// Reads a share such as `0.5` with up to three decimals, in thousandths.
fn permille(text: &str) -> Option<u32> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = |digits: &str| digits.bytes().all(|c| c.is_ascii_digit());
    let has_form = (1..=4).contains(&whole.len()) && rest.len() <= 3;
    if !has_form || !is_plain(whole) || !is_plain(rest) {
        return None;
    }
    let whole: u32 = whole.parse().ok()?;
    let rest: u32 = format!("{rest:0<3}").parse().ok()?;
    let permille = whole * 1000 + rest;
    (permille > 0).then_some(permille)
}
