//! Requests to a running laboratory from outside: over a socket in its folder, a line of JSON each
//! way.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    emulator::{Line, PipeReport},
    network::Count,
    register::{HostRecord, Keeper, Record},
    topology::Topology,
};

/// The longest request, in bytes: a change in words.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// Longest time for a requester.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Request to a laboratory.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// Report its state.
    Status,
    /// Change a link or an access.
    Change {
        /// The name of the link or host.
        target: String,
        /// `name=value`.
        words: Vec<String>,
    },
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Response {
    Status(Status),
    Changed,
    Error(String),
}

/// State of one direction of a link, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct PipeStatus {
    /// Rate.
    pub rate: String,
    /// Its one-way delay.
    pub delay: String,
    /// Jitter of the delay.
    pub jitter: String,
    /// Segments lost, each by itself.
    pub loss: String,
    /// Segments between bursts of loss, on average; 0: no bursts.
    pub burst_every: u64,
    /// Most queued bytes.
    pub queue_bytes_max: u64,
    /// True while it is up.
    pub is_up: bool,
    /// Queued bytes, on the wire.
    pub queued_bytes: u64,
    /// Bytes in flight.
    pub under_way_bytes: u64,
    /// Counts of the segments that entered.
    pub segments: Count,
}

/// A link, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct LinkStatus {
    /// Name.
    pub name: String,
    /// The hosts it joins.
    pub ends: [String; 2],
    /// State from the first host to the second.
    pub forth: PipeStatus,
    /// State from the second host to the first.
    pub back: PipeStatus,
}

/// A host, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct HostStatus {
    /// Its names and addresses.
    #[serde(flatten)]
    pub record: HostRecord,
    /// Egress shared by all its traffic.
    pub up: String,
    /// Ingress shared by all its traffic.
    pub down: String,
}

/// A laboratory, for people and programs.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub struct Status {
    /// Name.
    pub name: String,
    /// The process that keeps it up.
    pub pid: u32,
    /// Kind of that process.
    pub keeper: Keeper,
    /// Seconds since its start.
    pub uptime_s: f64,
    /// Processor time the emulator has used.
    pub emulator_cpu_s: f64,
    /// Packets that a host's kernel refused: 0 unless somebody removed its interface.
    pub refused_packets: u64,
    /// Scripted changes that contradicted changes from outside.
    pub refused_changes: u64,
    /// Its hosts.
    pub hosts: Vec<HostStatus>,
    /// Its links.
    pub links: Vec<LinkStatus>,
}

impl From<PipeReport> for PipeStatus {
    fn from(report: PipeReport) -> Self {
        let conditions = report.conditions;
        Self {
            rate: conditions.rate.to_string(),
            delay: conditions.delay.to_string(),
            jitter: conditions.jitter.to_string(),
            loss: conditions.loss.to_string(),
            burst_every: conditions.burst_every,
            queue_bytes_max: conditions.queue_bytes(),
            is_up: conditions.state == crate::topology::State::Up,
            queued_bytes: report.queued_bytes,
            under_way_bytes: report.under_way_bytes,
            segments: report.count,
        }
    }
}

/// Answers requests for one laboratory.
#[derive(Debug, Clone)]
pub struct Desk {
    /// Topology it was built from.
    pub topology: Arc<Topology>,
    /// Record known outside.
    pub record: Record,
    /// Line to its emulator.
    pub line: Line,
}

impl Desk {
    /// Returns its state.
    ///
    /// # Errors
    /// Fails if the emulator has ended.
    pub fn status(&self) -> Result<Status> {
        let report = self.line.report()?;
        let hosts = self.record.hosts.iter().zip(&report.accesses);
        let links = self.topology.links().iter().zip(&report.pipes);
        let name = |place: usize| self.topology.hosts()[place].name.clone();
        Ok(Status {
            name: self.record.name.clone(),
            pid: self.record.pid,
            keeper: self.record.keeper,
            uptime_s: report.uptime.as_secs_f64(),
            emulator_cpu_s: report.cpu_time.as_secs_f64(),
            refused_packets: report.refused_packets,
            refused_changes: report.refused_changes,
            hosts: hosts
                .map(|(record, (up, down))| HostStatus {
                    record: record.clone(),
                    up: up.rate.to_string(),
                    down: down.rate.to_string(),
                })
                .collect(),
            links: links
                .map(|(link, [forth, back])| LinkStatus {
                    name: link.name.clone(),
                    ends: link.ends.map(|end| name(end.0)),
                    forth: (*forth).into(),
                    back: (*back).into(),
                })
                .collect(),
        })
    }

    /// Changes a link or an access.
    ///
    /// # Errors
    /// Fails if there is no such thing, or the change is impossible; one line.
    pub fn change(&self, target: &str, words: &[String]) -> Result<()> {
        self.line.change(self.topology.change(target, words)?)
    }

    fn answer(&self, request: Request) -> Response {
        let answered = match request {
            Request::Status => self.status().map(Response::Status),
            Request::Change { target, words } => {
                self.change(&target, &words).map(|()| Response::Changed)
            }
        };
        answered.unwrap_or_else(|error| Response::Error(format!("{error:#}")))
    }

    fn serve(&self, stream: &UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(REQUEST_TIME_MAX))?;
        stream.set_write_timeout(Some(REQUEST_TIME_MAX))?;
        let mut line = String::new();
        BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
        let response = match serde_json::from_str(&line) {
            Ok(request) => self.answer(request),
            Err(error) => Response::Error(format!("can't understand the request: {error}")),
        };
        write_line(stream, &response)
    }
}

/// The thread that serves the socket; it ends with its owner.
#[derive(Debug)]
pub struct Control {
    record: Record,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts it.
    ///
    /// # Errors
    /// Fails if the socket can't be made.
    pub fn start(desk: Desk) -> Result<Self> {
        let record = desk.record.clone();
        let listener = UnixListener::bind(record.socket())
            .with_context(|| format!("can't listen at {}", record.socket().display()))?;
        let ends = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&ends);
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                for stream in listener.incoming() {
                    if watched.load(Ordering::Acquire) {
                        return;
                    }
                    if let Ok(stream) = stream {
                        // A requester that is gone gets no answer.
                        let _ = desk.serve(&stream);
                    }
                }
            })
            .context("start the control thread")?;
        Ok(Self {
            record,
            ends,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // The thread waits for a connection: this one wakes it.
        let woken = UnixStream::connect(self.record.socket());
        if let Some(thread) = self.thread.take()
            && woken.is_ok()
        {
            let _ = thread.join();
        }
    }
}

/// Asks a laboratory for its state.
///
/// # Errors
/// Fails if it does not answer.
pub fn status(record: &Record) -> Result<Status> {
    match ask(record, &Request::Status)? {
        Response::Status(status) => Ok(status),
        Response::Error(error) => bail!(error),
        Response::Changed => bail!("{} gave an answer to another question", record.name),
    }
}

/// Asks a laboratory to change a link or an access.
///
/// # Errors
/// Fails if it refuses, in one line, or does not answer.
pub fn change(record: &Record, target: &str, words: &[String]) -> Result<()> {
    let request = Request::Change {
        target: target.to_owned(),
        words: words.to_vec(),
    };
    match ask(record, &request)? {
        Response::Changed => Ok(()),
        Response::Error(error) => bail!(error),
        Response::Status(_) => bail!("{} gave an answer to another question", record.name),
    }
}

fn ask(record: &Record, request: &Request) -> Result<Response> {
    let stream = UnixStream::connect(record.socket())
        .with_context(|| format!("can't reach the laboratory {}", record.name))?;
    write_line(&stream, request)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    serde_json::from_str(&line)
        .with_context(|| format!("can't understand the laboratory {}", record.name))
}

fn write_line(mut stream: &UnixStream, what: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    Ok(())
}
