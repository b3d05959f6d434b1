//! One `ssh -s HOST sftp` process with many requests under way at once.
//!
//! `ssh` brings everything people have set up: `ssh_config`, keys, agent, `known_hosts`,
//! `ProxyJump`. An own client of the protocol, because names must be allowed to be any bytes.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::timeout,
};

use super::{
    Host,
    wire::{EXTENDED, INIT, Reply, Request, VERSION, get_string, get_u32, read_reply},
};
use crate::{
    Error, ErrorKind, Locus, Result, clock,
    ssh::{self, Complaints},
};

/// Nothing came back for this long: the connection counts as dead.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Longest to wait for a connection: a slow handshake through a jump host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(45);

/// Requests waiting to be written: 8 MiB of payload at most.
const QUEUED_REQUESTS: usize = 32;

/// Longest packet believed, in bytes: OpenSSH's own limit.
const PACKET_BYTES_MAX: usize = 256 << 10;

/// Payload a server takes that doesn't tell its limits (draft-ietf-secsh-filexfer-02, section 3).
const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 10;

type Waiting = Mutex<HashMap<u32, oneshot::Sender<Reply>>>;

/// A connection. Dead connections stay dead.
pub(super) struct Session {
    queue: mpsc::Sender<(Bytes, Option<Bytes>)>,
    waiting: Arc<Waiting>,
    dead: Arc<AtomicBool>,
    next_id: AtomicU32,
    host: String,
    pub read_bytes_max: u32,
    pub write_bytes_max: u32,
    pub posix_rename: bool,
    pub statvfs: bool,
    /// The server flushes a file to its disk when asked.
    pub fsync: bool,
    pub copy_data: bool,
    /// How long the answer to a small request took.
    pub round_trip: Option<Duration>,
    /// Reader, writer and the process; all end when the session is dropped.
    _running: JoinSet<()>,
    _child: Child,
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub(super) async fn connect(host: &Host) -> Result<Self> {
        let shown = host.show();
        let fail = |kind| Error::new(kind, "connect to", &*shown).at(Locus::Network);
        let mut child = command(host).spawn().map_err(|cause| {
            Error::io("run", "ssh", cause).hint("install the package openssh-client")
        })?;
        let (Some(mut input), Some(output), Some(complaints)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(fail(ErrorKind::Other).cause("ssh has no pipes"));
        };
        let mut running = JoinSet::new();
        let complaints = Complaints::collect(complaints, &mut running);
        let mut output = BufReader::with_capacity(PACKET_BYTES_MAX, output);
        let extensions = match timeout(CONNECTED_WITHIN, greet(&mut input, &mut output)).await {
            Err(_) => return Err(fail(ErrorKind::TimedOut).cause("no answer")),
            Ok(Some(extensions)) => extensions,
            Ok(None) => {
                return Err(ssh::refused(&fail, &complaints.all().await));
            }
        };
        let (queue, queued) = mpsc::channel(QUEUED_REQUESTS);
        let waiting = Arc::new(Waiting::default());
        let dead = Arc::new(AtomicBool::new(false));
        running.spawn(write_all(input, queued));
        running.spawn(read_all(output, Arc::clone(&waiting), Arc::clone(&dead)));
        let has = |name: &str| extensions.iter().any(|found| found == name);
        let mut session = Self {
            queue,
            waiting,
            dead,
            next_id: AtomicU32::new(0),
            host: shown.clone(),
            read_bytes_max: PAYLOAD_BYTES_DEFAULT,
            write_bytes_max: PAYLOAD_BYTES_DEFAULT,
            posix_rename: has("posix-rename@openssh.com"),
            statvfs: has("statvfs@openssh.com"),
            fsync: has("fsync@openssh.com"),
            copy_data: has("copy-data"),
            round_trip: None,
            _running: running,
            _child: child,
        };
        if has("limits@openssh.com") {
            session.ask_limits().await?;
        }
        Ok(session)
    }

    async fn ask_limits(&mut self) -> Result<()> {
        let request = Request::new(EXTENDED).string(b"limits@openssh.com");
        let asked = clock::now();
        if let Reply::Extended(mut limits) = self.ask(request).await?
            && limits.len() >= 24
        {
            self.round_trip = Some(clock::now().saturating_duration_since(asked));
            use bytes::Buf;
            limits.advance(8);
            let cap = |limit: u64| {
                // Room for the packet's own fields within the longest packet.
                let payload_max = PACKET_BYTES_MAX as u64 - 1024;
                u32::try_from(limit.min(payload_max)).unwrap_or(PAYLOAD_BYTES_DEFAULT)
            };
            let (read, write) = (cap(limits.get_u64()), cap(limits.get_u64()));
            if read > 0 && write > 0 {
                (self.read_bytes_max, self.write_bytes_max) = (read, write);
            }
        }
        Ok(())
    }

    /// Whether the connection broke.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Relaxed)
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        Error::new(kind, "talk to", &*self.host).at(Locus::Network)
    }

    fn broken(&self) -> Error {
        self.fail(ErrorKind::Unreachable)
            .cause("the connection broke")
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] when the connection breaks; [`ErrorKind::TimedOut`].
    pub(super) async fn ask(&self, request: Request) -> Result<Reply> {
        self.send(request).await?.reply().await
    }

    /// Sends a request after those sent before: the server works in that order.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] when the connection broke.
    pub(super) async fn send(&self, request: Request) -> Result<Asked<'_>> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, sender);
        let ticket = Ticket { session: self, id };
        if self.is_dead() {
            return Err(self.broken());
        }
        let head = request.head(id);
        self.queue
            .send((head, request.payload))
            .await
            .map_err(|_| self.broken())?;
        Ok(Asked { ticket, receiver })
    }
}

/// A request whose answer is to come.
pub(super) struct Asked<'a> {
    ticket: Ticket<'a>,
    receiver: oneshot::Receiver<Reply>,
}

impl Asked<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub(super) async fn reply(self) -> Result<Reply> {
        let session = self.ticket.session;
        match timeout(ANSWERED_WITHIN, self.receiver).await {
            Ok(reply) => reply.map_err(|_| session.broken()),
            Err(_) => {
                session.dead.store(true, Relaxed);
                let late = session.fail(ErrorKind::TimedOut);
                Err(late.cause("no answer for a minute"))
            }
        }
    }
}

/// Forgets a request whose asker is gone.
struct Ticket<'a> {
    session: &'a Session,
    id: u32,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut waiting = self
            .session
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&self.id);
    }
}

fn command(host: &Host) -> Command {
    let mut command = ssh::command(host);
    command.args(["-s", "--", &host.host, "sftp"]);
    command
}

/// Exchanges versions; returns the server's extensions, `None` when it hangs up.
async fn greet(
    input: &mut ChildStdin,
    output: &mut (impl AsyncRead + Unpin),
) -> Option<Vec<String>> {
    input
        .write_all(&[0, 0, 0, 5, INIT, 0, 0, 0, 3])
        .await
        .ok()?;
    input.flush().await.ok()?;
    let mut packet = read_packet(output).await?;
    let (&kind, _) = packet.split_first()?;
    if kind != VERSION {
        return None;
    }
    packet = packet.slice(1..);
    get_u32(&mut packet)?;
    let mut extensions = Vec::new();
    while let Some(name) = get_string(&mut packet) {
        get_string(&mut packet)?;
        extensions.push(String::from_utf8_lossy(&name).into_owned());
    }
    Some(extensions)
}

async fn read_packet(output: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let len = usize::try_from(output.read_u32().await.ok()?).ok()?;
    if len > PACKET_BYTES_MAX {
        return None;
    }
    let mut packet = BytesMut::zeroed(len);
    output.read_exact(&mut packet).await.ok()?;
    Some(packet.freeze())
}

async fn read_all(
    mut output: impl AsyncRead + Unpin,
    waiting: Arc<Waiting>,
    dead: Arc<AtomicBool>,
) {
    while let Some(packet) = read_packet(&mut output).await {
        let Some((id, reply)) = read_reply(packet) else {
            break;
        };
        let sender = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        if let Some(sender) = sender {
            // Nobody waits for the answer of a cancelled request.
            let _ = sender.send(reply);
        }
    }
    dead.store(true, Relaxed);
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

async fn write_all(mut input: ChildStdin, mut queued: mpsc::Receiver<(Bytes, Option<Bytes>)>) {
    while let Some((head, payload)) = queued.recv().await {
        if input.write_all(&head).await.is_err() {
            return;
        }
        if let Some(payload) = payload
            && input.write_all(&payload).await.is_err()
        {
            return;
        }
    }
}
