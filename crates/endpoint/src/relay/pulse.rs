//! Detection of progress on a connection.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::net::TcpStream;

use crate::line::acknowledged;

/// Counter of the bytes that moved on a connection, readable from outside it.
#[derive(Debug)]
pub(super) struct Pulse {
    /// Bytes given to the kernel or received from it.
    moved: AtomicU64,
    socket: OwnedFd,
    /// Total to which its bytes are added, and its number there.
    arrivals: Option<(Arc<Arrivals>, u64)>,
}

/// Bytes acknowledged by the other side's kernel, summed over many connections.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    all: Mutex<Added>,
}

#[derive(Debug, Default)]
struct Added {
    /// Bytes of closed connections.
    before: u64,
    /// Open connections.
    open: BTreeMap<u64, OwnedFd>,
    next: u64,
}

impl Arrivals {
    fn all(&self) -> MutexGuard<'_, Added> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all bytes that have arrived so far; it only grows.
    pub(super) fn count(&self) -> u64 {
        let all = self.all();
        let open = all.open.values();
        let open = open.map(|socket| acknowledged(socket.as_fd()).unwrap_or(0));
        all.before.saturating_add(open.sum())
    }

    fn add(&self, socket: OwnedFd) -> u64 {
        let mut all = self.all();
        let number = all.next;
        all.next += 1;
        all.open.insert(number, socket);
        number
    }

    fn close(&self, number: u64) {
        let mut all = self.all();
        if let Some(socket) = all.open.remove(&number) {
            all.before += acknowledged(socket.as_fd()).unwrap_or(0);
        }
    }
}

impl Pulse {
    /// Creates a counter for this connection, which closes when both are dropped.
    ///
    /// # Errors
    /// The error of the operating system if no file can be opened.
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self {
            moved: AtomicU64::new(0),
            socket: stream.as_fd().try_clone_to_owned()?,
            arrivals: None,
        })
    }

    /// Creates a counter for this connection and adds its bytes to `arrivals`.
    ///
    /// # Errors
    /// Errors of [`Self::of`].
    pub(super) fn among(arrivals: &Arc<Arrivals>, stream: &TcpStream) -> io::Result<Self> {
        let mut pulse = Self::of(stream)?;
        let number = arrivals.add(stream.as_fd().try_clone_to_owned()?);
        pulse.arrivals = Some((Arc::clone(arrivals), number));
        Ok(pulse)
    }

    /// Records bytes sent to the kernel or received from it.
    pub(super) fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns a number that rises with every byte that moves. It includes bytes that the kernel
    /// buffered long ago and that only now reach the other side: on a slow path that takes longer
    /// than a request may stall.
    pub(super) fn count(&self) -> u64 {
        self.moved
            .load(Ordering::Relaxed)
            .wrapping_add(self.arrived())
    }

    /// Returns the bytes that the other side's kernel has acknowledged.
    pub(super) fn arrived(&self) -> u64 {
        acknowledged(self.socket.as_fd()).unwrap_or(0)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        if let Some((arrivals, number)) = &self.arrivals {
            arrivals.close(*number);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
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
        // Fills the buffers until the kernel accepts no more.
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
    #[tokio::test]
    async fn what_arrived_counts_when_its_connection_is_closed() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let arrivals = Arc::new(Arrivals::default());
        let mut said = 0;
        for round in 1..=3 {
            let mut near = TcpStream::connect(listener.local_addr()?).await?;
            let (mut far, _) = listener.accept().await?;
            let pulse = Pulse::among(&arrivals, &near)?;
            near.write_all(&[7; 1000]).await?;
            far.read_exact(&mut [0; 1000]).await?;
            // The kernel may report bytes a moment after they were read, and counts the first
            // packet as a byte.
            while arrivals.count() < said + 1000 {
                tokio::task::yield_now().await;
            }
            drop((pulse, near));
            said = arrivals.count();
            assert!((round * 1000..=round * 1001).contains(&said), "{said}");
        }
        Ok(())
    }
}
