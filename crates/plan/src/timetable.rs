//! Rate limits of transfers by day and time of the week.

use alloc::{string::String, vec::Vec};
use core::{fmt, str::FromStr};
use posthaste_types::{ByteRate, Bytes};

/// Minutes of a day.
const DAY_MIN: u16 = 24 * 60;
/// Minutes of a week, which starts on Monday.
const WEEK_MIN: u16 = 7 * DAY_MIN;
/// Most changes of a timetable: nobody writes more a week by hand.
const SWITCHES_MAX: usize = 7 * 48;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Rate limits from given times on, repeated each week. Written as rclone's `--bwlimit`: `10M`, or
/// `08:00,512k 18:00,off`, or `Mon-08:00,10M Fri-18:00,off`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Timetable {
    /// Changes by minute of the week, at most one per minute.
    switches: Vec<Switch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Switch {
    minute: u16,
    limit: Option<ByteRate>,
}

/// A timetable that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimetableError {
    word: String,
}

impl fmt::Display for TimetableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no rate: write bytes a second like 10M, off, or a timetable like \
             \"08:00,10M 18:00,off\" or \"Mon-08:00,10M Sat-00:00,off\"",
            self.word
        )
    }
}

impl core::error::Error for TimetableError {}

impl Timetable {
    /// Returns a timetable with one limit at all times.
    #[must_use]
    pub fn constant(limit: Option<ByteRate>) -> Self {
        let switches = limit.map(|limit| Switch {
            minute: 0,
            limit: Some(limit),
        });
        Self {
            switches: switches.into_iter().collect(),
        }
    }

    /// Returns the limit at a minute of the week, counted from Monday 00:00 in the timetable's time
    /// zone.
    #[must_use]
    pub fn limit_at(&self, minute: u16) -> Option<ByteRate> {
        let minute = minute % WEEK_MIN;
        let passed = self.switches.iter().rev();
        let last = passed.clone().find(|switch| switch.minute <= minute);
        // Before the first change of the week, the last one of the week before applies.
        last.or_else(|| passed.clone().next())?.limit
    }

    /// Returns whether the limit ever changes.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.switches.len() > 1
    }
}

fn read_limit(text: &str) -> Option<Option<ByteRate>> {
    if text.eq_ignore_ascii_case("off") {
        return Some(None);
    }
    let rate: Bytes = text.parse().ok()?;
    // A rate of zero is no limit, as with rclone.
    Some((rate > Bytes::ZERO).then(|| ByteRate::new(rate.get())))
}

/// Reads minutes since midnight.
fn read_time(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, below: u16| -> Option<u16> {
        let is_number = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let value: u16 = is_number.then(|| text.parse().ok())??;
        (value < below).then_some(value)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

/// Reads the minutes of the week at which `[Day-]HH:MM,RATE` sets its limit.
fn read_word(word: &str) -> Option<(Vec<u16>, Option<ByteRate>)> {
    let (time, limit) = word.split_once(',')?;
    let limit = read_limit(limit)?;
    let minutes = match time.split_once('-') {
        Some((day, time)) => {
            let day = DAYS
                .iter()
                .position(|name| name.eq_ignore_ascii_case(day))?;
            Vec::from([u16::try_from(day).ok()? * DAY_MIN + read_time(time)?])
        }
        None => {
            let minute = read_time(time)?;
            (0..7).map(|day| day * DAY_MIN + minute).collect()
        }
    };
    Some((minutes, limit))
}

impl FromStr for Timetable {
    type Err = TimetableError;

    fn from_str(text: &str) -> Result<Self, TimetableError> {
        let error = |word: &str| TimetableError {
            word: word.chars().take(80).collect(),
        };
        let text = text.trim();
        if let Some(limit) = read_limit(text) {
            return Ok(Self::constant(limit));
        }
        let mut switches: Vec<Switch> = Vec::new();
        for word in text.split_whitespace() {
            let (minutes, limit) = read_word(word).ok_or_else(|| error(word))?;
            if switches.len() + minutes.len() > SWITCHES_MAX {
                return Err(error(word));
            }
            switches.extend(minutes.into_iter().map(|minute| Switch { minute, limit }));
        }
        if switches.is_empty() {
            return Err(error(text));
        }
        switches.sort_by_key(|switch| switch.minute);
        if let Some(twice) = switches
            .windows(2)
            .find(|pair| pair[0].minute == pair[1].minute)
        {
            let minute = twice[0].minute % DAY_MIN;
            return Err(error(&alloc::format!(
                "{:02}:{:02} twice",
                minute / 60,
                minute % 60
            )));
        }
        Ok(Self { switches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(text: &str, day: u16, time: &str) -> Option<u64> {
        let minute = day * DAY_MIN + read_time(time).unwrap();
        let table: Timetable = text.parse().unwrap();
        table.limit_at(minute).map(ByteRate::get)
    }

    #[test]
    fn a_rate_alone_holds_always() {
        assert_eq!(limit("10M", 3, "12:00"), Some(10 << 20));
        assert_eq!(limit("off", 3, "12:00"), None);
        assert_eq!(limit("0", 3, "12:00"), None);
        assert!(!"10M".parse::<Timetable>().unwrap().changes());
    }

    #[test]
    fn limits_hold_until_the_next_one_of_the_day_or_week() {
        let daily = "08:00,200M 18:00,off";
        assert_eq!(limit(daily, 0, "07:59"), None);
        assert_eq!(limit(daily, 0, "08:00"), Some(200 << 20));
        assert_eq!(limit(daily, 6, "17:59"), Some(200 << 20));
        assert_eq!(limit(daily, 6, "18:00"), None);
        let weekly = "Mon-08:00,1K Fri-20:00,off";
        assert_eq!(limit(weekly, 0, "07:00"), None);
        assert_eq!(limit(weekly, 2, "03:00"), Some(1 << 10));
        assert_eq!(limit(weekly, 4, "20:00"), None);
        assert_eq!(limit("Wed-00:00,1K", 0, "00:00"), Some(1 << 10));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for text in [
            "",
            "fast",
            "8,1M",
            "25:00,1M",
            "08:60,1M",
            "Mon-8:00",
            "08:00,1M 08:00,2M",
            "Xyz-08:00,1M",
        ] {
            assert!(text.parse::<Timetable>().is_err(), "{text}");
        }
        let error = "08:00,1M noon,off".parse::<Timetable>().unwrap_err();
        assert!(alloc::format!("{error}").contains("`noon,off`"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(table) = text.parse::<Timetable>() {
                let _ = table.limit_at(u16::MAX);
            }
        }
    }
}
