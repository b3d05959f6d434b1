//! Standard input and output as one stream that waits without a thread.

use std::{
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use rustix::fs::{FileType, fstat};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{UnixStream, unix::pipe},
};

/// Readable channel: `sshd` gives pipes or sockets, as it was built.
enum Input {
    Pipe(pipe::Receiver),
    Socket(UnixStream),
}

/// Writable channel.
enum Output {
    Pipe(pipe::Sender),
    Socket(UnixStream),
}

/// Channel of two descriptors, one to read and one to write.
pub(super) struct Channel {
    input: Input,
    output: Output,
    activity: Arc<AtomicU64>,
}

impl Channel {
    /// Joins two pipes or sockets.
    pub(super) fn new(input: OwnedFd, output: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            input: if is_socket(&input)? {
                Input::Socket(socket(input)?)
            } else {
                Input::Pipe(pipe::Receiver::from_owned_fd(input)?)
            },
            output: if is_socket(&output)? {
                Output::Socket(socket(output)?)
            } else {
                Output::Pipe(pipe::Sender::from_owned_fd(output)?)
            },
            activity: Arc::default(),
        })
    }

    /// Returns the count of incoming bytes.
    pub(super) fn activity(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.activity)
    }
}

fn is_socket(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Socket)
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = StdUnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

impl AsyncRead for Channel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(match &mut self.input {
            Input::Pipe(pipe) => Pin::new(pipe).poll_read(context, buffer),
            Input::Socket(socket) => Pin::new(socket).poll_read(context, buffer),
        })?;
        let count = buffer.filled().len() - before;
        self.activity.fetch_add(count as u64, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Channel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.output {
            Output::Pipe(pipe) => Pin::new(pipe).poll_write(context, bytes),
            Output::Socket(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
