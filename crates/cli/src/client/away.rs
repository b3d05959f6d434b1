//! Waiting for a service that is away for a while: it restarts, or another takes over.

use std::time::Duration;

use crate::{failure::Failure, output};

/// Longest wait for a service that went away, not counting the time to notice it; and the pause
/// between two attempts.
const AWAY_MAX: Duration = Duration::from_secs(600);
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// Reports that the service is away, and that the command continues.
pub fn say_away(failure: &Failure) {
    output::complain(&format!("{failure}; waiting for it"));
}

/// Retries until an answer comes, and reports once that none does: a restart or a standby's
/// takeover needs a while.
///
/// # Errors
/// Returns failures that retrying can't help, and those that outlast the longest wait.
pub async fn ride_out<T, F: Future<Output = Result<T, Failure>>>(
    ask: impl Fn() -> F,
    say: impl Fn(&Failure),
) -> Result<T, Failure> {
    let mut waited = Duration::ZERO;
    loop {
        match ask().await {
            Err(failure) if failure.may_pass() && waited < AWAY_MAX => {
                if waited.is_zero() {
                    say(&failure);
                }
                tokio::time::sleep(AWAY_PAUSE).await;
                waited += AWAY_PAUSE;
            }
            answered => return answered,
        }
    }
}
