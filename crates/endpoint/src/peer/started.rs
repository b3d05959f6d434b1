//! Peer started over SSH: found, connected to by the best route, and restarted when lost.
//!
//! The `ssh` channel is available at once and carries the first requests, while direct connections
//! to the peer's port are tried. If none opens, the channel carries everything.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::client::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader},
    process::{ChildStdin, ChildStdout},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    Notices,
    body::Body,
    connection::{Connection, Target},
    direct::{Direct, Telling, choose},
    executor::Owned,
    invitation::Invitation,
    pool::{Lease, Pool},
    wire::{Operation, agree},
};
use crate::{
    Error, ErrorKind, Locus, Result,
    gateway::Gateways,
    line::Counted,
    relay::Credential,
    sftp::Host,
    ssh::{self, Complaints},
};

/// Longest wait for the peer's line: a slow handshake through a jump host.
const INVITED_WITHIN: Duration = Duration::from_secs(45);

/// Most bytes of login shell output before the peer's line.
const PREAMBLE_BYTES_MAX: u64 = 256 << 10;

/// Interval between signs of life to the peer, which waits 90 s for one.
const PING_EVERY: Duration = Duration::from_secs(15);

/// Time without an answer to a sign of life after which the channel counts as dead.
const PONG_WITHIN: Duration = Duration::from_secs(30);

/// Pause after a failed start: many requests want one at the same time.
const START_PAUSE: Duration = Duration::from_secs(1);

/// Most bytes of one request or answer in flight through the channel.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// Most bytes of all of them together.
const CHANNEL_WINDOW_BYTES: u32 = 16 << 20;

/// Most bytes of one frame of the channel.
const FRAME_BYTES_MAX: u32 = 256 << 10;

/// Preface of HTTP/2 (RFC 9113, section 3.4). It is sent before the listener is known: an SFTP
/// server started in the peer's place hangs up at once instead of waiting for more.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Options for starting a peer.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// Program at the other end, as its shell reads it; `posthaste` for `None`.
    pub program: Option<String>,
    /// Ports on which it may listen, as `LOW-HIGH`; any free one for `None`.
    pub ports: Option<String>,
    /// Receiver of notices.
    pub notices: Notices,
}

/// Single run of the process at the other end.
struct Session {
    channel: http2::SendRequest<Body>,
    activity: Arc<AtomicU64>,
    credential: Credential,
    direct: watch::Receiver<Direct>,
    /// Futures of the channel and of the attempts to connect directly.
    _running: JoinSet<()>,
    /// Process that ends with the session.
    _ssh: ssh::Running,
}

#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    failed_at: Option<Instant>,
}

/// Peer that is started over SSH.
pub(super) struct Started {
    host: Host,
    command: String,
    gateways: Arc<Gateways>,
    shown: Arc<str>,
    notices: Notices,
    slot: tokio::sync::Mutex<Slot>,
    /// Session in `slot`, for callers that can't wait.
    current: Mutex<Option<Arc<Session>>>,
    /// Round trip time of the first answer, until a connection measures it better.
    rtt_us: AtomicU64,
    told_closed: Arc<AtomicBool>,
}

/// Reason why there is no peer.
pub(super) enum NotStarted {
    /// No posthaste on the host, or none with this feature.
    Missing(String),
    /// Any other failure.
    Failed(Error),
}

impl From<Error> for NotStarted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Started {
    pub(super) fn new(host: Host, options: StartOptions, gateways: Arc<Gateways>) -> Self {
        let program = options.program.as_deref().unwrap_or("posthaste");
        let ports = options
            .ports
            .map_or_else(String::new, |ports| format!(" --ports {ports}"));
        Self {
            command: format!("{program} peer{ports}"),
            shown: show(&host).into(),
            host,
            gateways,
            notices: options.notices,
            slot: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            rtt_us: AtomicU64::new(0),
            told_closed: Arc::default(),
        }
    }

    /// Starts the peer for the first time.
    pub(super) async fn start_first(&self) -> Result<(), NotStarted> {
        let session = Arc::new(self.start().await?);
        self.keep(&mut *self.slot.lock().await, session);
        Ok(())
    }

    fn keep(&self, slot: &mut Slot, session: Arc<Session>) {
        slot.failed_at = None;
        slot.session = Some(Arc::clone(&session));
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Returns the session, restarted if it was lost.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut slot = self.slot.lock().await;
        if let Some(session) = &slot.session
            && !session.channel.is_closed()
        {
            return Ok(Arc::clone(session));
        }
        slot.session = None;
        if let Some(failed_at) = slot.failed_at {
            sleep(START_PAUSE.saturating_sub(failed_at.elapsed())).await;
        }
        match self.start().await {
            Ok(session) => {
                let session = Arc::new(session);
                self.keep(&mut slot, Arc::clone(&session));
                Ok(session)
            }
            Err(not_started) => {
                slot.failed_at = Some(Instant::now());
                Err(match not_started {
                    NotStarted::Failed(error) => error,
                    NotStarted::Missing(cause) => {
                        failed(&self.shown, ErrorKind::Unreachable).cause(cause)
                    }
                })
            }
        }
    }

    /// Returns the right to make one request. Bulk data waits until the path is chosen.
    pub(super) async fn lease(
        &self,
        operation: Operation,
        reuse: bool,
    ) -> Result<(Lease, Credential)> {
        let session = self.session().await?;
        let mut direct = session.direct.clone();
        let way = if is_bulk(operation) {
            let decided = direct.wait_for(|way| !matches!(way, Direct::Trying)).await;
            decided.map_or(Direct::Closed, |way| way.clone())
        } else {
            direct.borrow().clone()
        };
        let lease = match way {
            Direct::Open(pool) => match pool.lease(reuse).await {
                // The channel remains when no route opens any more.
                Err(_) if !session.channel.is_closed() => self.share_of(&session),
                leased => leased?,
            },
            Direct::Trying | Direct::Closed => self.share_of(&session),
        };
        Ok((lease, session.credential.clone()))
    }

    /// Returns a share in the channel.
    fn share_of(&self, session: &Session) -> Lease {
        let (sender, activity) = (session.channel.clone(), Arc::clone(&session.activity));
        let connection = Connection::shared(sender, activity);
        Lease::of_channel(connection, Arc::clone(&self.shown))
    }

    /// Returns its direct connections, once there are any.
    pub(super) fn pool(&self) -> Option<Arc<Pool>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let way = current.as_ref()?.direct.borrow().clone();
        match way {
            Direct::Open(pool) => Some(pool),
            Direct::Trying | Direct::Closed => None,
        }
    }

    /// Returns the round trip time.
    pub(super) fn rtt(&self) -> Duration {
        match self.pool() {
            Some(pool) => pool.rtt(),
            None => Duration::from_micros(self.rtt_us.load(Relaxed)),
        }
    }

    /// Records the time of a short answer as the round trip time.
    pub(super) fn answered_after(&self, elapsed: Duration) {
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.rtt_us.store(elapsed_us, Relaxed);
    }

    async fn start(&self) -> Result<Session, NotStarted> {
        let mut command = ssh::command(&self.host);
        command.args(["--", &self.host.host, &self.command]);
        let child = command.spawn().map_err(|cause| {
            Error::io("run", "ssh", cause).hint("install the package openssh-client")
        })?;
        let mut ssh = ssh::Running(child);
        let (Some(mut input), Some(output), Some(complaints)) =
            (ssh.0.stdin.take(), ssh.0.stdout.take(), ssh.0.stderr.take())
        else {
            let error = failed(&self.shown, ErrorKind::Other).cause("ssh has no pipes");
            return Err(error.into());
        };
        let mut running = JoinSet::new();
        let complaints = Complaints::collect(complaints, &mut running);
        // A process that hung up reports the reason at the other end.
        let _ = input.write_all(PREFACE).await;
        let mut output = BufReader::new(output);
        let invitation = match timeout(INVITED_WITHIN, invited(&mut output)).await {
            Ok(Some(invitation)) => invitation,
            Ok(None) => return Err(self.not_invited(ssh, &complaints).await),
            Err(_) => {
                let error = failed(&self.shown, ErrorKind::TimedOut).cause("no answer");
                return Err(error.into());
            }
        };
        self.open_channel(ssh, input, output, running, &invitation)
            .await
            .map_err(NotStarted::from)
    }

    /// Returns the reason why the output ended without an invitation.
    async fn not_invited(&self, mut ssh: ssh::Running, complaints: &Complaints) -> NotStarted {
        let complaint = complaints.all().await;
        let status = timeout(PONG_WITHIN, ssh.0.wait()).await;
        let code = status
            .ok()
            .and_then(|status| status.ok())
            .and_then(|status| status.code());
        if code == Some(SSH_FAILED) || code.is_none() {
            return ssh::refused(&|kind| failed(&self.shown, kind), &complaint).into();
        }
        let mut lines = complaint.lines().map(str::trim).rev();
        let last = lines.find(|line| !line.is_empty()).unwrap_or("no answer");
        NotStarted::Missing(last.to_owned())
    }

    async fn open_channel(
        &self,
        ssh: ssh::Running,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
        mut running: JoinSet<()>,
        invitation: &Invitation,
    ) -> Result<Session> {
        let fail = |kind| failed(&self.shown, kind);
        agree(invitation.oldest, invitation.newest, &invitation.release).map_err(|line| {
            fail(ErrorKind::Unsupported)
                .cause(line)
                .hint("install the same release at both ends")
        })?;
        let (Some(fingerprint), Some(secret)) = (invitation.fingerprint(), invitation.secret())
        else {
            return Err(fail(ErrorKind::Unsupported).cause("its line is not understood"));
        };
        let activity = Arc::new(AtomicU64::new(0));
        let input = AfterPreface {
            input,
            left: PREFACE.len(),
        };
        let joined = Counted::new(tokio::io::join(output, input), Arc::clone(&activity));
        let (channel, driver) = http2::Builder::new(Owned::default())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PONG_WITHIN)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CHANNEL_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .handshake(TokioIo::new(joined))
            .await
            .map_err(|cause| fail(ErrorKind::Unreachable).cause(cause))?;
        running.spawn(async move {
            let _ = driver.await;
        });
        let (decide, direct) = watch::channel(Direct::Trying);
        let mut hosts: Vec<String> = invitation.address.iter().map(ToString::to_string).collect();
        if invitation.address.is_some() && !hosts.contains(&self.host.host) {
            hosts.push(self.host.host.clone());
        }
        let mut targets = Vec::new();
        for host in &hosts {
            let ways = self.gateways.ways_to_host(host, invitation.port)?;
            let target = Target::new(host, invitation.port, fingerprint, &self.shown, ways);
            targets.extend(target.ok());
        }
        running.spawn(choose(
            targets,
            decide,
            Telling {
                notices: self.notices.clone(),
                host: self.host.host.clone(),
                told_closed: Arc::clone(&self.told_closed),
            },
        ));
        Ok(Session {
            channel,
            activity,
            credential: Credential::Secret(secret),
            direct,
            _running: running,
            _ssh: ssh,
        })
    }
}

/// Exit status of `ssh` for its own or the network's faults.
const SSH_FAILED: i32 = 255;

fn failed(shown: &str, kind: ErrorKind) -> Error {
    Error::new(kind, "connect to", shown).at(Locus::Network)
}

/// Returns `user@host`, as it can be written again.
fn show(host: &Host) -> String {
    let name = match host.host.contains(':') {
        true => format!("[{}]", host.host),
        false => host.host.clone(),
    };
    match &host.user {
        Some(user) => format!("{user}@{name}"),
        None => name,
    }
}

/// Returns `user@host:`, which precedes a path.
pub(super) fn prefix(host: &Host) -> String {
    format!("{}:", show(host))
}

const fn is_bulk(operation: Operation) -> bool {
    match operation {
        Operation::Read
        | Operation::Fetch
        | Operation::Store
        | Operation::Write
        | Operation::WriteOpen => true,
        Operation::Hello
        | Operation::Stat
        | Operation::List
        | Operation::Create
        | Operation::Finish
        | Operation::FinishAhead
        | Operation::FinishOpen
        | Operation::Discard
        | Operation::MakeLink
        | Operation::ReadLink
        | Operation::MakeDirectories
        | Operation::SealDirectories
        | Operation::Remove
        | Operation::RealPath
        | Operation::TimeStep => false,
    }
}

/// Reads the invitation, after any output of a login shell; `None` if there is none.
async fn invited(output: &mut BufReader<ChildStdout>) -> Option<Invitation> {
    let mut left = PREAMBLE_BYTES_MAX;
    let mut line = Vec::new();
    while left > 0 {
        line.clear();
        let count = output.take(left).read_until(b'\n', &mut line).await.ok()?;
        if count == 0 {
            return None;
        }
        left -= count as u64;
        if let Some(invitation) = Invitation::parse(&line) {
            return Some(invitation);
        }
    }
    None
}

/// Standard input of a peer that already has the preface.
struct AfterPreface {
    input: ChildStdin,
    left: usize,
}

impl AsyncWrite for AfterPreface {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Pin::new(&mut self.input).poll_write(context, bytes);
        }
        let skipped = self.left.min(bytes.len());
        if skipped < bytes.len() {
            let rest = &bytes[skipped..];
            let written = ready!(Pin::new(&mut self.input).poll_write(context, rest))?;
            self.left = 0;
            return Poll::Ready(Ok(skipped + written));
        }
        self.left -= skipped;
        Poll::Ready(Ok(skipped))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_shutdown(context)
    }
}
