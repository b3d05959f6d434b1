//! Waiting until a provider has finished an acknowledged operation.

use std::time::Duration;

use posthaste_endpoint::{ErrorKind, Locus, Result};
use tokio::time::{sleep, timeout};

use super::{NsiClient, Reservation};

/// Delay of the first query: most providers are done by then.
const LOOK_AFTER: Duration = Duration::from_millis(100);

/// Longest time between queries: each takes a provider some milliseconds, and a circuit takes
/// minutes to set up.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(2);

impl NsiClient {
    /// Returns the reservation once `is_done` holds for it; `None` if there is none of that name
    /// (any more).
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`] if it is not done within the circuit's timeout; it may be done
    /// later.
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
