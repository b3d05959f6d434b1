use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use anyhow::{Context, Result};

/// Longest head of a request or an answer to examine, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Appearance of a store behind a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreLooks {
    /// Unchanged.
    Same,
    /// A store that rejects unknown headers: new checksums, also in trailers.
    Refusing,
    /// A store that rejects CRC-64/NVME and knows the others.
    Elder,
    /// A store that ignores checksums and reports none.
    Silent,
}

/// A proxy between a store and its clients. It counts what passes, can hold answers back, and can
/// make an S3 server look older than it is. Threads end with their connections.
#[derive(Debug)]
pub struct StoreMask {
    address: SocketAddr,
    traffic: Arc<Traffic>,
}

/// Counters of what passes. Everything is counted before it is forwarded, so that a receiver finds
/// it counted.
#[derive(Debug, Default)]
struct Traffic {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// True while answers are held back.
    is_held: Mutex<bool>,
    let_go: Condvar,
}

impl Traffic {
    fn hold(&self, holds: bool) {
        *self.is_held.lock().unwrap_or_else(PoisonError::into_inner) = holds;
        self.let_go.notify_all();
    }

    fn wait_until_let_go(&self) {
        let is_held = self.is_held.lock().unwrap_or_else(PoisonError::into_inner);
        // A panic while the lock was held has ended the test.
        let _held = self.let_go.wait_while(is_held, |is_held| *is_held);
    }
}

impl StoreMask {
    /// Listens before `server`.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub fn start(server: SocketAddr, looks: StoreLooks) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen before a store")?;
        let address = listener.local_addr()?;
        let traffic = Arc::new(Traffic::default());
        let counter = Arc::clone(&traffic);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let counter = Arc::clone(&counter);
                thread::spawn(move || {
                    // The client must cope with a broken connection.
                    let _ = pass(client, server, looks, &counter);
                });
            }
        });
        Ok(Self { address, traffic })
    }

    /// Returns `http://ADDRESS:PORT`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the bytes that passed so far, in both directions.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.traffic.bytes.load(SeqCst)
    }

    /// Returns the requests so far, except those that it rejected itself.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.traffic.requests.load(SeqCst)
    }

    /// Holds answers back from now on, or (`false`) no longer.
    pub fn hold_answers(&self, holds: bool) {
        self.traffic.hold(holds);
    }
}

/// Forwards one request and its answer.
fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    looks: StoreLooks,
    traffic: &Arc<Traffic>,
) -> io::Result<()> {
    let (head, rest) = read_head(&mut client)?;
    let lower = head.to_ascii_lowercase();
    let sent = ["x-amz-checksum-crc", "x-amz-checksum-algorithm"];
    let is_refused = match looks {
        StoreLooks::Same | StoreLooks::Silent => false,
        StoreLooks::Refusing => sent.iter().any(|name| lower.contains(name)),
        StoreLooks::Elder => lower.contains("crc64nvme"),
    };
    if is_refused {
        return refuse(&mut client, &head, rest.len());
    }
    let mut server = TcpStream::connect(server)?;
    // One request a connection, so that its end needs no search.
    let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
    traffic.requests.fetch_add(1, SeqCst);
    let len = head.len() + rest.len();
    traffic.bytes.fetch_add(len as u64, SeqCst);
    server.write_all(head.as_bytes())?;
    server.write_all(&rest)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let counter = Arc::clone(traffic);
    thread::spawn(move || count(&mut from_client, &mut to_server, &counter));
    let (head, rest) = read_head(&mut server)?;
    traffic.wait_until_let_go();
    let tells = |line: &&str| !line.to_ascii_lowercase().starts_with("x-amz-checksum-");
    let head: Vec<&str> = match looks {
        StoreLooks::Same | StoreLooks::Elder => head.split("\r\n").collect(),
        StoreLooks::Refusing | StoreLooks::Silent => head.split("\r\n").filter(tells).collect(),
    };
    traffic.bytes.fetch_add(rest.len() as u64, SeqCst);
    client.write_all(head.join("\r\n").as_bytes())?;
    client.write_all(&rest)?;
    let ended = count(&mut server, &mut client, traffic);
    client.shutdown(Shutdown::Both)?;
    ended
}

fn count(from: &mut TcpStream, to: &mut TcpStream, traffic: &Traffic) -> io::Result<()> {
    let mut block = vec![0; 64 << 10];
    loop {
        let len = from.read(&mut block)?;
        if len == 0 {
            return Ok(());
        }
        traffic.bytes.fetch_add(len as u64, SeqCst);
        to.write_all(&block[..len])?;
    }
}

/// Returns a head with the empty line behind it, and the bytes that came with it.
fn read_head(stream: &mut TcpStream) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    loop {
        let found = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = found {
            let rest = bytes.split_off(end + 4);
            let head = String::from_utf8(bytes).map_err(io::Error::other)?;
            return Ok((head, rest));
        }
        let len = stream.read(&mut block)?;
        if len == 0 || bytes.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&block[..len]);
    }
}

fn refuse(client: &mut TcpStream, head: &str, read: usize) -> io::Result<()> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let len = lines
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .find_map(|(_, value)| value.trim().parse::<u64>().ok())
        .unwrap_or(0);
    // A client that is still sending would not see the answer.
    let left = len.saturating_sub(read as u64);
    io::copy(&mut client.take(left), &mut io::sink())?;
    let body = "<Error><Code>NotImplemented</Code><Message>A header you provided implies \
                functionality that is not implemented</Message></Error>";
    let answer = format!(
        "HTTP/1.1 501 Not Implemented\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    client.write_all(answer.as_bytes())?;
    client.shutdown(Shutdown::Write)
}
