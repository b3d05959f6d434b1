use std::{fmt, time::Duration};

use jiff::{
    SignedDuration, Span, SpanRelativeTo, Timestamp,
    civil::{Date, DateTime},
    tz::TimeZone,
};

/// Forms of deadlines.
pub(super) const FORMS: &str = "2h, 1d12h, 2026-12-01T18:00 or 2026-12-01";

/// Longest span: a longer one is a typing error.
const SPAN_MAX: Duration = Duration::from_secs(400 * 86_400);

/// Deadline in a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// Span after the submission, or after the end of the job.
    Within(Duration),
    /// Moment in time.
    At(Timestamp),
    /// Local time of the centre.
    Local(DateTime),
}

impl Deadline {
    /// Returns the moment, for a span that begins at `from`; `None` if it is out of range.
    #[must_use]
    pub fn moment(&self, from: Timestamp, centre: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Within(span) => {
                let span = SignedDuration::try_from(*span).ok()?;
                from.checked_add(span).ok()
            }
            Self::At(moment) => Some(*moment),
            Self::Local(local) => {
                let zoned = local.to_zoned(centre.clone());
                zoned.ok().map(|zoned| zoned.timestamp())
            }
        }
    }

    /// Reads a span (`2h`), a moment with its zone, a local time, or a day, which means its end.
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Ok(span) = text.parse::<Span>() {
            let seconds = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
            let span = Duration::try_from(seconds).ok()?;
            return (!span.is_zero() && span <= SPAN_MAX).then_some(Self::Within(span));
        }
        if let Ok(moment) = text.parse::<Timestamp>() {
            return Some(Self::At(moment));
        }
        let is_day = !text.contains([':', 'T', ' ']);
        if is_day {
            let day: Date = text.parse().ok()?;
            return day
                .tomorrow()
                .ok()
                .map(|next| Self::Local(next.at(0, 0, 0, 0)));
        }
        text.parse().ok().map(Self::Local)
    }

    /// Reads `1/14/2007:12:00` as in the paper: month, day, year, hour and minute.
    pub(super) fn read_as_paper(text: &str) -> Option<Self> {
        let (day, time) = text.split_once(':')?;
        let (hour, minute) = time.split_once(':')?;
        let mut day = day.split('/');
        let (month, of_month, year) = (day.next()?, day.next()?, day.next()?);
        let number = |text: &str| {
            let is_plain =
                (1..=4).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
            is_plain.then(|| text.parse::<i16>().ok()).flatten()
        };
        let small = |text: &str| i8::try_from(number(text)?).ok();
        let date = Date::new(number(year)?, small(month)?, small(of_month)?).ok()?;
        let time = jiff::civil::Time::new(small(hour)?, small(minute)?, 0, 0).ok()?;
        day.next()
            .is_none()
            .then(|| Self::Local(date.to_datetime(time)))
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Within(span) => {
                let span = SignedDuration::try_from(*span).unwrap_or(SignedDuration::MAX);
                write!(f, "within {span:#}")
            }
            Self::At(moment) => write!(f, "by {moment}"),
            Self::Local(local) => write!(f, "by {local}"),
        }
    }
}
