//! Dates and times in the forms of protocols, in UTC.

use crate::FileTime;

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Parses an HTTP date (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn parse_http(text: &str) -> Option<FileTime> {
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let day = words.next()?.parse().ok()?;
    let month = month_of(words.next()?)?;
    let year = words.next()?.parse().ok()?;
    let mut clock = [0i64; 3];
    for field in &mut clock {
        *field = words.next()?.parse().ok()?;
    }
    moment([year, month, day], clock, 0)
}

/// Formats an HTTP date.
pub(crate) fn show_http(time: FileTime) -> String {
    let (days, second) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let [year, month, day] = civil_from_days(days);
    // The first of January 1970 was a Thursday.
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]
        [usize::try_from(days.rem_euclid(7)).unwrap_or(0)];
    let start = usize::try_from(month - 1).unwrap_or(0) * 3;
    let name = &MONTHS[start..start + 3];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Parses a time of RFC 3339: `2009-10-12T17:50:30.25Z`, `2009-10-12T19:50:30+02:00`.
pub(crate) fn parse_rfc3339(text: &str) -> Option<FileTime> {
    let (day, rest) = text.split_once('T')?;
    let cut = rest.find(['Z', '+', '-'])?;
    let (clock, zone) = rest.split_at(cut);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut nanos = 0;
    for place in 0..9 {
        let digit = fraction
            .as_bytes()
            .get(place)
            .map_or(Some(0), |byte| char::from(*byte).to_digit(10))?;
        nanos = nanos * 10 + digit;
    }
    let local = moment(numbers(day, '-')?, numbers(clock, ':')?, nanos)?;
    Some(FileTime {
        secs: local.secs - offset_secs(zone)?,
        ..local
    })
}

/// Formats a time for [`parse_rfc3339`], with nanoseconds; `None` outside the years that have four
/// digits.
pub(crate) fn show_rfc3339(time: FileTime) -> Option<String> {
    let (days, second) = (time.secs.div_euclid(86_400), time.secs.rem_euclid(86_400));
    let [year, month, day] = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let nanos = time.nanos;
    (0..=9999).contains(&year).then(|| {
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
    })
}

/// Returns the seconds by which a time zone is east of UTC: `Z`, `+02:00`.
fn offset_secs(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(zone.get(1..)?, ':')?;
    let in_range = (0..24).contains(&hours) && (0..60).contains(&minutes);
    in_range.then_some(sign * (hours * 3600 + minutes * 60))
}

/// Parses the numbers between `mark`s.
fn numbers<const COUNT: usize>(text: &str, mark: char) -> Option<[i64; COUNT]> {
    let mut words = text.split(mark);
    let mut numbers = [0; COUNT];
    for number in &mut numbers {
        *number = words.next()?.parse().ok()?;
    }
    words.next().is_none().then_some(numbers)
}

/// Returns the month that an English abbreviation names, from 1.
pub(crate) fn month_of(name: &str) -> Option<i64> {
    let place = MONTHS.find(name).filter(|_| name.len() == 3)?;
    (place % 3 == 0).then_some(i64::try_from(place / 3 + 1).ok()?)
}

/// Returns the time of a date and a time of day. Years have four digits, as in every such form:
/// more would overflow.
pub(crate) fn moment(date: [i64; 3], clock: [i64; 3], nanos: u32) -> Option<FileTime> {
    let [year, month, day] = date;
    let in_range =
        (0..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let [hour, minute, second] = clock;
    let in_day = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    (in_range && in_day).then(|| FileTime {
        secs: days_from_civil(date) * 86_400 + hour * 3600 + minute * 60 + second,
        nanos,
    })
}

/// Returns the days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn days_from_civil([year, month, day]: [i64; 3]) -> i64 {
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let (era, year_of_era) = (y.div_euclid(400), y.rem_euclid(400));
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * m + 2) / 5 + day - 1;
    era * 146_097 + day_of_era - 719_468
}

/// Returns the date of a day since 1970, by the same source.
pub(crate) fn civil_from_days(days: i64) -> [i64; 3] {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let m = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * m + 2) / 5 + 1;
    let month = if m < 10 { m + 3 } else { m - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    [year, month, day]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(secs: i64, nanos: u32) -> Option<FileTime> {
        Some(FileTime { secs, nanos })
    }

    #[test]
    fn http_dates_are_read_and_written() {
        for (text, secs) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
        ] {
            assert_eq!(parse_http(text), time(secs, 0));
            assert_eq!(show_http(FileTime { secs, nanos: 0 }), text);
        }
        assert_eq!(parse_http("yesterday"), None);
        assert_eq!(parse_http("Sun, 06 Nuv 1994 08:49:37 GMT"), None);
        assert_eq!(parse_http("Sun, 06 anF 1994 08:49:37 GMT"), None);
        assert_eq!(parse_http("Sun, 06 Nov 1994 25:49:37 GMT"), None);
        // Years that overflow their counter.
        assert_eq!(parse_http("Sun, 06 Nov 9999999999999 08:49:37 GMT"), None);
        assert_eq!(parse_http("Sun, 06 Nov -1 08:49:37 GMT"), None);
    }

    #[test]
    fn moments_of_rfc_3339_are_read_and_written() {
        for (text, secs, nanos) in [
            ("2009-10-12T17:50:30.000Z", 1_255_369_830, 0),
            ("2009-10-12T19:50:30+02:00", 1_255_369_830, 0),
            ("2009-10-12T12:20:30.5-05:30", 1_255_369_830, 500_000_000),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0),
            ("1969-12-31T23:59:59.5Z", -1, 500_000_000),
        ] {
            assert_eq!(parse_rfc3339(text), time(secs, nanos), "{text}");
            let shown = show_rfc3339(FileTime { secs, nanos }).unwrap();
            assert_eq!(parse_rfc3339(&shown), time(secs, nanos), "{shown}");
        }
        let (secs, nanos) = (1_600_000_000, 123_456_789);
        assert_eq!(
            show_rfc3339(FileTime { secs, nanos }).as_deref(),
            Some("2020-09-13T12:26:40.123456789Z")
        );
        let endless = "9999999999999-02-29T00:00:00Z";
        for text in [
            endless,
            "2024-02-29",
            "2024-02T00:00:00Z",
            "2024-02-29T00:00:00",
            "2024-02-29T00:00:00.xZ",
            "2024-02-29T00:00:00+25:00",
            "2024-02-29T00:00:00+2",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        for secs in [i64::MIN, i64::MAX, -100_000_000_000] {
            assert_eq!(show_rfc3339(FileTime { secs, nanos: 0 }), None, "{secs}");
        }
    }
}
