//! When a depot may be used: the hours of the week its owner lends it.

use alloc::{string::String, vec, vec::Vec};
use core::{fmt, str::FromStr};
use posthaste_types::{Timestamp, record};

use crate::Curve;

/// Minutes of a day, and of a week, which starts on Monday.
const DAY_MIN: u64 = 24 * 60;
const WEEK_MIN: u64 = 7 * DAY_MIN;
const MINUTE_MICROS: u64 = 60_000_000;
/// 1970-01-01 was a Thursday.
const EPOCH_MIN: u64 = 3 * DAY_MIN;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
/// More openings than this a week nobody writes by hand.
const OPENINGS_MAX: usize = 7 * 24;

record! {
    /// Hours of the week during which something may be used, over and over. Written as `20-06`,
    /// `20:30-06:00`, `Mon-Fri 20-06, Sat-Sun 00-24`; without any it is always open.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Windows {
        /// Openings in minutes of the week, from and until: in order, none touches another, the last
        /// may end in the week after.
        open: Vec<(u64, u64)>,
        /// As they were written.
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
    /// The same hours in a place whose clock is this many minutes ahead of UTC.
    #[must_use]
    pub fn ahead_of_utc(mut self, minutes: i32) -> Self {
        let week = WEEK_MIN.cast_signed();
        self.ahead_min = i64::from(minutes).rem_euclid(week).cast_unsigned();
        self
    }

    /// Whether it is open at all times.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether it is open at this moment.
    #[must_use]
    pub fn is_open(&self, at: Timestamp) -> bool {
        let minute = self.minute(at);
        self.is_always() || self.spans().any(|(from, to)| from <= minute && minute < to)
    }

    /// The first moment after `at` at which it opens or closes; none when it never does.
    #[must_use]
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_always() {
            return None;
        }
        let minute = self.minute(at);
        let edges = self.spans().flat_map(|(from, to)| [from, to]);
        // An edge that another opening continues is none.
        let is_edge = |edge: &u64| {
            *edge > minute && self.is_open_in(*edge) != self.is_open_in(edge.saturating_sub(1))
        };
        let next = edges.filter(is_edge).min()?;
        let whole = at.as_micros() / MINUTE_MICROS + (next - minute);
        Some(Timestamp::from_micros(whole * MINUTE_MICROS))
    }

    /// Closes the curve wherever this is closed between two moments.
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

    /// The minute of the week, local time.
    fn minute(&self, at: Timestamp) -> u64 {
        (at.as_micros() / MINUTE_MICROS + EPOCH_MIN + self.ahead_min) % WEEK_MIN
    }

    fn is_open_in(&self, minute: u64) -> bool {
        self.spans().any(|(from, to)| from <= minute && minute < to)
    }

    /// The openings of the week before, of this one and the next.
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

/// Minutes since midnight, of `20` or `20:30`; `24` is the end of the day.
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

/// The days of `Mon` or `Mon-Fri`, from Monday = 0; a range may go over the end of the week.
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

/// The openings of `[DAYS ]FROM-TO`.
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

impl FromStr for Windows {
    type Err = WindowsError;

    fn from_str(text: &str) -> Result<Self, WindowsError> {
        let mut open = Vec::new();
        for word in text.split(',').map(str::trim) {
            let read = read_word(word).filter(|_| open.len() <= OPENINGS_MAX);
            open.extend(read.ok_or_else(|| WindowsError { word: word.into() })?);
        }
        open.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (from, to) in open {
            match merged.last_mut().filter(|last| from <= last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => merged.push((from, to)),
            }
        }
        Ok(Self {
            open: merged,
            text: text.into(),
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
    use posthaste_types::ByteRate;
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

    proptest! {
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
