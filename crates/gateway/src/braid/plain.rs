//! Plain end of a stream, which is one connection: a client, a target, or another braid of this
//! gateway.

use std::{
    io,
    net::Shutdown,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

/// Connection that carries the stream's bytes alone.
#[derive(Debug)]
pub(super) struct Plain {
    socket: Socket,
    /// True once the connection broke. The kernel reports a reset only once, and later reads find
    /// an end, so it is remembered. A writer holds this lock while the kernel may report one.
    is_broken: Mutex<bool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    /// Pair between two braids.
    Within(UnixStream),
}

impl From<TcpStream> for Plain {
    fn from(stream: TcpStream) -> Self {
        Self::of(Socket::Tcp(stream))
    }
}

impl From<UnixStream> for Plain {
    fn from(stream: UnixStream) -> Self {
        Self::of(Socket::Within(stream))
    }
}

fn would_block(cause: &io::Error) -> bool {
    cause.kind() == io::ErrorKind::WouldBlock
}

impl Plain {
    fn of(socket: Socket) -> Self {
        Self {
            socket,
            is_broken: Mutex::new(false),
        }
    }

    fn socket(&self) -> SockRef<'_> {
        match &self.socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Within(stream) => SockRef::from(stream),
        }
    }

    fn is_broken(&self) -> MutexGuard<'_, bool> {
        self.is_broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads some bytes; returns 0 at the end.
    ///
    /// # Errors
    /// If the connection broke, even after an end.
    pub(super) async fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match &self.socket {
                Socket::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read(room)
                }
                Socket::Within(stream) => {
                    stream.readable().await?;
                    stream.try_read(room)
                }
            };
            match read {
                Ok(0) => return self.at_end(),
                Ok(count) => return Ok(count),
                Err(cause) if would_block(&cause) => {}
                Err(cause) => {
                    *self.is_broken() = true;
                    return Err(cause);
                }
            }
        }
    }

    /// Checks whether an apparent end is a real one.
    fn at_end(&self) -> io::Result<usize> {
        let mut is_broken = self.is_broken();
        // A reset after an end is an error that reading does not report.
        if let Some(cause) = self.socket().take_error()? {
            *is_broken = true;
            return Err(cause);
        }
        if *is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(0)
    }

    /// Writes all bytes.
    pub(super) async fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match &self.socket {
                Socket::Tcp(stream) => stream.writable().await?,
                Socket::Within(stream) => stream.writable().await?,
            }
            match self.write_some(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(cause) if would_block(&cause) => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut is_broken = self.is_broken();
        let written = match &self.socket {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Within(stream) => stream.try_write(bytes),
        };
        *is_broken |= written.as_ref().is_err_and(|cause| !would_block(cause));
        written
    }

    /// Ends the written direction.
    pub(super) fn end(&self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }

    /// Sets the linger time. Closing with zero sends a reset, even when this process is killed.
    pub(super) fn break_when_closed(&self, zero: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Returns a connection that its other side resets.
    async fn reset() -> Plain {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let (here, there) = tokio::join!(TcpStream::connect(local), listener.accept());
        let (here, there) = (here.unwrap(), there.unwrap().0);
        SockRef::from(&there)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        drop(there);
        here.readable().await.unwrap();
        here.into()
    }

    #[tokio::test]
    async fn who_reads_after_a_reset_was_told_finds_no_end() {
        let mut room = [0; 8];
        let plain = reset().await;
        for _ in 0..3 {
            assert!(plain.read(&mut room).await.is_err());
        }
        let plain = reset().await;
        assert!(plain.write(b"told to who writes").await.is_err());
        for _ in 0..3 {
            assert!(plain.read(&mut room).await.is_err());
        }
    }
}
