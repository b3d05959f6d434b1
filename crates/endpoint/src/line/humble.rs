//! A connection that uses only what others leave: marked so for the network, and paced by its own
//! measurements.

use posthaste_plan::{fleet::Health, scavenger::Scavenger};
use posthaste_types::ByteRate;
use tokio::{net::TcpStream, time::Instant};

use super::kernel;

/// Part of its pace per second that the kernel may hold unsent, as a divisor…
const UNSENT_SHARE: u64 = 8;
/// …but within this range. Little, so that it soon notices that others have gone.
const UNSENT_BYTES: std::ops::RangeInclusive<u64> = (16 << 10)..=(512 << 10);

/// Pacing of such a connection.
#[derive(Debug)]
pub(crate) struct Humble {
    began: Instant,
    scavenger: Scavenger,
    /// Bytes since the last adjustment.
    sent: u64,
}

impl Humble {
    /// Marks a connection and gives it its first pace.
    pub(crate) fn begin(stream: &TcpStream) -> Self {
        kernel::mark_lower_effort(stream);
        let scavenger = Scavenger::default();
        keep(stream, scavenger.pace());
        Self {
            began: Instant::now(),
            scavenger,
            sent: 0,
        }
    }

    /// Counts sent bytes, and adapts the pace.
    pub(crate) fn wrote(&mut self, count: usize, stream: &TcpStream) {
        self.sent += count as u64;
        let now = self.began.elapsed();
        if !self.scavenger.is_due(now, Health::default()) {
            return;
        }
        let Ok(health) = kernel::health(stream) else {
            return;
        };
        if self.scavenger.is_due(now, health) {
            let before = self.scavenger.pace();
            let pace = self
                .scavenger
                .look(now, health, std::mem::take(&mut self.sent));
            if pace != before {
                keep(stream, pace);
            }
        }
    }
}

fn keep(stream: &TcpStream, pace: ByteRate) {
    let unsent = (pace.get() / UNSENT_SHARE).clamp(*UNSENT_BYTES.start(), *UNSENT_BYTES.end());
    kernel::pace(stream, pace, u32::try_from(unsent).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use socket2::SockRef;
    use tokio::{io::AsyncReadExt, io::AsyncWriteExt, net::TcpListener, time::timeout};

    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn what_it_sends_is_marked_and_paced_and_arrives() -> std::io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut near = TcpStream::connect(listener.local_addr()?).await?;
        let (mut far, _) = listener.accept().await?;
        let mut humble = Humble::begin(&near);
        assert_eq!(SockRef::from(&near).tos_v4()?, 4);
        let mut got = Vec::new();
        const BLOCK: [u8; 16 << 10] = [7; 16 << 10];
        const BLOCKS: usize = 512;
        let sending = async {
            for _ in 0..BLOCKS {
                near.write_all(&BLOCK).await?;
                humble.wrote(BLOCK.len(), &near);
            }
            near.shutdown().await
        };
        let passing = async { tokio::try_join!(sending, far.read_to_end(&mut got)) };
        timeout(Duration::from_secs(600), passing).await??;
        assert_eq!(got.len(), BLOCKS * BLOCK.len());
        // Loopback has no other traffic: the pace grew.
        assert!(humble.scavenger.pace() > Scavenger::default().pace());
        Ok(())
    }
}
