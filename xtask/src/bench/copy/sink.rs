//! The bare limit: a server that does nothing but HTTP/1.1. It discards what is put and sends files
//! as the kernel sends them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context;

/// Bytes read at once.
const BLOCK_BYTES: usize = 256 << 10;

/// A running sink; its threads end with the process.
#[derive(Debug)]
pub struct Sink {
    port: u16,
}

impl Sink {
    /// Listens on loopback; files are sent from below `folder`.
    ///
    /// # Errors
    /// Fails if there is no free port.
    pub fn start(folder: &Path) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("find a port")?;
        let port = listener.local_addr()?.port();
        let folder = folder.to_owned();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let folder = folder.clone();
                thread::spawn(move || serve(&client, &folder));
            }
        });
        Ok(Self { port })
    }

    /// Returns the URL it listens on.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Serves one connection to its end, whatever that is.
fn serve(client: &TcpStream, folder: &Path) {
    // A head and a small file are two packets, and the second must not wait for the first.
    let _ = client.set_nodelay(true);
    let mut reader = BufReader::with_capacity(BLOCK_BYTES, client);
    while let Ok(Some(request)) = read_head(&mut reader) {
        let done = if request.is_get {
            send(client, &folder.join(request.path))
        } else {
            let body = io::copy(&mut reader.by_ref().take(request.length), &mut io::sink());
            body.and_then(|_| reply(client, 0))
        };
        if done.is_err() {
            return;
        }
    }
}

struct Request {
    is_get: bool,
    path: PathBuf,
    length: u64,
}

fn read_head(reader: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let is_get = words.next() == Some("GET");
    let path = words.next().unwrap_or_default().trim_start_matches('/');
    let path = PathBuf::from(path);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    Ok(Some(Request {
        is_get,
        path,
        length,
    }))
}

fn reply(mut client: &TcpStream, length: u64) -> io::Result<()> {
    client.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes())
}

fn send(mut client: &TcpStream, path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    reply(client, file.metadata()?.len())?;
    io::copy(&mut file, &mut client).map(|_| ())
}
