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
    /// The moment this many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// The moment this many seconds after the Unix epoch.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self {
            micros: secs.saturating_mul(1_000_000),
        }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// Time from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros.saturating_sub(earlier.micros))
    }

    /// Signed microseconds from `now` to here: the slack of a deadline, negative when missed.
    #[must_use]
    pub const fn slack_micros(self, now: Self) -> i64 {
        self.micros
            .cast_signed()
            .wrapping_sub(now.micros.cast_signed())
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
    /// Shows the time of day in UTC, which is enough inside an event that carries its date.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.micros / 1_000_000;
        write!(
            f,
            "{:02}:{:02}:{:02}Z",
            secs / 3600 % 24,
            secs / 60 % 60,
            secs % 60
        )
    }
}
