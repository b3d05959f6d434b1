//! Times after 2038, which 32 bits don't tell from those before 1970.
//!
//! With each name of a list OpenSSH sends a line for people, as of `ls -l`. It has the year of a
//! time in the past, and the hour of one ahead. What a line showed of a value holds for its host:
//! answers about a single file have no line.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    attributes::is_vague,
    parent_of,
    session::Session,
    wire::{Attributes, CLOSE, OPENDIR, READDIR, Reply, Request},
};

/// Most values remembered; such times are rare.
const KNOWN_MAX: usize = 1 << 16;

/// Answers read of a directory to find one name: 100,000 names with OpenSSH.
const ANSWERS_MAX: usize = 1000;

/// First year that is no year before 1970 with a larger number.
const LATE_YEAR_MIN: u32 = 2038;

/// Word of a line that is the hour or the year.
const WHEN_AT: usize = 7;

/// Values of a host that stand for two times, by whether the later one is meant.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<BTreeMap<u32, bool>>);

impl Known {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<u32, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers which of two times is meant.
    fn note(&self, field: u32, is_late: bool) {
        let mut known = self.locked();
        if known.len() < KNOWN_MAX {
            known.insert(field, is_late);
        }
    }

    /// Returns the attributes with the time that is meant, as far as a line ever showed it.
    pub(super) fn settled(&self, attributes: Attributes) -> Attributes {
        let Some(field) = attributes.mtime.filter(|field| is_vague(*field)) else {
            return attributes;
        };
        if let Some(is_late) = attributes.late {
            self.note(field, is_late);
            return attributes;
        }
        Attributes {
            late: self.locked().get(&field).copied(),
            ..attributes
        }
    }

    /// Remembers what the line of a file shows. Without one its time stays that before 1970.
    pub(super) fn note_line(&self, attributes: &Attributes, line: Option<bool>) {
        if let Some(field) = attributes.mtime {
            self.note(field, line.unwrap_or(false));
        }
    }

    /// Returns whether nothing is known yet of a time that may be two.
    pub(super) fn wants_line(&self, attributes: &Attributes) -> bool {
        let vague = attributes.mtime.filter(|field| is_vague(*field));
        vague.is_some_and(|field| {
            let known = self.locked();
            known.len() < KNOWN_MAX && !known.contains_key(&field)
        })
    }
}

/// Looks for the line of a file in the list of its directory, and returns what that shows.
pub(super) async fn line_of(session: &Session, full: &[u8]) -> Option<bool> {
    let name = full.rsplit(|&byte| byte == b'/').next()?;
    let open = Request::new(OPENDIR).string(parent_of(full));
    let Ok(Reply::Handle(handle)) = session.ask(open).await else {
        return None;
    };
    let mut line = None;
    for _ in 0..ANSWERS_MAX {
        let answer = session.ask(Request::new(READDIR).string(&handle)).await;
        let Ok(Reply::Names(names)) = answer else {
            break;
        };
        let found = names.iter().find(|(found, _)| **found == *name);
        if let Some((_, attributes)) = found {
            line = attributes.late;
            break;
        }
    }
    // What is left open ends with the connection.
    let _ = session.ask(Request::new(CLOSE).string(&handle)).await;
    line
}

/// Returns whether a line shows a time ahead; none if it shows no time where OpenSSH has it.
pub(super) fn shows_late(line: &[u8]) -> Option<bool> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace().skip(WHEN_AT - 2);
    let (month, _, when) = (words.next()?, words.next()?, words.next()?);
    if !month.chars().all(char::is_alphabetic) {
        return None;
    }
    let are_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match when.split_once(':') {
        Some((hour, minute)) => (are_digits(hour) && are_digits(minute)).then_some(true),
        None if are_digits(when) && when.len() == 4 => {
            Some(when.parse::<u32>().ok()? >= LATE_YEAR_MIN)
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_which_of_two_times_is_meant() {
        for (line, late) in [
            (
                "-rw-r--r--    1 me       us             10 Jan  1  1950 old",
                Some(false),
            ),
            (
                "-rw-r--r--    1 me       us             10 Jan  1 00:00 late",
                Some(true),
            ),
            (
                "-rw-r--r--    1 1000     1000           10 Dec 31  2085 a:b",
                Some(true),
            ),
            ("-rw-r--r--   1 me us 10 1950-01-01 00:00 00:00 x", None),
            ("-rw-r--r-- 1 me us 10 Jan 1 soon x", None),
            ("late", None),
            ("", None),
        ] {
            assert_eq!(shows_late(line.as_bytes()), late, "{line}");
        }
    }

    #[test]
    fn what_a_line_showed_holds_for_answers_without_one() {
        let known = Known::default();
        let field = u32::MAX - 631_152_000;
        let told = Attributes {
            mtime: Some(field),
            ..Attributes::default()
        };
        let secs = |attributes: Attributes| attributes.file_time().unwrap().secs;
        assert!(secs(known.settled(told)) < 0 && known.wants_line(&told));
        let listed = Attributes {
            late: Some(true),
            ..told
        };
        assert_eq!(secs(known.settled(listed)), i64::from(field));
        assert_eq!(secs(known.settled(told)), i64::from(field));
        assert!(!known.wants_line(&told));
        let plain = Attributes {
            mtime: Some(5),
            ..told
        };
        assert!(secs(known.settled(plain)) == 5 && !known.wants_line(&plain));
    }
}
