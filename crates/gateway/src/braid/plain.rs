//! The end of a stream that is one connection: a client, a target, or another braid of this gateway.

use std::{
    io,
    net::Shutdown,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use socket2::SockRef;
use tokio::net::{TcpStream, UnixStream};

/// A connection whose bytes are the stream's.
#[derive(Debug)]
pub(super) struct Plain {
    socket: Socket,
    /// The kernel tells of a reset once; whoever reads after that finds an end. So it is remembered, and whoever writes
    /// holds this while it may be told.
    is_broken: Mutex<bool>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    /// Where one braid ends and another begins.
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

    /// Reads some; none at its end.
    ///
    /// # Errors
    /// When it broke, also behind an end.
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

    /// Whether an end is one.
    fn at_end(&self) -> io::Result<usize> {
        let mut is_broken = self.is_broken();
        // A reset behind an end is an error that reading does not tell.
        if let Some(cause) = self.socket().take_error()? {
            *is_broken = true;
            return Err(cause);
        }
        if *is_broken {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(0)
    }

    /// Writes all of it.
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

    /// Says that this was all.
    pub(super) fn end(&self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }

    /// Closing with no time to linger sends a reset, also when this process is killed.
    pub(super) fn break_when_closed(&self, zero: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// A connection whose other side resets it.
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
