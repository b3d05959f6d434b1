use alloc::{format, string::String};
use core::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

use crate::record;

record! {
    /// A moment, in microseconds since the Unix epoch. The mind gets it as an argument.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Timestamp {
        micros: u64,
    }
}

impl Timestamp {
    /// Returns the moment this many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// Returns the moment this many seconds after the Unix epoch.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self {
            micros: secs.saturating_mul(1_000_000),
        }
    }

    /// Returns the microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// Returns the time from `earlier` to here; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros.saturating_sub(earlier.micros))
    }

    /// Returns the signed microseconds from `now` to here: the slack of a deadline, negative when
    /// missed.
    #[must_use]
    pub const fn slack_micros(self, now: Self) -> i64 {
        self.micros
            .cast_signed()
            .wrapping_sub(now.micros.cast_signed())
    }
}

impl Timestamp {
    /// Returns the text as read on this day: moments of that day lose their date.
    #[must_use]
    pub fn undate(self, text: &str) -> String {
        let date = format!("{} ", self.date());
        let mut read = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(place) = rest.find(&date) {
            let (before, found) = rest.split_at(place);
            let after = &found[date.len()..];
            read.push_str(before);
            // Other dates stay, as in a user's name.
            if !is_time_of_day(after) {
                read.push_str(&date);
            }
            rest = after;
        }
        read.push_str(rest);
        read
    }

    /// Returns its date in UTC.
    ///
    /// Years are counted from the first of March, so that the odd day of a leap year is their last.
    /// They are grouped by eras of 400 years, after which the calendar repeats.
    const fn date(self) -> Date {
        const DAY_S: u64 = 86400;
        const ERA: u64 = 146_097;
        // Days from 0000-03-01 to 1970-01-01.
        let since = self.micros / 1_000_000 / DAY_S + 719_468;
        let (era, day) = (since / ERA, since % ERA);
        let year = (day - day / 1460 + day / 36_524 - day / (ERA - 1)) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let (month_now, is_next) = if month < 10 {
            (month + 3, 0)
        } else {
            (month - 9, 1)
        };
        Date {
            year: year + era * 400 + is_next,
            month: month_now,
            day: day - (153 * month + 2) / 5 + 1,
        }
    }
}

/// Returns whether a text begins with a time of day in the format of moments.
fn is_time_of_day(text: &str) -> bool {
    let form = b"00:00:00Z";
    let bytes = text.as_bytes();
    bytes.len() >= form.len()
        && bytes.iter().zip(form).all(|(byte, form)| match form {
            b'0' => byte.is_ascii_digit(),
            other => byte == other,
        })
}

/// A day as people write it: `2026-11-22`.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        let span_micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self {
            micros: self.micros.saturating_add(span_micros),
        }
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, span: Duration) -> Self {
        let span_micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self {
            micros: self.micros.saturating_sub(span_micros),
        }
    }
}

impl fmt::Display for Timestamp {
    /// Shows date and time of day in UTC, `2026-11-22 18:00:00Z`; see [`Timestamp::undate`] for
    /// texts that already name the date.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.micros / 1_000_000;
        write!(
            f,
            "{} {:02}:{:02}:{:02}Z",
            self.date(),
            secs / 3600 % 24,
            secs / 60 % 60,
            secs % 60
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (secs, expected) in [
            (0, "1970-01-01 00:00:00Z"),
            (68_169_599, "1972-02-28 23:59:59Z"),
            (68_169_600, "1972-02-29 00:00:00Z"),
            (68_256_000, "1972-03-01 00:00:00Z"),
            (951_782_400, "2000-02-29 00:00:00Z"),
            (1_800_000_000, "2027-01-15 08:00:00Z"),
            (4_107_542_400, "2100-03-01 00:00:00Z"),
            (253_402_300_799, "9999-12-31 23:59:59Z"),
        ] {
            assert_eq!(Timestamp::from_secs(secs).to_string(), expected);
        }
    }

    #[test]
    fn moments_of_the_same_day_are_read_without_their_date() {
        let today = Timestamp::from_secs(1_800_000_000);
        let later = today + Duration::from_secs(60);
        let tomorrow = today + Duration::from_secs(86_400);
        let text =
            format!("from {later} to {tomorrow}, by 2027-01-15 it is `2027-01-15 run`, {later}");
        assert_eq!(
            today.undate(&text),
            "from 08:01:00Z to 2027-01-16 08:00:00Z, by 2027-01-15 it is `2027-01-15 run`, 08:01:00Z"
        );
        assert_eq!(today.undate("2027-01-15 "), "2027-01-15 ");
        assert_eq!(today.undate("2027-01-15 08:é"), "2027-01-15 08:é");
    }
}
