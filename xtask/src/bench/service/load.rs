//! Clients with kept connections that measure answer times.

use std::{
    collections::VecDeque,
    fmt,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{now, subject::Subject};

/// Status of a service that is full, and the pause before the next try.
const BUSY: u16 = 503;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A call: its method, path and body.
pub(super) type Call = (String, String, String);

/// Answer times.
pub(super) struct Latency {
    median: Duration,
    p99: Duration,
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(f, "{:.1} ms, {:.1} ms", ms(self.median), ms(self.p99))
    }
}

/// Service that clients ask.
pub(super) struct Load {
    address: String,
    token: String,
}

impl Load {
    pub(super) fn new(subject: &Subject) -> Self {
        Self {
            address: subject.address.clone(),
            token: subject.token.clone(),
        }
    }

    /// Makes all calls by so many clients at once. Returns the time of one, and of all of them.
    ///
    /// # Errors
    /// Fails if one is answered with another status.
    pub(super) fn run(
        &self,
        clients: usize,
        calls: Vec<Call>,
        wanted: u16,
    ) -> Result<(Latency, Duration)> {
        let (calls, took) = (Mutex::new(VecDeque::from(calls)), Mutex::new(Vec::new()));
        let begun = now();
        thread::scope(|scope| {
            let work = || -> Result<()> {
                let mut client = self.connect()?;
                let mut mine = Vec::new();
                loop {
                    let next = locked(&calls).pop_front();
                    let Some((method, path, body)) = next else {
                        break;
                    };
                    let asked = now();
                    let (mut status, mut said) = client.ask(&self.token, &method, &path, &body)?;
                    // The service asks for that: so many wait for their scan already.
                    while status == BUSY {
                        thread::sleep(BUSY_PAUSE);
                        (status, said) = client.ask(&self.token, &method, &path, &body)?;
                    }
                    mine.push(asked.elapsed());
                    ensure!(status == wanted, "{method} {path}: {status} {said}");
                }
                locked(&took).extend(mine);
                Ok(())
            };
            let running: Vec<_> = (0..clients).map(|_| scope.spawn(work)).collect();
            let ended = running.into_iter().map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("a client ended badly")))
            });
            ended.collect::<Result<Vec<()>>>()
        })?;
        let all = begun.elapsed();
        let mut took = took.into_inner().unwrap_or_else(PoisonError::into_inner);
        took.sort_unstable();
        let at = |permille: usize| took[(took.len() * permille / 1000).min(took.len() - 1)];
        ensure!(!took.is_empty(), "nothing was asked");
        let latency = Latency {
            median: at(500),
            p99: at(990),
        };
        Ok((latency, all))
    }

    /// Sends all lines in one call, and waits for the answers to so many, each of which is to be
    /// good. Returns the time.
    ///
    /// # Errors
    /// Fails if one is answered with a problem, or not at all.
    pub(super) fn pour(&self, lines: &str, count: usize) -> Result<Duration> {
        let begun = now();
        let mut stream = TcpStream::connect(&self.address)?;
        let head = format!(
            "POST /v1/requests/bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
            self.token,
            lines.len()
        );
        let reader = BufReader::new(stream.try_clone()?);
        thread::scope(|scope| {
            let sending = scope.spawn(move || {
                stream.write_all(head.as_bytes())?;
                stream.write_all(lines.as_bytes())
            });
            let answers = reader.lines().map_while(Result::ok);
            let mut answered = 0;
            for answer in answers.filter(|line| line.starts_with('{')) {
                ensure!(answer.contains("\"id\""), "{answer}");
                answered += 1;
                if answered == count {
                    break;
                }
            }
            ensure!(
                answered == count,
                "{answered} of {count} lines were answered"
            );
            sending
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("it ended badly")))?;
            Ok(())
        })?;
        Ok(begun.elapsed())
    }

    /// Listens to events on so many connections, until the result is dropped.
    ///
    /// # Errors
    /// Fails if one can't connect.
    pub(super) fn watch(&self, watchers: usize) -> Result<Vec<TcpStream>> {
        let mut streams = Vec::new();
        for _ in 0..watchers {
            let mut stream = TcpStream::connect(&self.address)?;
            let ask = format!(
                "GET /v1/events?after=1000000000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
                self.token
            );
            stream.write_all(ask.as_bytes())?;
            let mut reads = stream.try_clone()?;
            thread::spawn(move || {
                let mut block = [0; 4096];
                while reads.read(&mut block).is_ok_and(|read| read > 0) {}
            });
            streams.push(stream);
        }
        Ok(streams)
    }

    /// Connects a client.
    ///
    /// # Errors
    /// Fails if nobody answers.
    pub(super) fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        Ok(Client {
            reader: BufReader::new(stream),
        })
    }
}

fn locked<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that is kept.
pub(super) struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Makes a call and returns its status and answer.
    ///
    /// # Errors
    /// Fails if the connection breaks, or the answer is no HTTP.
    pub(super) fn ask(
        &mut self,
        token: &str,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, String)> {
        let kind = match body.contains('\n') {
            true => "application/x-ndjson",
            false => "application/json",
        };
        let ask = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.reader.get_mut().write_all(ask.as_bytes())?;
        let (mut status, mut length) = (0, 0);
        loop {
            let mut line = String::new();
            ensure!(
                self.reader.read_line(&mut line)? > 0,
                "the connection ended"
            );
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest.get(..3).context("no status")?.parse()?;
            } else if let Some(rest) = line.strip_prefix("content-length:") {
                length = rest.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.reader.read_exact(&mut answer)?;
        Ok((status, String::from_utf8_lossy(&answer).into_owned()))
    }
}
