//! Whether anything moves on a connection.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::net::TcpStream;

use crate::line::acknowledged;

/// What has moved on a connection, seen from beside it.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Bytes given to the kernel or taken from it.
    moved: AtomicU64,
    socket: OwnedFd,
}

impl Pulse {
    /// Of this connection. It closes when both are dropped.
    ///
    /// # Errors
    /// That of the operating system when no file can be opened.
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self {
            moved: AtomicU64::new(0),
            socket: stream.as_fd().try_clone_to_owned()?,
        })
    }

    /// So many bytes went to the kernel, or came from it.
    pub(super) fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A number that rises with every byte that moves: also with those that the kernel took long ago and that only
    /// now reach the other side, which on a slow path takes longer than a request may stand still.
    pub(super) fn count(&self) -> u64 {
        let arrived = acknowledged(self.socket.as_fd()).unwrap_or(0);
        self.moved.load(Ordering::Relaxed).wrapping_add(arrived)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncReadExt,
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[tokio::test]
    async fn what_the_kernel_took_long_ago_still_moves_when_it_arrives() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = TcpStream::connect(listener.local_addr()?).await?;
        let (mut far, _) = listener.accept().await?;
        let pulse = Pulse::of(&near)?;
        near.writable().await?;
        // Until nothing more is taken.
        while near.try_write(&[7; 64 << 10]).is_ok() {}
        let stands = loop {
            let before = pulse.count();
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            if pulse.count() == before {
                break before;
            }
        };
        let mut left = 16 << 20;
        let mut block = vec![0; 64 << 10];
        while pulse.count() == stands && left > 0 {
            left -= far.read(&mut block).await?;
        }
        assert!(pulse.count() > stands, "nothing is seen to move");
        Ok(())
    }
}
