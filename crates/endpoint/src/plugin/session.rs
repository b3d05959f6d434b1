//! Sessions with one plug-in process: many requests in progress at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::BytesMut;
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Launch,
    board::{Board, Inbox},
    call::Call,
    greeting::{Greeting, REQUESTS_MAX, VERSION, WINDOW_BYTES, hello},
    process::{Complaints, Process},
    refusal::{Doing, Refusal, Secrets},
    wire::{Answer, Decoder, Fault, Message, PAYLOAD_BYTES_MAX, Piece},
};
use crate::{Error, ErrorKind, Result, error::Status};

/// Most messages waiting to be written: 4 MiB of payload at most.
const QUEUED_MESSAGES: usize = 16;

/// Bytes read at a time: a payload of the largest size with its line.
const READ_BYTES: usize = PAYLOAD_BYTES_MAX + (4 << 10);

/// Checks of a cancelled request within the time in which it must end.
const LOOKS: u32 = 4;

/// Longest wait for the exit code and last words of a plug-in, once its output has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(5);

/// Running plug-in that has said hello. A dead one stays dead.
pub(super) struct Session {
    queue: mpsc::Sender<Message>,
    board: Arc<Board>,
    permits: Arc<Semaphore>,
    next_id: AtomicU64,
    answered: AtomicBool,
    pub greeting: Greeting,
    pub quiet: Duration,
    pub secrets: Secrets,
    process: Arc<Process>,
    /// Chores that read, write and watch; they end when the session is dropped.
    _running: JoinSet<()>,
}

impl Session {
    /// Starts the plug-in and exchanges hellos. `address` is `None` to learn only its abilities.
    ///
    /// # Errors
    /// The plug-in's own errors; [`ErrorKind::NotFound`] and similar if it can't be started,
    /// [`ErrorKind::Unsupported`] if it speaks another version, [`ErrorKind::TimedOut`],
    /// [`ErrorKind::Unreachable`] if it ends instead, [`ErrorKind::Other`] for an invalid hello.
    pub(super) async fn start(
        launch: &Launch,
        address: Option<&[u8]>,
        shown: &str,
    ) -> Result<Arc<Self>, Unstarted> {
        let (process, pipes) = Process::start(launch).map_err(|cause| {
            let program = launch.command.first();
            let shown = program.map(|program| program.to_string_lossy().into_owned());
            let error = Error::io("run", shown.unwrap_or_default(), cause);
            Unstarted::Refused(error.hint("check the command of the plug-in"))
        })?;
        let process = Arc::new(process);
        let secrets = Secrets::new(launch.profile.values());
        let complaints = Complaints::default();
        let mut running = JoinSet::new();
        running.spawn(complaints.clone().collect(pipes.complaints));
        let mut output = Output::new(pipes.output);
        let mut input = pipes.input;
        let greeting = timeout(
            launch.patience.greeted,
            greet(&mut input, &mut output, launch, address),
        );
        let greeting = match greeting.await {
            Ok(Ok(greeted)) => understood(greeted, shown, &secrets)?,
            Ok(Err(stop)) => {
                let reason = stop.reason(&process, &complaints, &secrets).await;
                process.kill();
                return Err(died(stop.kind(), shown, &reason));
            }
            Err(_) => {
                process.kill();
                return Err(died(ErrorKind::TimedOut, shown, "does not say hello"));
            }
        };
        let board = Arc::new(Board::default());
        let (queue, queued) = mpsc::channel(QUEUED_MESSAGES);
        running.spawn(write_all(input, queued, Arc::clone(&board)));
        let reading = Reading {
            output,
            board: Arc::clone(&board),
            process: Arc::clone(&process),
            complaints,
            secrets: secrets.clone(),
        };
        running.spawn(reading.read_all());
        running.spawn(watch(
            Arc::clone(&board),
            Arc::clone(&process),
            launch.patience.cancelled / LOOKS,
        ));
        let requests_max = greeting.limits.requests_max.min(REQUESTS_MAX);
        Ok(Arc::new(Self {
            queue,
            board,
            permits: Arc::new(Semaphore::new(
                usize::try_from(requests_max).unwrap_or(usize::MAX),
            )),
            next_id: AtomicU64::new(1),
            answered: AtomicBool::new(false),
            greeting,
            quiet: launch.patience.quiet,
            secrets,
            process,
            _running: running,
        }))
    }

    /// Returns whether the plug-in is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.board.fate().is_some()
    }

    /// Returns whether the plug-in ever carried out a request.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    pub(super) fn note_answer(&self) {
        self.answered.store(true, Relaxed);
    }

    /// Returns why the plug-in is gone.
    pub(super) fn fate(&self) -> String {
        self.board.fate().unwrap_or_else(|| "is gone".to_owned())
    }

    /// Gives up on a plug-in that `reason`: kills it, and fails the requests under way.
    pub(super) fn give_up(&self, reason: &str) {
        self.board.close(reason);
        self.process.kill();
    }

    /// Forgets a request: the plug-in is notified, its answer discarded.
    pub(super) fn cancel(&self, id: u64) {
        self.board.cancel(id);
    }

    /// Returns the error of a request to a plug-in that is gone.
    pub(super) fn broken(&self, doing: Doing, subject: &str) -> Error {
        doing
            .error(ErrorKind::Unreachable, subject)
            .cause(format!("the plug-in {}", self.fate()))
    }

    /// Sends a message, when there is room.
    pub(super) async fn send(&self, message: Message) -> Result<(), Stalled> {
        match timeout(self.quiet, self.queue.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Stalled),
            Err(_) => {
                self.give_up("does not read what it is sent");
                Err(Stalled)
            }
        }
    }

    /// Sends a request whose answer has up to `rest` bytes before its end.
    pub(super) async fn begin(
        self: &Arc<Self>,
        ask: Ask,
        rest: u64,
        doing: Doing,
        subject: String,
    ) -> Result<Call> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let id = self.next_id.fetch_add(1, Relaxed);
        let inbox = Inbox::new(
            rest,
            WINDOW_BYTES.min(rest),
            self.greeting.limits.window_bytes,
        );
        self.board.open(id, Arc::clone(&inbox), permit);
        let call = Call::new(Arc::clone(self), id, inbox, doing, subject);
        let mut members = ask.members;
        members.insert("id".to_owned(), json!(id));
        members.insert("op".to_owned(), json!(ask.op));
        match self.send(Message::of(&Value::Object(members))).await {
            Ok(()) => Ok(call),
            Err(Stalled) => Err(call.broken()),
        }
    }
}

/// Reason why there is no session.
#[derive(Debug)]
pub(super) enum Unstarted {
    /// A new start will not help, or the plug-in reported itself what is wrong.
    Refused(Error),
    /// The plug-in died or hung before it said hello.
    Died(Error),
}

impl Unstarted {
    pub(super) fn error(self) -> Error {
        match self {
            Self::Refused(error) => error,
            Self::Died(error) => error.status_is(Status::Permanent),
        }
    }
}

/// Returns the greeting, if it is one in a version spoken here.
fn understood(
    greeted: Result<Value, Refusal>,
    shown: &str,
    secrets: &Secrets,
) -> Result<Greeting, Unstarted> {
    let hello = greeted
        .map_err(|refusal| Unstarted::Refused(refusal.error(Doing::OPEN, shown, secrets)))?;
    let found = hello.get("protocol").cloned().unwrap_or_default();
    if found == VERSION {
        return Greeting::read(hello)
            .map_err(|fault| died(ErrorKind::Other, shown, &secrets.hide(&fault.0)));
    }
    let cause = format!("the plug-in speaks version {found} of the protocol, not {VERSION}");
    let cause = secrets.hide(&cause);
    Err(Unstarted::Refused(
        Doing::OPEN
            .error(ErrorKind::Unsupported, shown)
            .cause(cause)
            .hint("update posthaste or the plug-in"),
    ))
}

fn died(kind: ErrorKind, shown: &str, reason: &str) -> Unstarted {
    Unstarted::Died(
        Doing::OPEN
            .error(kind, shown)
            .cause(format!("the plug-in {reason}")),
    )
}

/// Error for a plug-in that accepts no more messages.
#[derive(Debug)]
pub(super) struct Stalled;

/// Request being written.
#[derive(Debug)]
pub(super) struct Ask {
    op: &'static str,
    members: Map<String, Value>,
}

impl Ask {
    pub(super) fn new(op: &'static str) -> Self {
        Self {
            op,
            members: Map::new(),
        }
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.members.insert(key.to_owned(), value.into());
        self
    }
}

/// Reason why a plug-in's output was not read on.
enum Stop {
    /// The output ended, perhaps in the middle of a message.
    End {
        torn: bool,
    },
    Fault(Fault),
}

impl Stop {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::End { .. } => ErrorKind::Unreachable,
            Self::Fault(_) => ErrorKind::Other,
        }
    }

    /// Returns the reason in words that follow "the plug-in".
    async fn reason(
        &self,
        process: &Process,
        complaints: &Complaints,
        secrets: &Secrets,
    ) -> String {
        let torn = match self {
            Self::Fault(fault) => return secrets.hide(&fault.0),
            Self::End { torn } => *torn,
        };
        let ending = ending(process).await;
        hear_out(complaints).await;
        let place = if torn {
            " in the middle of a message"
        } else {
            ""
        };
        let text = match complaints.last_line() {
            Some(line) => format!("ended{place} ({ending}): {line}"),
            None => format!("ended{place} ({ending})"),
        };
        secrets.hide(&text)
    }
}

/// Returns how the process ended, which may take a moment longer than its output.
async fn ending(process: &Process) -> String {
    const LOOKS_MAX: u32 = 500;
    for _ in 0..LOOKS_MAX {
        if let Some(ending) = process.ending() {
            return ending;
        }
        sleep(LAST_WORDS_WITHIN / LOOKS_MAX).await;
    }
    "it closed its output".to_owned()
}

/// Waits for the last words of a process that has ended; a process it started may keep its standard
/// error open.
async fn hear_out(complaints: &Complaints) {
    const LOOKS_MAX: u32 = 100;
    for _ in 0..LOOKS_MAX {
        if complaints.is_over() {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Output of a plug-in.
struct Output {
    pipe: ChildStdout,
    buffer: BytesMut,
    decoder: Decoder,
}

impl Output {
    fn new(pipe: ChildStdout) -> Self {
        Self {
            pipe,
            buffer: BytesMut::new(),
            decoder: Decoder::default(),
        }
    }

    async fn next(&mut self) -> Result<Piece, Stop> {
        loop {
            if let Some(piece) = self.decoder.next(&mut self.buffer).map_err(Stop::Fault)? {
                return Ok(piece);
            }
            self.buffer.reserve(READ_BYTES);
            match self.pipe.read_buf(&mut self.buffer).await {
                Ok(0) | Err(_) => {
                    let torn = !self.decoder.is_between_messages(&self.buffer);
                    return Err(Stop::End { torn });
                }
                Ok(_) => {}
            }
        }
    }
}

/// Exchanges hellos; the inner error is the plug-in's own.
async fn greet(
    input: &mut ChildStdin,
    output: &mut Output,
    launch: &Launch,
    address: Option<&[u8]>,
) -> Result<Result<Value, Refusal>, Stop> {
    let message = Message::of(&hello(launch, address));
    // A plug-in that has ended is detected below.
    let _ = input.write_all(message.line.as_bytes()).await;
    match output.next().await? {
        Piece::Answer(Answer::Hello(hello)) => Ok(Ok(hello)),
        Piece::Answer(Answer::Refused(refusal)) => Ok(Err(refusal)),
        Piece::Answer(
            Answer::Data { .. }
            | Answer::Credit { .. }
            | Answer::Alive { .. }
            | Answer::Done { .. }
            | Answer::Failed { .. },
        )
        | Piece::Payload { .. } => Err(Stop::Fault(Fault::new("does not say hello first"))),
    }
}

struct Reading {
    output: Output,
    board: Arc<Board>,
    process: Arc<Process>,
    complaints: Complaints,
    secrets: Secrets,
}

impl Reading {
    async fn read_all(mut self) {
        let stop = loop {
            let delivered = match self.output.next().await {
                Ok(piece) => self.board.deliver(piece).map_err(Stop::Fault),
                Err(stop) => Err(stop),
            };
            if let Err(stop) = delivered {
                break stop;
            }
        };
        let reason = stop
            .reason(&self.process, &self.complaints, &self.secrets)
            .await;
        self.board.close(reason);
        self.process.kill();
    }
}

async fn write_all(mut input: ChildStdin, mut queued: mpsc::Receiver<Message>, board: Arc<Board>) {
    loop {
        let message = tokio::select! {
            message = queued.recv() => message,
            () = board.cancelling.notified() => {
                for id in board.take_cancelled() {
                    let line = format!("{{\"id\":{id},\"cancel\":true}}\n");
                    if input.write_all(line.as_bytes()).await.is_err() {
                        return;
                    }
                }
                continue;
            }
        };
        // If writing fails, the output read shows why.
        let Some(message) = message else { return };
        if input.write_all(message.line.as_bytes()).await.is_err() {
            return;
        }
        if let Some(payload) = message.payload
            && input.write_all(&payload).await.is_err()
        {
            return;
        }
    }
}

/// Ends a plug-in that does not end cancelled requests.
async fn watch(board: Arc<Board>, process: Arc<Process>, every: Duration) {
    while board.fate().is_none() {
        sleep(every).await;
        if board.is_stuck(LOOKS) {
            board.close("does not end what was cancelled");
            process.kill();
        }
    }
}
