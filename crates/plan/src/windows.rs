//! Weekly hours at which a depot's owner lends it.

use alloc::{format, string::String, vec, vec::Vec};
use core::{fmt, str::FromStr};
use posthaste_types::{Timestamp, record};

use crate::Curve;

/// Minutes of a day, and of a week, which starts on Monday.
const DAY_MIN: u64 = 24 * 60;
const WEEK_MIN: u64 = 7 * DAY_MIN;
const MINUTE_MICROS: u64 = 60_000_000;
/// Minutes from Monday to 1970-01-01, a Thursday.
const EPOCH_MIN: u64 = 3 * DAY_MIN;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// Most openings a week: nobody writes more by hand.
const OPENINGS_MAX: usize = 7 * 24;
/// Opening of hours that are never open: an empty list would always be open.
const NEVER: (u64, u64) = (0, 0);

record! {
    /// Weekly hours during which something may be used. Written as `20-06`, `20:30-06:00`, `Mon-Fri
    /// 20-06, Sat-Sun 00-24`; without any it is always open.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Windows {
        /// Openings in minutes of the week, from and until: in order, none touches another, the
        /// last may end in the week after.
        open: Vec<(u64, u64)>,
        /// Text as written, without white space.
        text: String,
        /// Minutes that local time is ahead of UTC, modulo a week.
        ahead_min: u64,
    }
}

/// Hours that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowsError {
    word: String,
}

impl fmt::Display for WindowsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` are no hours: write 20-06, 20:30-06:00, or days before them like \
             \"Mon-Fri 20-06, Sat-Sun 00-24\"",
            self.word
        )
    }
}

impl core::error::Error for WindowsError {}

impl Windows {
    /// Returns these hours for a clock this many minutes ahead of UTC.
    #[must_use]
    pub fn ahead_of_utc(mut self, minutes: i32) -> Self {
        let week = WEEK_MIN.cast_signed();
        self.ahead_min = i64::from(minutes).rem_euclid(week).cast_unsigned();
        self
    }

    /// Returns the hours at which both are open, each by its own clock.
    #[must_use]
    pub fn meeting(&self, other: &Self) -> Self {
        if other.is_always() {
            return self.clone();
        }
        if self.is_always() {
            return other.clone();
        }
        let (ours, theirs) = (self.in_utc(), other.in_utc());
        let pairs = ours.iter().flat_map(|&(from, to)| {
            let both = theirs
                .iter()
                .map(move |span| (from.max(span.0), to.min(span.1)));
            both.filter(|(from, to)| from < to)
        });
        let mut open: Vec<_> = pairs.collect();
        if open.is_empty() {
            open.push(NEVER);
        }
        Self {
            open,
            text: format!("{} and {}", self.with_clock(), other.with_clock()),
            ahead_min: 0,
        }
    }

    /// Returns the openings of one week, which begins on Monday in UTC: in order, none touches
    /// another.
    fn in_utc(&self) -> Vec<(u64, u64)> {
        let spans = self.open.iter().flat_map(|&(from, to)| {
            let lasts = to.saturating_sub(from).min(WEEK_MIN);
            let from = (from + WEEK_MIN - self.ahead_min) % WEEK_MIN;
            let to = from + lasts;
            [(from, to.min(WEEK_MIN)), (0, to.saturating_sub(WEEK_MIN))]
        });
        merge(spans.filter(|(from, to)| from < to).collect())
    }

    /// Returns the text as written, with the clock if that is not UTC.
    fn with_clock(&self) -> String {
        let ahead = self.ahead_min;
        let (sign, off) = if ahead > WEEK_MIN / 2 {
            ('-', WEEK_MIN - ahead)
        } else {
            ('+', ahead)
        };
        match off {
            0 => self.text.clone(),
            _ => format!("{} (UTC{sign}{:02}:{:02})", self.text, off / 60, off % 60),
        }
    }

    /// Returns whether it is open at all times.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether it is open at this moment.
    #[must_use]
    pub fn is_open(&self, at: Timestamp) -> bool {
        let minute = self.minute(at);
        self.is_always() || self.spans().any(|(from, to)| from <= minute && minute < to)
    }

    /// Returns the first moment after `at` at which it opens or closes; none if it never does.
    #[must_use]
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_always() {
            return None;
        }
        let minute = self.minute(at);
        let edges = self.spans().flat_map(|(from, to)| [from, to]);
        // An edge that another opening continues does not count. Hours that do not change within a
        // week never do.
        let ahead = minute + 1..=minute + WEEK_MIN;
        let is_edge = |edge: &u64| {
            ahead.contains(edge)
                && self.is_open_in(*edge) != self.is_open_in(edge.saturating_sub(1))
        };
        let next = edges.filter(is_edge).min()?;
        let whole = at.as_micros() / MINUTE_MICROS + (next - minute);
        Some(Timestamp::from_micros(whole * MINUTE_MICROS))
    }

    /// Sets the curve to zero wherever this is closed between two moments.
    pub fn close(&self, curve: &mut Curve, from: Timestamp, until: Timestamp) {
        let mut at = from;
        while at < until {
            let next = self.next_change(at).map_or(until, |next| next.min(until));
            if !self.is_open(at) {
                curve.close(at, next);
            }
            at = next;
        }
    }

    /// Returns the minute of the week in local time.
    fn minute(&self, at: Timestamp) -> u64 {
        (at.as_micros() / MINUTE_MICROS + EPOCH_MIN + self.ahead_min) % WEEK_MIN
    }

    fn is_open_in(&self, minute: u64) -> bool {
        self.spans().any(|(from, to)| from <= minute && minute < to)
    }

    /// Iterates over the openings of the week before, of this one and the next.
    fn spans(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.open.iter().filter_map(|&(from, to)| {
            Some((from.saturating_sub(WEEK_MIN), to.checked_sub(WEEK_MIN)?))
        });
        let after = self
            .open
            .iter()
            .map(|&(from, to)| (from + WEEK_MIN, to + WEEK_MIN));
        before.chain(self.open.iter().copied()).chain(after)
    }
}

/// Reads minutes since midnight from `20` or `20:30`; `24` is the end of the day.
fn read_time(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str, most: u64| -> Option<u64> {
        let is_number =
            (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let value: u64 = is_number.then(|| text.parse().ok())??;
        (value <= most).then_some(value)
    };
    let minute = number(hours, 24)? * 60 + number(minutes, 59)?;
    (minute <= DAY_MIN).then_some(minute)
}

/// Reads the days of `Mon` or `Mon-Fri`, from Monday = 0; a range may go over the end of the week.
fn read_days(text: &str) -> Option<Vec<u64>> {
    let day = |text: &str| {
        let place = DAYS.iter().position(|name| name.eq_ignore_ascii_case(text));
        place.and_then(|place| u64::try_from(place).ok())
    };
    let Some((first, last)) = text.split_once('-') else {
        return Some(vec![day(text)?]);
    };
    let (first, last) = (day(first)?, day(last)?);
    let count = (last + 7 - first) % 7 + 1;
    Some((0..count).map(|place| (first + place) % 7).collect())
}

/// Reads the openings of `[DAYS ]FROM-TO`.
fn read_word(word: &str) -> Option<Vec<(u64, u64)>> {
    let mut words = word.split_ascii_whitespace();
    let (days, hours) = match (words.next()?, words.next()) {
        (hours, None) => ((0..7).collect(), hours),
        (days, Some(hours)) => (read_days(days)?, hours),
    };
    let (from, to) = hours.split_once('-')?;
    let (from, to) = (read_time(from)?, read_time(to)?);
    let lasts = if to > from {
        to - from
    } else {
        DAY_MIN + to - from
    };
    let is_whole = words.next().is_none() && from < DAY_MIN && lasts <= DAY_MIN;
    let open = days.into_iter().map(|day| day * DAY_MIN + from);
    is_whole.then(|| open.map(|from| (from, from + lasts)).collect())
}

/// Sorts openings and merges those that touch.
fn merge(mut open: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    open.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, to) in open {
        match merged.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => merged.push((from, to)),
        }
    }
    merged
}

impl FromStr for Windows {
    type Err = WindowsError;

    fn from_str(text: &str) -> Result<Self, WindowsError> {
        let mut open = Vec::new();
        for word in text.split(',').map(str::trim) {
            let read = read_word(word).filter(|_| open.len() <= OPENINGS_MAX);
            open.extend(read.ok_or_else(|| WindowsError { word: word.into() })?);
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        Ok(Self {
            open: merge(open),
            text: words.join(" "),
            ahead_min: 0,
        })
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_always() {
            return f.write_str("always");
        }
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::time::Duration;
    use posthaste_types::{ByteRate, Record};
    use proptest::prelude::*;

    /// Monday, 2027-01-11 00:00 UTC.
    const MONDAY: Timestamp = Timestamp::from_secs(1_799_625_600);

    fn at(hours: u64) -> Timestamp {
        MONDAY + Duration::from_secs(hours * 3600)
    }

    #[test]
    fn a_night_goes_over_midnight_and_over_the_week() {
        let windows: Windows = "20-06".parse().unwrap();
        for (hour, open) in [
            (0, true),
            (5, true),
            (6, false),
            (19, false),
            (20, true),
            (23, true),
        ] {
            for day in 0..8 {
                assert_eq!(
                    windows.is_open(at(day * 24 + hour)),
                    open,
                    "day {day}, {hour}"
                );
            }
        }
        assert_eq!(windows.next_change(at(7)), Some(at(20)));
        assert_eq!(windows.next_change(at(20)), Some(at(30)));
        assert_eq!(windows.next_change(at(6 * 24 + 21)), Some(at(7 * 24 + 6)));
    }

    #[test]
    fn days_and_several_hours_are_read() {
        let windows: Windows = "Mon-Fri 20:30-06, Sat-Sun 00-24".parse().unwrap();
        assert!(!windows.is_open(at(20)));
        assert!(windows.is_open(at(21)));
        // From Friday evening it is open until Monday: Sunday ends at midnight.
        assert_eq!(windows.next_change(at(4 * 24 + 21)), Some(at(7 * 24)));
        // Openings that overlap over the end of the week leave no gap there.
        let always: Windows = "Tue-Mon 05-05, Mon 00-24".parse().unwrap();
        assert!(always.is_open(at(0)) && always.next_change(at(0)).is_none());
        let anew: Windows = "sun 00-24".parse().unwrap();
        assert!(anew.is_open(at(6 * 24 + 3)) && !anew.is_open(at(0)));
    }

    #[test]
    fn hours_are_those_of_the_place() {
        let windows: Windows = "20-06".parse().unwrap();
        let tokyo = windows.ahead_of_utc(9 * 60);
        assert!(tokyo.is_open(at(11)) && !tokyo.is_open(at(10)));
        let hawaii: Windows = "20-06".parse::<Windows>().unwrap().ahead_of_utc(-600);
        assert!(hawaii.is_open(at(6)) && !hawaii.is_open(at(5)));
    }

    #[test]
    fn what_are_no_hours_is_named() {
        for text in [
            "",
            "20",
            "20-",
            "25-06",
            "20-06-07",
            "Foo 20-06",
            "20:61-06",
            "Mon 20-06 x",
        ] {
            let error = text.parse::<Windows>().unwrap_err();
            assert!(
                error.word == text && error.to_string().contains("20-06"),
                "{text}"
            );
        }
    }

    #[test]
    fn hours_that_never_meet_are_never_open() {
        let parse = |text: &str| text.parse::<Windows>().unwrap();
        let never = parse("Mon-Fri 20-06").meeting(&parse("08-18").ahead_of_utc(-60));
        assert!(!never.is_always());
        assert!((0..200).all(|hour| !never.is_open(at(hour))));
        assert_eq!(never.next_change(at(0)), None);
        assert_eq!(never.to_string(), "Mon-Fri 20-06 and 08-18 (UTC-01:00)");
        assert_eq!(Windows::from_bytes(&never.to_bytes()), Ok(never.clone()));
        // Their meeting with other hours is never open either.
        assert!(!never.meeting(&parse("00-24")).is_open(at(1)));
        let mut curve = Curve::constant(ByteRate::new(7));
        never.close(&mut curve, at(0), at(400));
        assert_eq!(curve.rate_at(at(100)), ByteRate::ZERO);
    }

    #[test]
    fn who_says_nothing_is_always_open_and_changes_nothing() {
        let tokyo: Windows = "20-06".parse::<Windows>().unwrap().ahead_of_utc(540);
        for meeting in [
            tokyo.meeting(&Windows::default()),
            Windows::default().meeting(&tokyo),
        ] {
            assert_eq!(meeting, tokyo);
        }
        assert!(Windows::default().meeting(&Windows::default()).is_always());
        let text: Windows = " Mon-Fri\n20-06,\t Sun  00-24 ".parse().unwrap();
        assert_eq!(text.to_string(), "Mon-Fri 20-06, Sun 00-24");
    }

    /// Generates hours as people write them, in some time zone.
    fn any_windows() -> impl Strategy<Value = Windows> {
        let word = (0usize..7, 0usize..7, 0u64..24, 0u64..24, 0u64..60);
        let words = proptest::collection::vec(word, 0..4);
        (words, -14i32..14, prop::sample::select(vec![0, 30, 45])).prop_map(
            |(words, hours, minutes)| {
                let write = |(first, last, from, to, minute): &(usize, usize, u64, u64, u64)| {
                    let days = format!("{}-{}", DAYS[*first], DAYS[*last]);
                    format!("{days} {from}:{minute:02}-{to}")
                };
                let words: Vec<String> = words.iter().map(write).collect();
                let read = (!words.is_empty()).then(|| words.join(", ").parse().unwrap());
                read.unwrap_or_else(Windows::default)
                    .ahead_of_utc(hours * 60 + minutes)
            },
        )
    }

    proptest! {
        #[test]
        fn a_meeting_is_open_exactly_while_both_are(
            ours in any_windows(), theirs in any_windows(),
            minutes in proptest::collection::vec(0u64..30_000, 64),
        ) {
            let meeting = ours.meeting(&theirs);
            for minute in minutes {
                let at = MONDAY + Duration::from_secs(minute * 60);
                let both = ours.is_open(at) && theirs.is_open(at);
                prop_assert_eq!(meeting.is_open(at), both, "{} at {}", meeting, minute);
                // Nothing changes before the next change.
                let next = meeting.next_change(at);
                let until = next.unwrap_or(at + Duration::from_secs(8 * 24 * 3600));
                let mut between = at;
                while between < until {
                    prop_assert_eq!(meeting.is_open(between), both, "{} at {}", meeting, minute);
                    between = between + Duration::from_secs(1260);
                }
                prop_assert!(next.is_none_or(|next| meeting.is_open(next) != both));
            }
        }

        #[test]
        fn a_curve_is_closed_exactly_while_it_is_not_open(
            first in 0u64..24, second in 0u64..24, days in 0usize..49, start in 0u64..336,
        ) {
            let text = alloc::format!("{}-{} {first}-{second}", DAYS[days / 7], DAYS[days % 7]);
            let windows: Windows = text.parse().unwrap();
            let mut curve = Curve::constant(ByteRate::new(7));
            windows.close(&mut curve, at(start), at(start + 400));
            for hour in start..start + 400 {
                let rate = curve.rate_at(at(hour)).get();
                prop_assert_eq!(rate == 7, windows.is_open(at(hour)), "{} at {}", text, hour);
            }
        }
    }
}
