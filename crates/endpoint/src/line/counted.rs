//! Counts passing bytes, which shows whether anything moves.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes read from the kernel at once: one call for many TLS records.
const READ_BYTES: usize = 128 << 10;

/// Stream that reads in large blocks and counts.
#[derive(Debug)]
pub struct Counted<S> {
    stream: S,
    block: Box<[u8]>,
    /// Range of the block that was not handed on yet.
    filled: std::ops::Range<usize>,
    activity: Arc<AtomicU64>,
}

impl<S> Counted<S> {
    /// Wraps a stream; `activity` counts the bytes of both directions.
    pub fn new(stream: S, activity: Arc<AtomicU64>) -> Self {
        Self {
            stream,
            block: Box::default(),
            filled: 0..0,
            activity,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.filled.is_empty() {
            if this.block.is_empty() {
                this.block = vec![0; READ_BYTES].into();
            }
            let mut block = ReadBuf::new(&mut this.block);
            std::task::ready!(Pin::new(&mut this.stream).poll_read(context, &mut block))?;
            this.filled = 0..block.filled().len();
            this.activity.fetch_add(this.filled.len() as u64, Relaxed);
        }
        let count = this.filled.len().min(buffer.remaining());
        let start = this.filled.start;
        buffer.put_slice(&this.block[start..start + count]);
        this.filled.start += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.count(&poll);
        poll
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let poll = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.count(&poll);
        poll
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<S> Counted<S> {
    fn count(&self, poll: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = poll {
            self.activity.fetch_add(*count as u64, Relaxed);
        }
    }
}
