//! Times in the formats that people write and read.

use jiff::{
    Span, Timestamp, Zoned,
    civil::{Date, DateTime, Time},
    tz::TimeZone,
};

use crate::failure::Failure;

/// Parses a deadline: a span from now (`10m`, `2h30m`, `3d`), RFC 3339, local date and time, or a
/// time of day: the next one.
///
/// # Errors
/// Returns a usage failure that shows the format.
pub fn parse_deadline(text: &str) -> Result<Timestamp, Failure> {
    parse_coming("deadline", text)
}

/// Parses the deadline of something that begins at `since`, if given: a time of day is the next one
/// after it.
///
/// # Errors
/// Fails as [`parse_deadline`] does.
pub fn parse_deadline_after(text: &str, since: Option<Timestamp>) -> Result<Timestamp, Failure> {
    let since = since.map(|since| since.to_zoned(TimeZone::system()));
    match since.and_then(|since| next_time_of_day(text, &since)) {
        Some(at) => Ok(at.timestamp()),
        None => parse_deadline(text),
    }
}

/// Returns the next moment after `after` with this time of day (`22:00`); `None` if the text is no
/// such time.
fn next_time_of_day(text: &str, after: &Zoned) -> Option<Zoned> {
    let is_plain = text.len() >= 4 && text.chars().all(|c| c.is_ascii_digit() || c == ':');
    let time: Time = text
        .parse()
        .ok()
        .filter(|_| is_plain && text.contains(':'))?;
    let on = |day: Date| {
        day.to_datetime(time)
            .to_zoned(after.time_zone().clone())
            .ok()
    };
    let today = on(after.date())?;
    if today > *after {
        return Some(today);
    }
    on(after.date().tomorrow().ok()?)
}

/// Parses any future moment, as [`parse_deadline`] does.
///
/// # Errors
/// Returns a usage failure that names `what` it is and shows the format.
pub fn parse_coming(what: &str, text: &str) -> Result<Timestamp, Failure> {
    let now = Zoned::now();
    if let Ok(span) = text.parse::<Span>() {
        let at = now
            .checked_add(span)
            .map_err(|cause| unreadable(what, text, &cause.to_string()))?;
        return later_than(&now, at.timestamp(), what, text);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return later_than(&now, at, what, text);
    }
    if let Some(at) = next_time_of_day(text, &now) {
        return Ok(at.timestamp());
    }
    let local: DateTime = text
        .parse()
        .map_err(|_| unreadable(what, text, "it is no time"))?;
    let at = local
        .to_zoned(TimeZone::system())
        .map_err(|e| unreadable(what, text, &e.to_string()))?;
    later_than(&now, at.timestamp(), what, text)
}

fn later_than(now: &Zoned, at: Timestamp, what: &str, text: &str) -> Result<Timestamp, Failure> {
    if at <= now.timestamp() {
        return Err(Failure::usage(format!(
            "can't take the {what} {text}: it has passed (give a later one)"
        )));
    }
    Ok(at)
}

fn unreadable(what: &str, text: &str, why: &str) -> Failure {
    Failure::usage(format!(
        "can't read the {what} {text}: {why} (write 10m, 2h30m, 3d, 22:00, 2026-11-20T18:00 or 2026-11-20T18:00:00Z)"
    ))
}

/// Parses a duration like `30d` or `12h`, in seconds.
///
/// # Errors
/// Returns a line that shows the format.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no length of time: write 30d, 12h or 90s");
    let span: Span = text.parse().map_err(|_| wrong())?;
    let seconds = span.total((
        jiff::Unit::Second,
        jiff::SpanRelativeTo::days_are_24_hours(),
    ));
    let seconds = seconds.map_err(|_| wrong())?;
    if !(0.0..1e11).contains(&seconds) {
        return Err(wrong());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range"
    )]
    Ok(seconds as u64)
}

/// Formats an RFC 3339 text in UTC as in reasons: the time of day, and the date if that is not
/// today.
pub fn time_of_day(rfc3339: &str) -> String {
    on_day_of(&Timestamp::now().to_string(), rfc3339)
}

fn on_day_of(today: &str, rfc3339: &str) -> String {
    let (Some(date), Some(time)) = (rfc3339.get(..10), rfc3339.get(11..19)) else {
        return rfc3339.to_owned();
    };
    if today.starts_with(date) {
        format!("{time}Z")
    } else {
        format!("{date} {time}Z")
    }
}

/// Returns the seconds from now until an RFC 3339 text; negative if it has passed.
pub fn seconds_until(rfc3339: &str) -> Option<f64> {
    let at: Timestamp = rfc3339.parse().ok()?;
    Some(at.duration_since(Timestamp::now()).as_secs_f64())
}

/// Returns the current time in Unix seconds.
pub fn unix_s() -> u64 {
    u64::try_from(Timestamp::now().as_second()).unwrap_or(0)
}

/// Formats a duration for people: `41.2 s`, `12 min`, `3.5 h`, `2.1 d`.
pub fn show_seconds(seconds: f64) -> String {
    let size = seconds.abs();
    if size < 100.0 {
        format!("{seconds:.1} s")
    } else if size < 5400.0 {
        format!("{:.0} min", seconds / 60.0)
    } else if size < 172_800.0 {
        format!("{:.1} h", seconds / 3600.0)
    } else {
        format!("{:.1} d", seconds / 86400.0)
    }
}

/// Describes a moment by the seconds until it: `in 10 min`, `4 min ago`.
pub fn from_now(seconds: f64) -> String {
    if seconds < 0.0 {
        format!("{} ago", show_seconds(-seconds))
    } else {
        format!("in {}", show_seconds(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_next_one() {
        let after: Zoned = "2026-11-28T20:30[UTC]".parse().unwrap();
        let next = |text: &str| next_time_of_day(text, &after).map(|at| at.timestamp().to_string());
        assert_eq!(next("22:00").unwrap(), "2026-11-28T22:00:00Z");
        assert_eq!(next("20:30").unwrap(), "2026-11-29T20:30:00Z");
        assert_eq!(next("07:00:01").unwrap(), "2026-11-29T07:00:01Z");
        for text in ["2026-11-28T22:00", "2h", "22", "25:00", "2200"] {
            assert_eq!(next(text), None, "{text}");
        }
    }

    #[test]
    fn moments_of_other_days_have_their_date() {
        let of = |text: &str| on_day_of("2026-11-27T21:00:00Z", text);
        assert_eq!(of("2026-11-27T23:59:59.5Z"), "23:59:59Z");
        assert_eq!(of("2026-11-28T00:00:00Z"), "2026-11-28 00:00:00Z");
        assert_eq!(of("soon"), "soon");
    }

    #[test]
    fn what_has_passed_is_so_long_ago() {
        assert_eq!(from_now(600.0), "in 10 min");
        assert_eq!(from_now(-240.0), "4 min ago");
        assert_eq!(from_now(0.0), "in 0.0 s");
    }

    #[test]
    fn deadlines_are_read_as_people_write_them() {
        for text in [
            "10m",
            "2h30m",
            "3d",
            "90s",
            "2099-01-01T00:00:00Z",
            "2099-01-01T18:00",
        ] {
            assert!(parse_deadline(text).is_ok(), "{text}");
        }
        for text in ["", "soon", "-5m", "2001-01-01T00:00:00Z"] {
            let failure = parse_deadline(text).unwrap_err().to_string();
            assert!(!failure.contains('\n'), "{failure}");
        }
    }

    #[test]
    fn lengths_of_time_are_read_in_seconds() {
        assert_eq!(parse_seconds("30d"), Ok(30 * 86400));
        assert_eq!(parse_seconds("90s"), Ok(90));
        assert!(parse_seconds("-1s").is_err());
        assert!(parse_seconds("x").is_err());
    }
}
