//! The one place of the service that reads the clock.

use std::time::Duration;

use posthaste_endpoint::{Error, ErrorKind, Result, SteadyClock, Step};
use posthaste_types::Timestamp;
use tracing::error;

use crate::render;

/// Clock of the service, which takes no large step.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    steady: SteadyClock,
}

impl Clock {
    /// Returns the time now, never before a time returned earlier.
    pub(crate) fn now(&self) -> Timestamp {
        let (now, step) = self.steady.read();
        if let Some(Step { ahead, by }) = step {
            let way = if ahead { "ahead" } else { "back" };
            let seconds = by.as_secs();
            error!(
                "the clock of this machine stepped {seconds} s {way}, which is not taken: set it right, or restart posthaste to go by it"
            );
        }
        Timestamp::from_micros(u64::try_from(now.as_micros()).unwrap_or(u64::MAX))
    }
}

/// Largest lead of a journal over this machine's clock: hosts that share one differ by less.
const AHEAD_MAX: Duration = Duration::from_secs(600);

/// Refuses a journal whose last entry is later than now: everything submitted would count as late
/// until then.
pub(crate) fn check_journal(known: Timestamp, now: Timestamp) -> Result<()> {
    if known <= now + AHEAD_MAX {
        return Ok(());
    }
    let (known, now) = (render::moment(known), render::moment(now));
    Err(Error::new(ErrorKind::Invalid, "start", "the service")
        .cause(format!("its journal goes on until {known}, and the clock of this machine says {now}"))
        .hint("set the clock right; if it is, restore the last backup from before it was wrong (docs/operating/backup.md)"))
}
