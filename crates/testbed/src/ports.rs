//! Ports that one process keeps until it ends: tests run side by side, in several processes.

use std::{
    fs::{self, File, OpenOptions},
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    os::unix::fs::MetadataExt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};

/// Ports that most kernels never assign by themselves. Some assign any from 1024.
const PORTS: Range<u16> = 10_000..20_000;

/// Ports between the first choices of two processes started one after the other.
const PORTS_APART: u32 = 101;

/// A port that this process keeps until it ends, also while its server is started again.
struct Held {
    /// Lock that keeps other test processes away.
    _lock: File,
    /// Socket that keeps the kernel from assigning the port to a connection. A check whether the
    /// server listens could otherwise connect to itself.
    _socket: Socket,
}

/// The ports that this process has.
static OURS: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Returns a loopback port on which nobody listens now, and that nobody else gets before this
/// process ends. Only a server with reusable addresses (`SO_REUSEADDR`), as nearly all have, can
/// listen on it.
///
/// # Errors
/// Fails if there is none, or no file in the temporary folder can be locked.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let user = fs::metadata("/proc/self")
        .context("look at /proc/self")?
        .uid();
    let folder = tempfile::env::temp_dir().join(format!("posthaste-ports-{user}"));
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let first = std::process::id().wrapping_mul(PORTS_APART);
    let count = u32::from(PORTS.end - PORTS.start);
    for _ in PORTS {
        let number = first.wrapping_add(NEXT.fetch_add(1, Relaxed)) % count;
        let port = PORTS.start + u16::try_from(number)?;
        let path = folder.join(port.to_string());
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(&path);
        let lock = lock.with_context(|| format!("open {}", path.display()))?;
        // Another process has it, though its server may not listen yet.
        if lock.try_lock().is_err() {
            continue;
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).context("make a socket")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if socket.bind(&address.into()).is_err() {
            continue;
        }
        // Locked first, so that no other process does the same.
        socket
            .set_reuse_address(true)
            .with_context(|| format!("share port {port}"))?;
        let held = Held {
            _lock: lock,
            _socket: socket,
        };
        OURS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(held);
        return Ok(port);
    }
    bail!("find a free port: there is none from {}", PORTS.start)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// Connections for each possible port, so that the kernel reaches each.
    const CONNECTIONS: usize = 1 << 16;

    #[test]
    fn a_port_is_its_servers_and_of_no_connection() {
        // The kernel gives connections every other port first. If it gives them none of these
        // ports, the first half proves nothing.
        for _ in 0..2 {
            let address = (Ipv4Addr::LOCALHOST, free_port().unwrap());
            assert!((0..CONNECTIONS).all(|_| TcpStream::connect(address).is_err()));
            for _ in 0..2 {
                let server = TcpListener::bind(address).unwrap();
                TcpStream::connect(address).unwrap();
                drop(server);
            }
        }
    }
}
