//! A session over one `ssh -s HOST sftp` process, with many requests under way at once.
//!
//! `ssh` brings people's whole setup: `ssh_config`, keys, agent, `known_hosts`, `ProxyJump`. The
//! client of the protocol is our own, because names must be allowed to be any bytes.

use std::{
    collections::{HashMap, VecDeque},
    io::IoSlice,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{ChildStdin, Command},
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
    posix::Block,
    ssh::{self, Complaints},
};

/// Time without an answer after which the connection counts as dead.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// Timeout of a connection: a slow handshake through a jump host.
const CONNECTED_WITHIN: Duration = Duration::from_secs(45);

/// Batches of requests waiting to be written: 8 MiB of payload at most if each is one write.
const QUEUED_BATCHES: usize = 32;

/// Bytes read ahead of a packet. Few, since they are copied once more.
const AHEAD_BYTES: usize = 16 << 10;

/// Capacity of a pipe to `ssh` in bytes: with the default of 64 KiB each request wakes both sides
/// several times. The most that Linux allows every user.
const PIPE_BYTES: usize = 1 << 20;

/// Longest packet accepted, in bytes: OpenSSH's own limit.
const PACKET_BYTES_MAX: usize = 256 << 10;

/// Size from which packets are read into reusable blocks of memory.
const BLOCK_FROM: usize = 128 << 10;

/// Payload accepted by a server that does not report its limits (draft-ietf-secsh-filexfer-02,
/// section 3).
const PAYLOAD_BYTES_DEFAULT: u32 = 32 << 10;

/// Characters shown of an output that is no answer.
const SHOWN_MAX: usize = 80;

type Waiting = Mutex<HashMap<u32, oneshot::Sender<Reply>>>;

/// Connection. Dead connections stay dead.
pub(super) struct Session {
    queue: mpsc::Sender<Vec<Bytes>>,
    waiting: Arc<Waiting>,
    dead: Arc<AtomicBool>,
    next_id: AtomicU32,
    host: String,
    pub read_bytes_max: u32,
    pub write_bytes_max: u32,
    pub posix_rename: bool,
    pub statvfs: bool,
    /// True if the server flushes a file to its disk on request.
    pub fsync: bool,
    pub copy_data: bool,
    /// True if the server sets attributes of links themselves.
    pub lsetstat: bool,
    /// Round-trip time of a small request.
    pub round_trip: Option<Duration>,
    /// Reader, writer and the process; all end when the session is dropped.
    _running: JoinSet<()>,
    _ssh: ssh::Running,
}

impl Session {
    /// Connects, and proposes `ciphers` if there are any.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub(super) async fn connect(host: &Host, ciphers: Option<&str>) -> Result<Self> {
        let shown = host.show();
        let fail = |kind| Error::new(kind, "connect to", &*shown).at(Locus::Network);
        let child = command(host, ciphers).spawn().map_err(|cause| {
            Error::io("run", "ssh", cause).hint("install the package openssh-client")
        })?;
        let mut ssh = ssh::Running(child);
        let (Some(mut input), Some(output), Some(complaints)) =
            (ssh.0.stdin.take(), ssh.0.stdout.take(), ssh.0.stderr.take())
        else {
            return Err(fail(ErrorKind::Other).cause("ssh has no pipes"));
        };
        let mut running = JoinSet::new();
        let complaints = Complaints::collect(complaints, &mut running);
        // Less will do if the system gives no more.
        let _ = rustix::pipe::fcntl_setpipe_size(&input, PIPE_BYTES);
        let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE_BYTES);
        let mut output = BufReader::with_capacity(AHEAD_BYTES, output);
        let extensions = match timeout(CONNECTED_WITHIN, greet(&mut input, &mut output)).await {
            Err(_) => return Err(fail(ErrorKind::TimedOut).cause("no answer")),
            Ok(Ok(extensions)) => extensions,
            Ok(Err(NoServer::Ended)) => {
                return Err(ssh::refused(&fail, &complaints.all().await));
            }
            Ok(Err(NoServer::Says(text))) => {
                return Err(fail(ErrorKind::Other)
                    .cause(format!("instead of a server of SFTP there is \"{text}\""))
                    .hint(
                        "let the start files of the shell there print nothing where no terminal is",
                    ));
            }
        };
        let (queue, queued) = mpsc::channel(QUEUED_BATCHES);
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
            lsetstat: has("lsetstat@openssh.com"),
            round_trip: None,
            _running: running,
            _ssh: ssh,
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
            limits.advance(8);
            let cap = |limit: u64| {
                // The packet's own fields need room within the longest packet.
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

    /// Returns whether the connection broke.
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
    /// [`ErrorKind::Unreachable`] if the connection breaks; [`ErrorKind::TimedOut`].
    pub(super) async fn ask(&self, request: Request) -> Result<Reply> {
        self.send(request).await?.reply().await
    }

    /// Sends a request after those sent before: the server works in that order.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if the connection broke.
    pub(super) async fn send(&self, request: Request) -> Result<Asked<'_>> {
        let mut batch = Batch::new(self);
        let asked = batch.add(request);
        batch.send().await?;
        Ok(asked)
    }
}

/// Requests that are sent together, in this order.
pub(super) struct Batch<'a> {
    session: &'a Session,
    pieces: Vec<Bytes>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self {
            session,
            pieces: Vec::new(),
        }
    }

    /// Adds a request; its answer comes after the batch was sent.
    pub(super) fn add(&mut self, request: Request) -> Asked<'a> {
        let session = self.session;
        let id = session.next_id.fetch_add(1, Relaxed);
        let (sender, receiver) = oneshot::channel();
        session
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, sender);
        request.send_to(id, &mut self.pieces);
        let ticket = Ticket { session, id };
        Asked { ticket, receiver }
    }

    /// Sends them after all earlier ones.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`] if the connection broke.
    pub(super) async fn send(self) -> Result<()> {
        if self.session.is_dead() {
            return Err(self.session.broken());
        }
        let queued = self.session.queue.send(self.pieces).await;
        queued.map_err(|_| self.session.broken())
    }
}

/// Pending request.
pub(super) struct Asked<'a> {
    ticket: Ticket<'a>,
    receiver: oneshot::Receiver<Reply>,
}

impl Asked<'_> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// See [`Session::ask`].
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

/// Guard that forgets a request whose caller is gone.
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

fn command(host: &Host, ciphers: Option<&str>) -> Command {
    let mut command = ssh::command(host);
    if let Some(ciphers) = ciphers {
        command.args(["-o", &format!("Ciphers={ciphers}")]);
    }
    command.args(["-s", "--", &host.host, "sftp"]);
    command
}

/// Reason why there is no server.
enum NoServer {
    /// The server hung up.
    Ended,
    /// A shell printed something first, and the protocol can't be told from it.
    Says(String),
}

/// Exchanges versions; returns the server's extensions.
async fn greet(
    input: &mut ChildStdin,
    output: &mut BufReader<impl AsyncRead + Unpin>,
) -> Result<Vec<String>, NoServer> {
    // If the server hung up, reading reports it.
    let _ = input.write_all(&[0, 0, 0, 5, INIT, 0, 0, 0, 3]).await;
    let _ = input.flush().await;
    let first = output.fill_buf().await.unwrap_or_default();
    // No greeting is so long that its length has a first byte.
    if first.first().is_some_and(|&byte| byte != 0) {
        let text = String::from_utf8_lossy(first);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty());
        let line = line
            .unwrap_or_default()
            .chars()
            .filter(|c| !posthaste_types::is_obeyed(*c));
        return Err(NoServer::Says(line.take(SHOWN_MAX).collect()));
    }
    let packet = read_packet(output).await.ok_or(NoServer::Ended)?;
    extensions_in(packet).ok_or(NoServer::Ended)
}

/// Returns the extensions that a greeting names.
fn extensions_in(mut packet: Bytes) -> Option<Vec<String>> {
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
    if len >= BLOCK_FROM {
        let mut block = Block::new();
        read_to(output, len, block.bytes()).await?;
        return Some(block.freeze());
    }
    let mut packet = Vec::with_capacity(len);
    read_to(output, len, &mut packet).await?;
    Some(packet.into())
}

/// Appends `len` bytes to `packet`, which has room for them.
async fn read_to(
    output: &mut (impl AsyncRead + Unpin),
    len: usize,
    packet: &mut Vec<u8>,
) -> Option<()> {
    let mut rest = output.take(len as u64);
    while packet.len() < len {
        if rest.read_buf(packet).await.ok()? == 0 {
            return None;
        }
    }
    Some(())
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
            // No caller waits for the answer of a cancelled request.
            let _ = sender.send(reply);
        }
    }
    dead.store(true, Relaxed);
    waiting
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

async fn write_all(mut input: ChildStdin, mut queued: mpsc::Receiver<Vec<Bytes>>) {
    let mut batches = Vec::with_capacity(QUEUED_BATCHES);
    while queued.recv_many(&mut batches, QUEUED_BATCHES).await > 0 {
        let mut row = Row(batches.drain(..).flatten().collect());
        if input.write_all_buf(&mut row).await.is_err() {
            return;
        }
    }
}

/// Pieces that are written in a row, as many in one call as the system accepts.
struct Row(VecDeque<Bytes>);

impl Buf for Row {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let pieces = out.iter_mut().zip(&self.0);
        pieces
            .map(|(slice, piece)| *slice = IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.0.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.0.pop_front();
        }
        assert_eq!(count, 0, "more was written than there was");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_on_in_the_middle_of_a_piece() {
        let pieces = ["ab", "", "cde", "f"].map(|text| Bytes::from_static(text.as_bytes()));
        let mut row = Row(pieces.into());
        assert_eq!(row.remaining(), 6);
        row.advance(3);
        let mut slices = [IoSlice::new(&[]); 2];
        assert_eq!(row.chunks_vectored(&mut slices), 2);
        assert_eq!((&*slices[0], &*slices[1]), (&b"de"[..], &b"f"[..]));
        row.advance(3);
        assert!(!row.has_remaining());
    }

    #[tokio::test]
    async fn packets_are_read_however_they_come() {
        let mut input = Vec::new();
        let contents = [
            vec![1; 5],
            vec![2; BLOCK_FROM + 7],
            Vec::new(),
            vec![3; 90_000],
        ];
        for content in &contents {
            input.extend_from_slice(&u32::try_from(content.len()).unwrap().to_be_bytes());
            input.extend_from_slice(content);
        }
        let mut output = BufReader::with_capacity(AHEAD_BYTES, &input[..]);
        for content in &contents {
            assert_eq!(read_packet(&mut output).await.unwrap(), content);
        }
        assert!(read_packet(&mut output).await.is_none());
        for broken in [&[0, 0, 0, 9, 1][..], &[255, 255, 255, 255, 1]] {
            assert!(read_packet(&mut &broken[..]).await.is_none());
        }
    }
}
