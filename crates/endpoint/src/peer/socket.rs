//! TCP as bulk data wants it, and the count of what passes.

use std::{
    fs, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes taken from the kernel at once: one call for many TLS records.
const READ_BYTES: usize = 128 << 10;

/// What the kernel may hold unsent: enough to keep the wire busy while we encrypt more, little
/// beside many connections.
const UNSENT_BYTES_MAX: u32 = 512 << 10;

/// A connection on which nothing passes is asked whether it lives after this time.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sets a connection up for bulk data.
pub fn tune(stream: &TcpStream) {
    prepare(stream);
    use_bbr(stream);
}

/// Uses BBR, which keeps its rate where single packets are lost; kernels without it use what they
/// have. It paces what is sent, which makes short requests slower.
pub(crate) fn use_bbr(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_tcp_congestion(b"bbr");
}

/// Whether the kernel offers BBR.
pub(crate) fn has_bbr() -> bool {
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    offered.is_ok_and(|offered| offered.split_whitespace().any(|name| name == "bbr"))
}

/// Begins to estimate the rate anew where BBR is used: its state goes with another's choice.
pub(crate) fn estimate_anew(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if socket.set_tcp_congestion(b"cubic").is_ok() || socket.set_tcp_congestion(b"reno").is_ok() {
        let _ = socket.set_tcp_congestion(b"bbr");
    }
}

/// Sets a connection up for distance.
pub(crate) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    // Each is an improvement, none a need.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE),
    );
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
}

/// A TCP stream that reads in large blocks and counts.
#[derive(Debug)]
pub struct Socket<S = TcpStream> {
    stream: S,
    block: Box<[u8]>,
    /// What of the block was not handed on yet.
    filled: std::ops::Range<usize>,
    activity: Arc<AtomicU64>,
}

impl<S> Socket<S> {
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

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
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

impl<S> Socket<S> {
    fn count(&self, poll: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = poll {
            self.activity.fetch_add(*count as u64, Relaxed);
        }
    }
}
