//! A slow path to a server on this machine.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

/// Bytes carried at once.
const BLOCK_BYTES: usize = 16 << 10;
/// Bytes that wait before the link: without a bound a machine accepts megabytes at once, and
/// nothing seems slow.
const WAITING_BYTES: usize = 64 << 10;

/// Forwards connections to a server, each with so many bytes a second on the way there. Answers
/// come back at once.
#[derive(Debug)]
pub struct SlowLink {
    port: u16,
    rate: Arc<AtomicU32>,
    carried: Arc<AtomicU64>,
}

impl SlowLink {
    /// Starts a link to `server`.
    ///
    /// # Errors
    /// Fails if the system has no free port.
    pub fn start(server: SocketAddr, bytes_per_s: u32) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        SockRef::from(&listener).set_recv_buffer_size(WAITING_BYTES)?;
        let port = listener.local_addr()?.port();
        let carried = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&carried);
        let rate = Arc::new(AtomicU32::new(bytes_per_s));
        let limit = Arc::clone(&rate);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (counter, limit) = (Arc::clone(&counter), Arc::clone(&limit));
                thread::spawn(move || carry(client, server, &limit, &counter));
            }
        });
        Ok(Self {
            port,
            rate,
            carried,
        })
    }

    /// Sets the rate of each connection, in bytes a second, from its next block on.
    pub fn set_rate(&self, bytes_per_s: u32) {
        self.rate.store(bytes_per_s, SeqCst);
    }

    /// Returns the bytes carried towards the server so far, by all connections. The link takes a
    /// block, carries it and takes the next.
    #[must_use]
    pub fn carried(&self) -> u64 {
        self.carried.load(SeqCst)
    }

    /// Returns the counter that [`SlowLink::carried`] reads.
    #[cfg(feature = "conformance")]
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.carried)
    }

    /// Returns the port on `127.0.0.1`.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    rate: &AtomicU32,
    carried: &AtomicU64,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let len = client.read(&mut block)?;
        if len == 0 {
            return server.shutdown(Shutdown::Write);
        }
        carried.fetch_add(len as u64, SeqCst);
        thread::sleep(Duration::from_secs_f64(
            f64::from(u32::try_from(len).unwrap_or(u32::MAX)) / f64::from(rate.load(SeqCst)),
        ));
        server.write_all(&block[..len])?;
    }
}
