//! The one place of the laboratory that reads the clock.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time since a moment.
#[derive(Debug, Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    /// Starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since its start.
    pub fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns the processor time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0))
}
