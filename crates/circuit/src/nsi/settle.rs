//! Waiting until a provider is done with what it acknowledged.

use std::time::Duration;

use posthaste_endpoint::{ErrorKind, Locus, Result};
use tokio::time::{sleep, timeout};

use super::{NsiClient, Reservation};

/// The first look comes so soon: most providers are done then.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Looks come at least so often: each takes a provider some milliseconds, and a circuit is minutes in the making.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(2);

impl NsiClient {
    /// The reservation once it is as `is_done` wants it; nothing where there is none of that name (any more).
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] when it is not done within the circuit's patience: it may be yet.
    pub(super) async fn settled(
        &self,
        operation: &'static str,
        name: &str,
        is_done: impl Fn(&Reservation) -> bool,
    ) -> Result<Option<Reservation>> {
        let looking = async {
            let mut pause = LOOK_AFTER;
            loop {
                match self.look(operation, name).await? {
                    None => return Ok(None),
                    Some(found) if is_done(&found) => return Ok(Some(found)),
                    Some(_) => {}
                }
                sleep(pause).await;
                pause = (pause * 2).min(LOOK_EVERY_MAX);
            }
        };
        let patience = self.circuit.patience;
        timeout(patience, looking).await.unwrap_or_else(|_| {
            let error = self.web.fail(ErrorKind::TimedOut, operation);
            let waited = format!("the provider is not done after {} s", patience.as_secs());
            Err(error.cause(waited).at(Locus::Destination))
        })
    }
}
