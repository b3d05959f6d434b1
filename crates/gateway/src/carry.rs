//! Carries a stream: socket, pipe, socket, in both directions.
//!
//! `splice` moves pages from one socket to the other inside the kernel. A direction holds a pipe
//! only while it has bytes in flight, so idle streams cost two descriptors and little else.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice},
};
use socket2::SockRef;
use tokio::{
    io::{AsyncWriteExt, Interest},
    net::TcpStream,
};

/// Size of a pipe in bytes: one read on a fast path finds as much.
const PIPE_BYTES: usize = 256 << 10;
/// Most spare pipes that are kept for later streams.
const SPARE_PIPES_MAX: usize = 64;

/// Two descriptors with bytes between them, or none.
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Spare pipes.
#[derive(Default)]
pub(crate) struct Pipes {
    spare: Mutex<Vec<Pipe>>,
}

impl Pipes {
    fn take(&self) -> io::Result<Pipe> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = spare.pop() {
            return Ok(pipe);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller one suffices; unprivileged users get it after their first thousand.
        let _ = fcntl_setpipe_size(&write, PIPE_BYTES);
        Ok(Pipe { read, write })
    }

    /// Takes back an empty pipe.
    fn put(&self, pipe: Pipe) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_PIPES_MAX {
            spare.push(pipe);
        }
    }
}

/// Connection, and the bytes already read of it.
pub(crate) struct End {
    pub stream: TcpStream,
    pub early: Vec<u8>,
}

/// Carries both directions until both ends have ended. `carried` counts bytes as they leave.
///
/// # Errors
/// If an end breaks; then both are reset, so that no receiver takes a torn stream for a whole one.
/// Both are also reset if this future is dropped or the process is killed.
pub(crate) async fn carry(
    one: End,
    other: End,
    pipes: &Pipes,
    carried: &AtomicU64,
) -> io::Result<()> {
    // Closing with zero linger time sends a reset, even when this process is killed.
    let break_when_closed = |zero: Option<Duration>| {
        let mut both = [&one, &other].into_iter();
        both.try_for_each(|end| SockRef::from(&end.stream).set_linger(zero))
    };
    break_when_closed(Some(Duration::ZERO))?;
    let there = flow(&one, &other, pipes, carried);
    let back = flow(&other, &one, pipes, carried);
    tokio::try_join!(there, back)?;
    break_when_closed(None)
}

/// Moves all bytes from one end to the other, and then ends the other.
async fn flow(from: &End, to: &End, pipes: &Pipes, carried: &AtomicU64) -> io::Result<()> {
    send(&to.stream, &from.early).await?;
    carried.fetch_add(from.early.len() as u64, Relaxed);
    loop {
        from.stream.readable().await?;
        let pipe = pipes.take()?;
        let taken = from.stream.try_io(Interest::READABLE, || {
            move_some(&from.stream, &pipe.write, PIPE_BYTES)
        });
        let mut left = match taken {
            Ok(0) => {
                // A reset after an end is an error that reading does not report.
                if let Some(cause) = SockRef::from(&from.stream).take_error()? {
                    return Err(cause);
                }
                break;
            }
            Ok(count) => count,
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
                pipes.put(pipe);
                continue;
            }
            Err(cause) => return Err(cause),
        };
        while left > 0 {
            to.stream.writable().await?;
            let given = to.stream.try_io(Interest::WRITABLE, || {
                move_some(&pipe.read, &to.stream, left)
            });
            match given {
                Ok(count) => {
                    left -= count;
                    carried.fetch_add(count as u64, Relaxed);
                }
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
                Err(cause) => return Err(cause),
            }
        }
        pipes.put(pipe);
    }
    SockRef::from(&to.stream).shutdown(std::net::Shutdown::Write)
}

fn move_some(
    from: &impl std::os::fd::AsFd,
    to: &impl std::os::fd::AsFd,
    most: usize,
) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        match splice(from, None, to, None, most, flags) {
            Err(Errno::INTR) => {}
            moved => return Ok(moved?),
        }
    }
}

/// Sends the few bytes that came with a greeting.
async fn send(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {}
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

/// Sends the whole answer to a greeting.
pub(crate) async fn answer(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
