//! Open files on a server: pipelined reads and writes, read back and summed.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex as BlockingMutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, stream, stream::FuturesUnordered};
use tokio::sync::Mutex;

use super::{
    attributes_of, entry_of,
    remote::Remote,
    session::Session,
    wire::{
        Attributes, CLOSE, FSETSTAT, FSTAT, OPEN, OPEN_CREATE, OPEN_READ, OPEN_TRUNCATE,
        OPEN_WRITE, READ, REMOVE, Reply, Request, WRITE,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    config::state_folder,
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Reader, Writer},
    ledger::{Head, Kept, Ledger},
};

/// Requests of one range under way at once: 4 MiB at OpenSSH's limits, which fills a long path.
const REQUESTS_MAX: usize = 16;

/// Bytes of a segment, and so what a crash loses for each lane.
const SEGMENT_BYTES: u64 = 16 << 20;

/// A file that is opened again when the connection was made anew.
pub(super) struct OpenFile {
    remote: Arc<Remote>,
    full: Vec<u8>,
    /// For the first time; afterwards the file must be there and keep what it holds.
    flags: u32,
    opened: Mutex<Option<Opened>>,
    is_made: AtomicBool,
}

#[derive(Clone)]
struct Opened {
    session: Arc<Session>,
    handle: Bytes,
}

impl OpenFile {
    pub(super) async fn open(remote: Arc<Remote>, full: Vec<u8>, flags: u32) -> Result<Self> {
        let file = Self {
            remote,
            full,
            flags,
            opened: Mutex::new(None),
            is_made: AtomicBool::new(false),
        };
        file.handle().await?;
        Ok(file)
    }

    async fn handle(&self) -> Result<Opened> {
        let mut slot = self.opened.lock().await;
        if let Some(opened) = slot.as_ref()
            && !opened.session.is_dead()
        {
            return Ok(opened.clone());
        }
        let session = self.remote.session().await?;
        let flags = if self.is_made.load(Relaxed) {
            self.flags & !(OPEN_CREATE | OPEN_TRUNCATE)
        } else {
            self.flags
        };
        let request = Request::new(OPEN)
            .string(&self.full)
            .u32(flags)
            .attributes(&Attributes::default());
        let operation = if self.flags & OPEN_WRITE == 0 {
            "read"
        } else {
            "write"
        };
        match session.ask(request).await? {
            Reply::Handle(handle) => {
                let opened = Opened { session, handle };
                *slot = Some(opened.clone());
                self.is_made.store(true, Relaxed);
                Ok(opened)
            }
            reply => Err(self.remote.refusal(&reply, operation, &self.full)),
        }
    }

    pub(super) async fn close(&self) {
        if let Some(opened) = self.opened.lock().await.take() {
            let _ = opened
                .session
                .ask(Request::new(CLOSE).string(&opened.handle))
                .await;
        }
    }

    pub(super) async fn stat(&self) -> Result<Entry> {
        let opened = self.handle().await?;
        match opened
            .session
            .ask(Request::new(FSTAT).string(&opened.handle))
            .await?
        {
            Reply::Attributes(attributes) => Ok(entry_of(Vec::new(), &attributes)),
            reply => Err(self.remote.refusal(&reply, "look at", &self.full)),
        }
    }

    /// Fails unless size and mtime are those of `entry`.
    pub(super) async fn confirm(&self, entry: &Entry) -> Result<()> {
        let now = self.stat().await?;
        if (now.size, now.mtime) == (entry.size, entry.mtime) {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Changed, "copy", self.remote.show(&self.full))
                .cause("it changed while it was read")
                .hint("copy it again when nothing writes to it")
                .at(Locus::Source),
        )
    }

    async fn set(&self, attributes: &Attributes) -> Result<()> {
        let opened = self.handle().await?;
        let request = Request::new(FSETSTAT)
            .string(&opened.handle)
            .attributes(attributes);
        match opened.session.ask(request).await? {
            Reply::Status {
                code: super::OK, ..
            } => Ok(()),
            reply => {
                let error = self
                    .remote
                    .refusal(&reply, "set the attributes of", &self.full);
                Err(error.at(Locus::Destination))
            }
        }
    }

    /// Streams a range with many requests under way.
    pub(super) async fn read(&self, range: Range<u64>) -> Result<ByteStream> {
        let opened = self.handle().await?;
        let step = u64::from(opened.session.read_bytes_max);
        let subject = self.remote.show(&self.full);
        let starts = stream::unfold(range.start, move |start| async move {
            (start < range.end).then(|| {
                let end = (start + step).min(range.end);
                (start..end, end)
            })
        });
        let pieces = starts.map(move |piece| {
            let (opened, subject) = (opened.clone(), subject.clone());
            async move { read_piece(&opened, piece, subject).await }
        });
        Ok(Box::pin(pieces.buffered(REQUESTS_MAX)))
    }

    /// Writes pieces at growing offsets with many requests under way; returns the sum.
    async fn write(&self, start: u64, mut body: ByteStream) -> Result<(Checksum, u64)> {
        let opened = self.handle().await?;
        let step = usize::try_from(opened.session.write_bytes_max).unwrap_or(usize::MAX);
        let mut flying = FuturesUnordered::new();
        let mut summer = Summer::default();
        let mut offset = start;
        while let Some(bytes) = body.next().await {
            let mut bytes = bytes?;
            summer.add(&bytes);
            while !bytes.is_empty() {
                let piece = bytes.split_to(step.min(bytes.len()));
                let len = piece.len() as u64;
                if flying.len() >= REQUESTS_MAX
                    && let Some(answer) = flying.next().await
                {
                    self.written(answer).await?;
                }
                flying.push(write_piece(opened.clone(), offset, piece));
                offset += len;
            }
        }
        while let Some(answer) = flying.next().await {
            self.written(answer).await?;
        }
        Ok((summer.sum(), offset))
    }

    async fn written(&self, answer: Result<Reply>) -> Result<()> {
        match answer? {
            Reply::Status {
                code: super::OK, ..
            } => Ok(()),
            reply => Err(self.remote.write_refusal(&reply, &self.full).await),
        }
    }

    /// Reads a range back and compares its sum, unless the rules say not to.
    async fn verify(&self, range: Range<u64>, sum: Checksum) -> Result<()> {
        if !self.remote.rules.verify || self.sum_of(range).await? == sum {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Corrupt, "write", self.remote.show(&self.full))
                .cause("what was written reads back differently")
                .hint("check the disk there")
                .at(Locus::Destination),
        )
    }

    async fn sum_of(&self, range: Range<u64>) -> Result<Checksum> {
        let mut summer = Summer::default();
        let mut body = self.read(range).await?;
        while let Some(bytes) = body.next().await {
            summer.add(&bytes?);
        }
        Ok(summer.sum())
    }

    /// Writes, checks and dresses a small file.
    pub(super) async fn write_small(
        &self,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let body: ByteStream = Box::pin(stream::iter(data.into_iter().map(Ok)));
        let (_, end) = self.write(0, body).await?;
        self.verify(0..end, sum).await?;
        self.set(&attributes_of(spec.mode, spec.mtime)).await
    }
}

async fn read_piece(opened: &Opened, piece: Range<u64>, subject: String) -> Result<Bytes> {
    let mut got: Vec<Bytes> = Vec::new();
    let mut offset = piece.start;
    while offset < piece.end {
        let len = u32::try_from(piece.end - offset).unwrap_or(u32::MAX);
        let request = Request::new(READ)
            .string(&opened.handle)
            .u64(offset)
            .u32(len);
        match opened.session.ask(request).await? {
            Reply::Data(bytes) if !bytes.is_empty() => {
                offset += bytes.len() as u64;
                got.push(bytes);
            }
            Reply::Data(_)
            | Reply::Status {
                code: super::END, ..
            } => {
                return Err(Error::new(ErrorKind::Changed, "copy", subject)
                    .cause("it became shorter while it was read")
                    .hint("copy it again when nothing writes to it")
                    .at(Locus::Source));
            }
            Reply::Status { message, .. } => {
                return Err(Error::new(ErrorKind::Other, "read", subject)
                    .cause(format!("the server says: {message}"))
                    .at(Locus::Source));
            }
            Reply::Handle(_) | Reply::Names(_) | Reply::Attributes(_) | Reply::Extended(_) => {
                return Err(Error::new(ErrorKind::Other, "read", subject)
                    .cause("an answer to something else"));
            }
        }
    }
    match got.len() {
        1 => Ok(got.remove(0)),
        _ => Ok(got.concat().into()),
    }
}

async fn write_piece(opened: Opened, offset: u64, piece: Bytes) -> Result<Reply> {
    let request = Request::new(WRITE)
        .string(&opened.handle)
        .u64(offset)
        .payload(piece);
    opened.session.ask(request).await
}

/// A remote file read by ranges.
pub(super) struct SftpReader {
    file: OpenFile,
    entry: Entry,
}

impl SftpReader {
    pub(super) async fn open(remote: Arc<Remote>, full: Vec<u8>) -> Result<Self> {
        let file = OpenFile::open(remote, full, OPEN_READ).await?;
        let entry = file.stat().await?;
        Ok(Self { file, entry })
    }
}

impl Reader for SftpReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        Box::pin(self.file.read(range))
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            self.file.confirm(&self.entry).await?;
            self.file.close().await;
            Ok(())
        })
    }
}

/// A large file being written to a server.
pub(super) struct SftpWriter {
    file: OpenFile,
    full: Vec<u8>,
    spec: FileSpec,
    kept: Vec<(u64, Checksum)>,
    ledger: BlockingMutex<Option<Ledger>>,
}

fn ledger_path(remote: &Remote, full: &[u8], spec: &FileSpec) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(remote.host.show().as_bytes());
    hasher.update(b"\n");
    hasher.update(full);
    hasher.update(b"\n");
    hasher.update(spec.origin.as_bytes());
    state_folder().join(format!("sftp-{}", &hasher.finalize().to_hex()[..32]))
}

impl SftpWriter {
    /// Continues the unfinished copy of the same source, or starts one.
    pub(super) async fn start(remote: Arc<Remote>, full: Vec<u8>, spec: &FileSpec) -> Result<Self> {
        let path = ledger_path(&remote, &full, spec);
        let partial = remote.partial(&full, spec);
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE;
        let file = OpenFile::open(remote, partial, flags).await?;
        let head = Head {
            identity: spec.identity(),
            segment_size: SEGMENT_BYTES,
            token: "-".to_owned(),
        };
        let kept = match Ledger::load(&path) {
            Some((found, kept)) if found == head => still_held(&file, spec.size, kept).await?,
            Some(_) | None => {
                file.set(&Attributes {
                    size: Some(0),
                    ..Attributes::default()
                })
                .await?;
                Vec::new()
            }
        };
        let ledger = Ledger::start(path.clone(), &head, &kept).map_err(|cause| {
            Error::io("note an unfinished copy in", path.to_string_lossy(), cause)
        })?;
        Ok(Self {
            file,
            full,
            spec: spec.clone(),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            ledger: BlockingMutex::new(Some(ledger)),
        })
    }

    fn forget(&self) {
        if let Some(ledger) = self
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            ledger.remove();
        }
    }

    async fn publish(&self) -> Result<()> {
        let remote = &self.file.remote;
        let size = self.file.stat().await?.size;
        if size != self.spec.size {
            return Err(
                Error::new(ErrorKind::Corrupt, "write", remote.show(&self.full))
                    .cause(format!(
                        "the server holds {size} bytes of {}",
                        self.spec.size
                    ))
                    .at(Locus::Destination),
            );
        }
        self.file
            .set(&attributes_of(self.spec.mode, self.spec.mtime))
            .await?;
        self.file.close().await;
        remote.rename(&self.file.full, &self.full).await?;
        self.forget();
        Ok(())
    }
}

/// The noted segments that the server's file holds. Without read-back the note is believed where
/// the file is long enough.
async fn still_held(file: &OpenFile, size: u64, noted: Vec<Kept>) -> Result<Vec<Kept>> {
    let there = file.stat().await?.size;
    let mut kept: Vec<Kept> = Vec::new();
    for noted in noted {
        let start = noted.index.saturating_mul(SEGMENT_BYTES);
        let end = start.saturating_add(SEGMENT_BYTES).min(size);
        let is_new = kept.iter().all(|kept| kept.index != noted.index);
        if start < end && end <= there && is_new {
            let verify = file.remote.rules.verify;
            if !verify || file.sum_of(start..end).await? == noted.checksum {
                kept.push(noted);
            }
        }
    }
    Ok(kept)
}

impl Writer for SftpWriter {
    fn segment_size(&self) -> u64 {
        SEGMENT_BYTES
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            let (sum, end) = self.file.write(range.start, body).await?;
            if end != range.end {
                return Err(
                    Error::new(ErrorKind::Unreachable, "read", &*self.spec.origin)
                        .cause("the source ended early")
                        .at(Locus::Source),
                );
            }
            self.file.verify(range, sum).await?;
            let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(ledger) = ledger.as_ref() {
                ledger.add(index, sum, "-").map_err(|cause| {
                    Error::io("note an unfinished copy of", &*self.spec.origin, cause)
                })?;
            }
            Ok(sum)
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.publish())
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.file.close().await;
            let request = Request::new(REMOVE).string(&self.file.full);
            let _ = self.file.remote.ask(request).await;
            self.forget();
        })
    }
}
