//! A service that goes away for a while: it starts again, or another one takes its place.

use std::time::Duration;

use crate::{failure::Failure, output};

/// How long a service that went away is waited for, not counting what it takes to notice; and the pause between two looks.
const AWAY_MAX: Duration = Duration::from_secs(600);
const AWAY_PAUSE: Duration = Duration::from_secs(1);

/// Says that the service is away, and that this is no end.
pub fn say_away(failure: &Failure) {
    output::complain(&format!("{failure}; waiting for it"));
}

/// Asks until an answer comes, and says once that none does: a service that starts again, or another that takes its place, needs a while.
///
/// # Errors
/// What trying again can't help, and what it did not help for long.
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
