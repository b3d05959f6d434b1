//! Lease on this mover's work.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};

use crate::monotonic;

/// Last span of a lease, in which no write begins: as long as a write in progress may take.
const MARGIN: Duration = Duration::from_secs(3);

/// Time until which the service gives this mover's work to no other.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// Duration of leases, and the time at which the last answered turn was sent.
    known: Mutex<Option<(Duration, Instant)>>,
}

impl Leases {
    fn known(&self) -> std::sync::MutexGuard<'_, Option<(Duration, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the mover has joined the service at `now`.
    pub(crate) fn begin(&self, lasts: Duration, now: Instant) {
        *self.known() = Some((lasts, now));
    }

    /// Records that the service received the turn sent at `asked`.
    pub(crate) fn answered(&self, asked: Instant) {
        if let Some((_, heard)) = self.known().as_mut() {
            *heard = asked.max(*heard);
        }
    }

    /// Checks that this mover may still write to a file.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] if another mover may write to it by now.
    pub(crate) fn check(&self) -> Result<()> {
        let known = *self.known();
        let is_held =
            known.is_some_and(|(lasts, heard)| monotonic().duration_since(heard) + MARGIN < lasts);
        if is_held {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Cancelled, "write", "what was fetched")
                .at(Locus::Destination)
                .cause("the service was not heard for so long that others may do this by now"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_long_after_the_service_was_heard() {
        let leases = Leases::default();
        assert!(leases.check().is_err());
        let now = monotonic();
        leases.begin(Duration::from_secs(10), now);
        assert!(leases.check().is_ok());
        leases.begin(
            Duration::from_secs(10),
            now.checked_sub(Duration::from_secs(8)).unwrap(),
        );
        let error = leases.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        leases.answered(now);
        assert!(leases.check().is_ok());
    }
}
