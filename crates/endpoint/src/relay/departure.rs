//! Cancellation before sending: a transfer that waits for a connection either starts or is
//! cancelled, never both.

use tokio::sync::watch;

/// Progress of a departure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    Left,
    CalledBack,
}

/// Departure that can be cancelled for as long as it waits.
#[derive(Debug)]
pub struct Departure {
    stage: watch::Sender<Stage>,
}

impl Default for Departure {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(Stage::Waits),
        }
    }
}

impl Departure {
    fn turn_to(&self, next: Stage) -> bool {
        // The channel's lock makes the decision atomic.
        let is_first = self.stage.send_if_modified(|stage| {
            let waits = *stage == Stage::Waits;
            if waits {
                *stage = next;
            }
            waits
        });
        is_first || *self.stage.borrow() == next
    }

    /// Marks the departure as started. Returns false if it was cancelled before.
    pub fn leave(&self) -> bool {
        self.turn_to(Stage::Left)
    }

    /// Cancels the departure. Returns false if it had already started.
    pub fn call_back(&self) -> bool {
        self.turn_to(Stage::CalledBack)
    }

    /// Waits until the departure is cancelled: for ever if it starts.
    pub async fn called_back(&self) {
        let mut stage = self.stage.subscribe();
        // The sender lives as long as `self`.
        let _ = stage.wait_for(|stage| *stage == Stage::CalledBack).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on fails")]
mod tests {
    use std::sync::Arc;

    use posthaste_types::{ChunkIndex, Digest, FragmentIndex, Timestamp};

    use super::*;
    use crate::{
        ErrorKind,
        relay::{Credential, DatasetId, Fingerprint, Haste, RelayAddress, RelayClient},
    };

    #[tokio::test]
    async fn what_was_called_back_takes_no_connection_and_costs_none() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let fingerprint = Fingerprint::new([7; 32]);
        let client = RelayClient::new(
            RelayAddress { url, fingerprint },
            Credential::Secret([0; 32]),
        );
        let departure = Arc::new(Departure::default());
        assert!(departure.call_back());
        let client = client.unwrap().hasty(Haste::Whenever).departing(departure);
        client.expect_passes(false);
        let dataset = DatasetId::new([1; 16]);
        for chunk in 0..20 {
            let stored = client.put_fragment(
                &dataset,
                ChunkIndex::new(chunk),
                FragmentIndex::new(0),
                "abc".into(),
                Digest::new([2; 32]),
                Timestamp::from_secs(1),
            );
            assert_eq!(stored.await.unwrap_err().kind(), ErrorKind::Cancelled);
        }
    }

    #[tokio::test]
    async fn it_leaves_or_stays_and_never_both() {
        let left = Departure::default();
        assert!(left.leave() && left.leave());
        assert!(!left.call_back());
        let stays = Departure::default();
        assert!(stays.call_back() && stays.call_back());
        assert!(!stays.leave());
        stays.called_back().await;
    }
}
