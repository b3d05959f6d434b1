//! Lower bound of the rate at which an answer comes: a server that sends a byte now and then never
//! falls silent, and would hold its reader for ever.

use std::{fmt, future::Future, time::Duration};

use tokio::time::timeout;

use crate::clock;

/// Time without progress after which a connection counts as dead.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(60);

/// Time spent waiting in which at least [`BYTES_MIN`] of a file's bytes come.
const FILE_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Such a time of an answer that is read whole: stores send a space now and then while they work.
const ANSWER_WINDOW: Duration = Duration::from_secs(60 * 60);

/// Fewest bytes of a window: 14 a second for a file, less than any link carries.
const BYTES_MIN: u64 = 4 << 10;

/// Measure of what comes while its reader waits. Times in which the reader does something else, as
/// while it keeps to a rate of its own, don't count.
#[derive(Debug)]
pub(crate) struct Trickle {
    window: Duration,
    waited: Duration,
    bytes: u64,
}

/// Reason why it is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dry {
    /// Nothing came for [`STALLED_AFTER`].
    Silent,
    /// Only this many bytes came in this time.
    Little { bytes: u64, waited: Duration },
}

impl fmt::Display for Dry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("nothing came for a minute"),
            Self::Little { bytes, waited } => {
                let minutes = waited.as_secs() / 60;
                write!(f, "no more than {bytes} bytes came in {minutes} minutes")
            }
        }
    }
}

impl std::error::Error for Dry {}

impl Trickle {
    /// Measures a file's bytes.
    pub(crate) fn of_file() -> Self {
        Self::within(FILE_WINDOW)
    }

    /// Measures an answer that is read whole.
    pub(crate) fn of_answer() -> Self {
        Self::within(ANSWER_WINDOW)
    }

    fn within(window: Duration) -> Self {
        Self {
            window,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Waits for what comes next.
    ///
    /// # Errors
    /// [`Dry`].
    pub(crate) async fn wait<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Dry> {
        let asked = clock::timer_now();
        let came = timeout(STALLED_AFTER, next).await;
        self.waited += clock::timer_now().saturating_duration_since(asked);
        if self.waited < self.window {
            return came.map_err(|_| Dry::Silent);
        }
        let dry = Dry::Little {
            bytes: self.bytes,
            waited: self.waited,
        };
        let is_enough = self.bytes >= BYTES_MIN;
        *self = Self::within(self.window);
        match came {
            Err(_) => Err(Dry::Silent),
            Ok(_) if !is_enough => Err(dry),
            Ok(came) => Ok(came),
        }
    }

    /// Counts bytes that came.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// Reads bytes of which this many come every so many seconds, for a day at most.
    async fn reads(mut trickle: Trickle, bytes: usize, every_s: u64) -> Result<(), Dry> {
        let every = Duration::from_secs(every_s);
        for _ in 0..86_400 / every_s {
            trickle.wait(sleep(every)).await?;
            trickle.came(bytes);
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn what_only_drips_ends_and_what_is_slow_does_not() {
        let dry = reads(Trickle::of_file(), 1, 20).await.unwrap_err();
        assert_eq!(
            dry.to_string(),
            "no more than 14 bytes came in 5 minutes",
            "the last one came too late"
        );
        let late = reads(Trickle::of_file(), 1 << 20, 61).await;
        assert_eq!(late, Err(Dry::Silent));
        assert_eq!(reads(Trickle::of_file(), 1 << 10, 59).await, Ok(()));
        assert_eq!(reads(Trickle::of_answer(), 100, 59).await, Ok(()));
        assert!(reads(Trickle::of_answer(), 1, 10).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_takes_its_time_is_not_the_servers_fault() {
        let mut trickle = Trickle::of_file();
        for _ in 0..1000 {
            sleep(Duration::from_secs(60)).await;
            trickle
                .wait(sleep(Duration::from_millis(10)))
                .await
                .unwrap();
            trickle.came(1);
        }
    }
}
