//! Kernel settings and statistics of a connection.

#![expect(unsafe_code, reason = "no well-kept safe crate has TCP_INFO")]

use std::{
    fs, io,
    mem::{size_of, zeroed},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::Duration,
};

use posthaste_plan::fleet::Health;
use posthaste_types::ByteRate;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Most bytes the kernel may hold unsent: enough to keep the wire busy while we encrypt more,
/// little beside many connections.
const UNSENT_BYTES_MAX: u32 = 512 << 10;

/// Idle time after which the kernel checks that a connection lives.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Sets a connection up for bulk data.
pub(super) fn prepare(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    // Each is an improvement, none is needed.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE),
    );
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
}

/// Uses BBR, which keeps its rate when single packets are lost; kernels without it use what they
/// have. A repeated call makes it estimate anew: its state is lost when another algorithm is
/// chosen.
pub(super) fn use_bbr(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    let uses_it = socket
        .tcp_congestion()
        .is_ok_and(|name| name.split(|&byte| byte == 0).next() == Some(b"bbr"));
    if uses_it && socket.set_tcp_congestion(b"cubic").is_err() {
        let _ = socket.set_tcp_congestion(b"reno");
    }
    let _ = socket.set_tcp_congestion(b"bbr");
}

/// Makes a connection find its rate anew: it starts from its present rate and doubles it every
/// round trip, because it forgets how much it sent when it last lost something. BBR sets the slow
/// start threshold to infinity when it begins, and its successor leaves it there. If BBR is not
/// offered, nothing changes.
pub(super) fn find_anew(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    if let Ok(before) = socket.tcp_congestion() {
        let name = before.split(|&byte| byte == 0).next().unwrap_or(b"cubic");
        if socket.set_tcp_congestion(b"bbr").is_ok() {
            let _ = socket.set_tcp_congestion(name);
        }
    }
}

/// Returns whether the kernel offers BBR.
pub(super) fn has_bbr() -> bool {
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    offered.is_ok_and(|offered| offered.split_whitespace().any(|name| name == "bbr"))
}

/// Lower effort (RFC 8622) as the field of the IP header has it: a network that knows it serves all
/// others first.
const LOWER_EFFORT: u32 = 0b0000_0100;

/// Marks a connection's packets as of the least importance.
pub(super) fn mark_lower_effort(stream: &TcpStream) {
    let socket = SockRef::from(stream);
    // A socket that can't be marked still gives way by its pace. The other of the two calls is for
    // the other address family.
    let _ = socket.set_tos_v4(LOWER_EFFORT);
    let _ = socket.set_tclass_v6(LOWER_EFFORT);
}

/// Limits the rate of a connection, and the bytes it buffers.
pub(super) fn pace(stream: &TcpStream, rate: ByteRate, unsent: u32) {
    let rate = rate.get();
    let length = libc::socklen_t::try_from(size_of::<u64>()).unwrap_or(8);
    // SAFETY: the kernel reads `length` bytes from `rate`, which has so many and lives until the
    // call returns.
    let _ = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            length,
        )
    };
    let _ = SockRef::from(stream).set_tcp_notsent_lowat(unsent);
}

/// Returns the kernel's statistics of a connection.
///
/// # Errors
/// Fails if the kernel does not report it.
pub(super) fn health(stream: &TcpStream) -> io::Result<Health> {
    let info = info(stream.as_fd())?;
    Ok(Health {
        resent: info.tcpi_total_retrans,
        rtt_us: info.tcpi_rtt,
        rtt_least_us: info.tcpi_min_rtt,
        window: info.tcpi_snd_cwnd,
    })
}

/// Returns the bytes of a connection that the other side's kernel has acknowledged.
///
/// # Errors
/// Fails if the kernel does not report it.
pub(crate) fn acknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    info(socket).map(|info| info.tcpi_bytes_acked)
}

fn info(socket: BorrowedFd<'_>) -> io::Result<libc::tcp_info> {
    // SAFETY: `tcp_info` is a C struct of integers, for which zeros are a value.
    let mut info: libc::tcp_info = unsafe { zeroed() };
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>())
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has so many and lives until
    // the call returns.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn the_kernel_tells_how_a_connection_is() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut near = TcpStream::connect(listener.local_addr()?).await?;
        let (mut far, _) = listener.accept().await?;
        near.write_all(&[7; 64 << 10]).await?;
        far.read_exact(&mut [0; 64 << 10]).await?;
        far.write_all(b"!").await?;
        near.read_exact(&mut [0]).await?;
        let health = health(&near)?;
        assert!(
            (1..1_000_000).contains(&health.rtt_us),
            "{} us over loopback",
            health.rtt_us
        );
        assert!(health.rtt_least_us <= health.rtt_us);
        Ok(())
    }

    #[tokio::test]
    async fn bbr_can_be_chosen_twice_where_it_is_offered() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let stream = TcpStream::connect(listener.local_addr()?).await?;
        for _ in 0..2 {
            use_bbr(&stream);
            let chosen = SockRef::from(&stream).tcp_congestion()?;
            assert_eq!(chosen.starts_with(b"bbr"), has_bbr());
        }
        Ok(())
    }
}
