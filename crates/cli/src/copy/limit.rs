//! `--bwlimit`: a rate, a timetable, or a file that holds either and may change while a copy runs.

use std::{fs, io::Read, path::PathBuf, time::Duration};

use posthaste_endpoint::Access;
use posthaste_engine::copy::Throttle;
use posthaste_plan::Timetable;

/// Interval between two looks at the clock and the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longest file read, in bytes: more than the longest timetable.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Source of the limit.
#[derive(Debug, Clone)]
pub(super) enum Limit {
    /// Timetable of the command line.
    Fixed(Timetable),
    /// File that is read at each look.
    File(PathBuf),
}

impl Limit {
    /// Reads `10M`, `"08:00,10M 18:00,off"` or `@FILE`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(file) => {
                let limit = Self::File(file.into());
                limit.read().map(|_| limit)
            }
            None => {
                let timetable = text.parse();
                timetable
                    .map(Self::Fixed)
                    .map_err(|error| format!("{error}"))
            }
        }
    }

    fn read(&self) -> Result<Timetable, String> {
        let path = match self {
            Self::Fixed(timetable) => return Ok(timetable.clone()),
            Self::File(path) => path,
        };
        let mut text = String::new();
        let file = fs::File::open(path);
        file.and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|cause| format!("can't read {}: {cause}", path.display()))?;
        text.parse()
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns a throttle at the current rate.
    pub(super) fn throttle(&self) -> Throttle {
        let throttle = Throttle::default();
        if let Ok(timetable) = self.read() {
            throttle.set(timetable.limit_at(minute_of_week()));
        }
        throttle
    }

    /// Keeps the throttle at the current rate, until dropped. A mistake in the file is reported
    /// once, and the last rate stays.
    pub(super) async fn keep(&self, throttle: &Throttle, tell: impl Fn(&str)) {
        if matches!(self, Self::Fixed(timetable) if !timetable.changes()) {
            return std::future::pending().await;
        }
        let mut told = false;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.read() {
                Ok(timetable) => {
                    throttle.set(timetable.limit_at(minute_of_week()));
                    told = false;
                }
                Err(error) if !told => {
                    tell(&format!("posthaste: {error}; the last rate stays"));
                    told = true;
                }
                Err(_) => {}
            }
        }
    }
}

/// Keeps open endpoints at their profiles' current caps, until dropped. A read error is reported
/// once, and the last caps stay.
pub(super) async fn keep_caps(access: &Access, tell: impl Fn(&str)) {
    if !access.may_have_caps() {
        return std::future::pending().await;
    }
    let mut told = false;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match access.renew_caps() {
            Ok(()) => told = false,
            Err(error) if !told => {
                tell(&format!("posthaste: {error}; the last caps stay"));
                told = true;
            }
            Err(_) => {}
        }
    }
}

/// Returns the minutes since Monday 00:00, local time.
fn minute_of_week() -> u16 {
    let now = jiff::Zoned::now();
    let days = now.weekday().to_monday_zero_offset();
    let minutes = i32::from(days) * 1440 + i32::from(now.hour()) * 60 + i32::from(now.minute());
    u16::try_from(minutes).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_rate_a_timetable_or_a_file() {
        assert!(matches!(Limit::parse("10M"), Ok(Limit::Fixed(_))));
        assert!(Limit::parse("08:00,1M 18:00,off").is_ok());
        assert!(Limit::parse("fast").unwrap_err().contains("timetable"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limit");
        let text = format!("@{}", file.display());
        assert!(Limit::parse(&text).unwrap_err().contains("can't read"));
        fs::write(&file, "1M\n").unwrap();
        assert!(matches!(Limit::parse(&text), Ok(Limit::File(_))));
        fs::write(&file, "soon\n").unwrap();
        assert!(Limit::parse(&text).is_err());
    }

    #[test]
    fn a_week_has_few_minutes() {
        assert!(minute_of_week() < 7 * 1440);
    }
}
