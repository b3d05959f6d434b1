//! Calendar of a purge.

use jiff::{
    Timestamp, ToSpan,
    civil::{Date, Time, Weekday},
    tz::TimeZone,
};

/// Days searched for the next run: four years and a day, which contain every date.
const DAYS_AHEAD_MAX: usize = 1_462;

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Times of day on days of a calendar, as in cron. Sets are bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    /// Days of the week as bits; Sunday is 0.
    weekdays: u64,
    /// True if days of both month and week are given: cron then runs on either.
    either: bool,
}

impl Schedule {
    /// Reads `daily 03:00`, `weekly on Sunday 03:00`, `monthly on 1 03:00`, or the five fields of
    /// cron.
    ///
    /// # Errors
    /// The forms that are accepted.
    pub fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no calendar: write daily 03:00, weekly on Sunday 03:00, monthly on 1 03:00, or cron's 0 3 * * 0"
            )
        };
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower
            .split_ascii_whitespace()
            .filter(|word| !matches!(*word, "on" | "at"))
            .collect();
        let cron = match &*words {
            ["daily", time] => {
                let (hour, minute) = clock(time).ok_or_else(wrong)?;
                format!("{minute} {hour} * * *")
            }
            ["weekly", day, time] => {
                let (hour, minute) = clock(time).ok_or_else(wrong)?;
                let day = weekday(day).ok_or_else(wrong)?;
                format!("{minute} {hour} * * {day}")
            }
            ["monthly", day, time] => {
                let (hour, minute) = clock(time).ok_or_else(wrong)?;
                format!("{minute} {hour} {day} * *")
            }
            [_, _, _, _, _] => words.join(" "),
            _ => return Err(wrong()),
        };
        let schedule = Self::from_cron(text, &cron).ok_or_else(wrong)?;
        let epoch = Timestamp::UNIX_EPOCH;
        if schedule.next(epoch, &TimeZone::UTC).is_none() {
            return Err(format!("`{text}` never comes"));
        }
        Ok(schedule)
    }

    fn from_cron(text: &str, cron: &str) -> Option<Self> {
        let fields: Vec<&str> = cron.split(' ').collect();
        let [minutes, hours, days, months, weekdays] = &*fields else {
            return None;
        };
        let weekday_bits = set(weekdays, 0, 7, weekday)?;
        Some(Self {
            text: text.to_owned(),
            minutes: set(minutes, 0, 59, number)?,
            hours: set(hours, 0, 23, number)?,
            days: set(days, 1, 31, number)?,
            months: set(months, 1, 12, number)?,
            // Cron accepts 7 for Sunday too.
            weekdays: (weekday_bits | weekday_bits >> 7) & 0x7f,
            either: !days.starts_with('*') && !weekdays.starts_with('*'),
        })
    }

    /// Returns the first run at or after a moment. O(days until then).
    #[must_use]
    pub fn next(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = from.to_zoned(zone.clone());
        let mut date = start.date();
        for _ in 0..DAYS_AHEAD_MAX {
            if self.has(date)
                && let Some(at) = self.first_on(date, from, zone)
            {
                return Some(at);
            }
            date = date.checked_add(1.day()).ok()?;
        }
        None
    }

    fn first_on(&self, date: Date, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        for hour in (0..24_i8).filter(|hour| self.hours >> hour & 1 == 1) {
            for minute in (0..60_i8).filter(|minute| self.minutes >> minute & 1 == 1) {
                let time = Time::new(hour, minute, 0, 0).ok()?;
                let at = date.to_datetime(time).to_zoned(zone.clone()).ok()?;
                if at.timestamp() >= from {
                    return Some(at.timestamp());
                }
            }
        }
        None
    }

    fn has(&self, date: Date) -> bool {
        let day = self.days >> date.day() & 1 == 1;
        let weekday = self.weekdays >> date.weekday().to_sunday_zero_offset() & 1 == 1;
        let chosen = if self.either {
            day || weekday
        } else {
            day && weekday
        };
        chosen && self.months >> date.month() & 1 == 1
    }

    /// Returns the calendar as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Reads `03:00` or `3:00`.
fn clock(text: &str) -> Option<(u64, u64)> {
    let (hour, minute) = text.split_once(':')?;
    let (hour, minute) = (number(hour)?, number(minute)?);
    (hour < 24 && minute < 60).then_some((hour, minute))
}

fn number(text: &str) -> Option<u64> {
    let plain = text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

/// Reads a day of the week: a name, its first three letters or its number; Sunday is 0.
fn weekday(text: &str) -> Option<u64> {
    if let Some(number) = number(text) {
        return Some(number);
    }
    let is_meant = |name: &str| text.len() >= 3 && name.starts_with(text);
    let place = WEEKDAYS.iter().position(|name| is_meant(name))?;
    let day = Weekday::from_monday_zero_offset(i8::try_from(place).ok()?).ok()?;
    u64::try_from(day.to_sunday_zero_offset()).ok()
}

/// Reads a field of cron: `*`, `*/5`, `1-5`, `1,15`, and lists of these.
fn set(field: &str, least: u64, most: u64, read: fn(&str) -> Option<u64>) -> Option<u64> {
    let mut bits = 0_u64;
    for piece in field.split(',') {
        let (range, step) = match piece.split_once('/') {
            Some((range, step)) => (range, number(step)?),
            None => (piece, 1),
        };
        let (from, to) = match (range, range.split_once('-')) {
            ("*", _) => (least, most),
            (_, Some((from, to))) => (read(from)?, read(to)?),
            (one, None) if step == 1 => (read(one)?, read(one)?),
            (one, None) => (read(one)?, most),
        };
        if step == 0 || from < least || to > most || from > to {
            return None;
        }
        let mut at = from;
        while at <= to {
            bits |= 1 << at;
            at += step;
        }
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(text: &str, from: &str) -> String {
        let schedule = Schedule::read(text).unwrap();
        let at = schedule.next(from.parse().unwrap(), &TimeZone::UTC);
        at.unwrap().to_string()
    }

    #[test]
    fn runs_come_at_or_after_a_moment() {
        // 2026-11-24 is a Tuesday.
        let from = "2026-11-24T12:00:00Z";
        for (text, wanted) in [
            ("daily 03:00", "2026-11-25T03:00:00Z"),
            ("daily at 12:00", "2026-11-24T12:00:00Z"),
            ("weekly on Sunday 03:00", "2026-11-29T03:00:00Z"),
            ("weekly on tue 11:59", "2026-12-01T11:59:00Z"),
            ("monthly on 1 03:30", "2026-12-01T03:30:00Z"),
            ("0 3 * * 0", "2026-11-29T03:00:00Z"),
            ("0 3 * * 7", "2026-11-29T03:00:00Z"),
            ("*/20 12-13 * * *", "2026-11-24T12:00:00Z"),
            ("0 3 30 * sun", "2026-11-29T03:00:00Z"),
            ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ] {
            assert_eq!(next(text, from), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_calendar_or_never_comes_is_refused() {
        for text in [
            "",
            "weekly",
            "weekly on Someday 03:00",
            "daily 24:00",
            "monthly on 32 03:00",
            "* * * *",
            "60 * * * *",
            "0 0 31 2 *",
            "*/0 * * * *",
            "5-1 * * * *",
        ] {
            assert!(Schedule::read(text).is_err(), "{text}");
        }
    }
}
