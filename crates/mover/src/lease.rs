//! Whether what this mover does is still its to do.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};

use crate::monotonic;

/// The last part of a lease in which nothing is written any more: as long as a write may take that has begun.
const MARGIN: Duration = Duration::from_secs(3);

/// Until when the service gives this mover's work to nobody else.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// How long leases last, and when the last turn was asked that was answered.
    known: Mutex<Option<(Duration, Instant)>>,
}

impl Leases {
    fn known(&self) -> std::sync::MutexGuard<'_, Option<(Duration, Instant)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service knows it since `now`.
    pub(crate) fn begin(&self, lasts: Duration, now: Instant) {
        *self.known() = Some((lasts, now));
    }

    /// The service heard what was said at `asked`.
    pub(crate) fn answered(&self, asked: Instant) {
        if let Some((_, heard)) = self.known().as_mut() {
            *heard = asked.max(*heard);
        }
    }

    /// Sees that a file may be written to.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] where somebody else may write to it by now.
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
