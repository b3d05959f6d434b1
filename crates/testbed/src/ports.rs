//! Ports that are one process's until it ends: tests run side by side, in several processes.

use std::{
    fs::{self, File, OpenOptions},
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    os::unix::fs::MetadataExt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use anyhow::{Context, Result, bail};

/// Ports that the kernel gives to nobody by itself: between the choice of one and its use it stays
/// free, however much is connected meanwhile, and so it does while its server is started again.
const PORTS: Range<u16> = 10_000..20_000;

/// Ports between the first choices of two processes that were started one after the other.
const PORTS_APART: u32 = 101;

/// The locks of the ports that this process has.
static OURS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A port of the loopback interface that nobody listens on now, and that no other process of tests of this user gets
/// before this one ends.
///
/// # Errors
/// When there is none, or no file in the temporary folder can be locked.
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
        if lock.try_lock().is_err() || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
            continue;
        }
        OURS.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(lock);
        return Ok(port);
    }
    bail!("find a free port: there is none from {}", PORTS.start)
}
