//! Open files on a server: pipelined reads and writes, read back and summed.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, stream, stream::FuturesUnordered};
use tokio::sync::Mutex;

use super::{
    attributes_of,
    filling::Filling,
    pool::{EachSlot, Lease, Stream},
    remote::Remote,
    session::{Batch, Session},
    wire::{
        Attributes, CLOSE, EXTENDED, FSETSTAT, FSTAT, OPEN, OPEN_CREATE, OPEN_WRITE, READ, Reply,
        Request, WRITE,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{ByteStream, Entry, FileSpec, Kind, Whole},
    outgoing::Outgoing,
};

/// Requests of one range under way at once: 4 MiB at OpenSSH's limits, which fills a long path.
const REQUESTS_MAX: usize = 16;

/// Bytes a server copies in one request: nothing else is answered on its connection meanwhile.
const COPY_BYTES: u64 = 64 << 20;

/// The step of times in version 3.
const SECOND_NS: u32 = 1_000_000_000;

/// A file that is opened again when the connection was made anew.
pub(super) struct OpenFile {
    pub(super) remote: Arc<Remote>,
    pub(super) full: Vec<u8>,
    /// For the first time; afterwards the file must be there and keep what it holds.
    flags: u32,
    /// The connection that a small file's bytes take; large ones take those with room.
    home: Option<Lease>,
    opened: Mutex<EachSlot<Opened>>,
    is_made: AtomicBool,
}

#[derive(Clone)]
struct Opened {
    session: Arc<Session>,
    handle: Bytes,
}

impl OpenFile {
    /// Opens a file whose bytes take many connections.
    pub(super) async fn open(remote: Arc<Remote>, full: Vec<u8>, flags: u32) -> Result<Self> {
        Self::open_at(remote, full, flags, None).await
    }

    /// Opens a file whose bytes take one connection.
    pub(super) async fn open_small(remote: Arc<Remote>, full: Vec<u8>, flags: u32) -> Result<Self> {
        let home = remote.pool.lease(Stream::SmallFile);
        Self::open_at(remote, full, flags, Some(home)).await
    }

    async fn open_at(
        remote: Arc<Remote>,
        full: Vec<u8>,
        flags: u32,
        home: Option<Lease>,
    ) -> Result<Self> {
        let file = Self {
            home,
            remote,
            full,
            flags,
            opened: Mutex::default(),
            is_made: AtomicBool::new(false),
        };
        file.handle().await?;
        Ok(file)
    }

    async fn handle(&self) -> Result<Opened> {
        self.handle_on(self.home.as_ref().map_or(0, Lease::slot))
            .await
    }

    async fn handle_on(&self, slot: usize) -> Result<Opened> {
        let session = self.remote.pool.session(slot).await?;
        let mut opened = self.opened.lock().await;
        let place = &mut opened[slot];
        if let Some(opened) = place.as_ref()
            && Arc::ptr_eq(&opened.session, &session)
        {
            return Ok(opened.clone());
        }
        let flags = if self.is_made.load(Relaxed) {
            self.flags & !OPEN_CREATE
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
                *place = Some(opened.clone());
                self.is_made.store(true, Relaxed);
                Ok(opened)
            }
            reply => Err(self.remote.refusal(&reply, operation, &self.full)),
        }
    }

    /// Closes it on all connections. Servers tell there of what they could not write: quotas, broken uploads.
    pub(super) async fn close(&self) -> Result<()> {
        let opened = std::mem::take(&mut *self.opened.lock().await);
        let mut outcome = Ok(());
        for opened in opened.into_iter().flatten() {
            let close = Request::new(CLOSE).string(&opened.handle);
            let closed = self.written(opened.session.ask(close).await).await;
            outcome = outcome.and(closed);
        }
        outcome
    }

    pub(super) async fn stat(&self) -> Result<Entry> {
        let opened = self.handle().await?;
        match opened
            .session
            .ask(Request::new(FSTAT).string(&opened.handle))
            .await?
        {
            Reply::Attributes(attributes) => self.remote.entry(Vec::new(), &attributes, &self.full),
            reply => Err(self.remote.refusal(&reply, "look at", &self.full)),
        }
    }

    /// Fails unless size and mtime are those of `entry`.
    pub(super) async fn confirm(&self, entry: &Entry) -> Result<()> {
        let now = self.stat().await?;
        if (now.size, now.mtime) == (entry.size, entry.mtime) {
            return Ok(());
        }
        let shown = self.remote.show(&self.full);
        Err(changed(shown, "it changed while it was read"))
    }

    /// Sets what it has, such as its size.
    pub(super) async fn set(&self, attributes: &Attributes) -> Result<()> {
        let opened = self.handle().await?;
        let request = Request::new(FSETSTAT)
            .string(&opened.handle)
            .attributes(attributes);
        self.written(opened.session.ask(request).await).await
    }

    /// Flushes what was written to the server's disk; says whether the server can.
    pub(super) async fn sync(&self) -> Result<bool> {
        let opened = self.handle().await?;
        if !opened.session.fsync {
            return Ok(false);
        }
        let request = Request::new(EXTENDED)
            .string(b"fsync@openssh.com")
            .string(&opened.handle);
        match opened.session.ask(request).await? {
            Reply::Status {
                code: super::OK, ..
            } => Ok(true),
            reply => Err(self.remote.write_refusal(&reply, &self.full).await),
        }
    }

    /// The connection for a stream, and what holds its place there.
    fn place(&self) -> (usize, Option<Lease>) {
        match &self.home {
            Some(home) => (home.slot(), None),
            None => {
                let lease = self.remote.pool.lease(Stream::Range);
                (lease.slot(), Some(lease))
            }
        }
    }

    /// Streams a range with many requests under way.
    pub(super) async fn read(&self, range: Range<u64>) -> Result<ByteStream> {
        let (slot, lease) = self.place();
        let lease = Arc::new(lease);
        let opened = self.handle_on(slot).await?;
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
            let lease = Arc::clone(&lease);
            async move {
                let _lease = lease;
                read_piece(&opened, piece, subject).await
            }
        });
        Ok(Box::pin(pieces.buffered(REQUESTS_MAX)))
    }

    /// Writes pieces at growing offsets with many requests under way; returns the sum.
    pub(super) async fn write(&self, start: u64, mut body: ByteStream) -> Result<(Checksum, u64)> {
        let (slot, _lease) = self.place();
        let opened = self.handle_on(slot).await?;
        let mut filling = Filling::new(&opened.session);
        let mut flying = FuturesUnordered::new();
        let mut summer = Summer::default();
        let mut offset = start;
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            filling.add(bytes);
            while let Some(payload) = filling.next(true) {
                if flying.len() >= REQUESTS_MAX
                    && let Some(answer) = flying.next().await
                {
                    self.written(answer).await?;
                }
                let len: usize = payload.iter().map(Bytes::len).sum();
                flying.push(write_piece(opened.clone(), offset, payload));
                offset += len as u64;
            }
        }
        if let Some(payload) = filling.next(false) {
            let len: usize = payload.iter().map(Bytes::len).sum();
            flying.push(write_piece(opened.clone(), offset, payload));
            offset += len as u64;
        }
        while let Some(answer) = flying.next().await {
            self.written(answer).await?;
        }
        Ok((summer.sum(), offset))
    }

    /// Lets the server copy this file, which must be what `spec` says, into another.
    pub(super) async fn copy_to(&self, to: &Self, spec: &FileSpec) -> Result<()> {
        let entry = self.stat().await?;
        let same_time = match (entry.mtime, spec.mtime) {
            (Some(found), Some(wanted)) => found.agrees(wanted, SECOND_NS),
            (_, None) | (None, _) => true,
        };
        if entry.size != spec.size || !same_time {
            return Err(changed(
                self.remote.show(&self.full),
                "it changed meanwhile",
            ));
        }
        let (slot, _lease) = self.place();
        let mut start = 0;
        while start < entry.size {
            let end = (start + COPY_BYTES).min(entry.size);
            let (from, into) = (self.handle_on(slot).await?, to.handle_on(slot).await?);
            if !Arc::ptr_eq(&from.session, &into.session) {
                let shown = self.remote.show(&self.full);
                return Err(Error::new(ErrorKind::Unreachable, "copy", shown)
                    .cause("the connection broke")
                    .at(Locus::Network));
            }
            // PROTOCOL, section 4.11.
            let request = Request::new(EXTENDED)
                .string(b"copy-data")
                .string(&from.handle)
                .u64(start)
                .u64(end - start)
                .string(&into.handle)
                .u64(start);
            to.written(from.session.ask(request).await).await?;
            start = end;
        }
        self.confirm(&entry).await?;
        let found = to.stat().await?.size;
        if found != entry.size {
            let shown = to.remote.show(&to.full);
            return Err(Error::new(ErrorKind::Corrupt, "write", shown)
                .cause(format!("the server copied {found} bytes of {}", entry.size))
                .at(Locus::Destination));
        }
        let attributes = attributes_of(spec.mode, spec.mtime);
        to.remote.dress(&to.full, attributes).await
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
    pub(super) async fn verify(&self, range: Range<u64>, sum: Checksum) -> Result<()> {
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

    pub(super) async fn sum_of(&self, range: Range<u64>) -> Result<Checksum> {
        let mut summer = Summer::default();
        let mut body = self.read(range).await?;
        while let Some(bytes) = body.next().await {
            summer.add(&bytes?);
        }
        Ok(summer.sum())
    }

    /// Writes, checks, dresses and closes a small file.
    pub(super) async fn write_small(
        &self,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        if !self.remote.rules.verify {
            return self.write_at_once(spec, data).await;
        }
        let body = Outgoing::current().counted(data);
        let (_, end) = self.write(0, body).await?;
        self.verify(0..end, sum).await?;
        let attributes = attributes_of(spec.mode, spec.mtime);
        self.remote.dress(&self.full, attributes).await
    }

    /// Sends all that a small file needs before the first answer: the server works in that order, and
    /// whoever renames it afterwards has heard that each step went well.
    async fn write_at_once(&self, spec: &FileSpec, data: Vec<Bytes>) -> Result<()> {
        let Opened { session, handle } = self.handle().await?;
        let mut batch = Batch::new(&session);
        let (mut asked, mut offset) = (Vec::new(), 0);
        let mut filling = Filling::new(&session);
        for bytes in data {
            filling.add(bytes);
        }
        while let Some(payload) = filling.next(false) {
            let len: usize = payload.iter().map(Bytes::len).sum();
            let write = Request::new(WRITE).string(&handle).u64(offset);
            asked.push((batch.add(write.payload(payload)), len as u64));
            offset += len as u64;
        }
        let attributes = attributes_of(spec.mode, spec.mtime);
        let set = Request::new(FSETSTAT).string(&handle);
        let set = batch.add(set.attributes(&attributes));
        // From here on the handle may be another file's.
        self.opened.lock().await.fill(None);
        let close = batch.add(Request::new(CLOSE).string(&handle));
        let outgoing = Outgoing::current();
        batch.send().await?;
        let mut outcome = Ok(());
        for (asked, len) in asked {
            let written = self.written(asked.reply().await).await;
            outgoing.pass(len);
            outcome = outcome.and(written);
        }
        let set = set.reply().await?;
        let closed = self.written(close.reply().await).await;
        outcome.and(closed)?;
        match set {
            Reply::Status {
                code: super::OK, ..
            } => Ok(()),
            _ => self.remote.dress(&self.full, attributes).await,
        }
    }

    /// Asks at once for all of a small file that should look like `listed`, how it looks then, and
    /// that it be closed. `None` where it looks otherwise, or anything goes otherwise than hoped.
    pub(super) async fn read_at_once(&self, listed: &Entry) -> Result<Option<Whole>> {
        let Opened { session, handle } = self.handle().await?;
        let mut batch = Batch::new(&session);
        let (mut reads, mut offset) = (Vec::new(), 0);
        while offset < listed.size {
            let len = session
                .read_bytes_max
                .min(u32::try_from(listed.size - offset).unwrap_or(u32::MAX));
            let read = Request::new(READ).string(&handle).u64(offset).u32(len);
            reads.push((batch.add(read), len));
            offset += u64::from(len);
        }
        let stat = batch.add(Request::new(FSTAT).string(&handle));
        // From here on the handle may be another file's.
        self.opened.lock().await.fill(None);
        let closed = batch.add(Request::new(CLOSE).string(&handle));
        batch.send().await?;
        let (mut data, mut summer, mut is_whole) = (Vec::new(), Summer::default(), true);
        for (read, len) in reads {
            match read.reply().await? {
                Reply::Data(bytes) => {
                    is_whole &= bytes.len() as u64 == u64::from(len);
                    summer.add(&bytes);
                    data.push(bytes);
                }
                _ => is_whole = false,
            }
        }
        let Reply::Attributes(attributes) = stat.reply().await? else {
            return Ok(None);
        };
        closed.reply().await?;
        let entry = self.remote.entry(Vec::new(), &attributes, &self.full)?;
        let is_same =
            (entry.kind, entry.size, entry.mtime) == (Kind::File, listed.size, listed.mtime);
        Ok(
            (is_whole && is_same && listed.mtime.is_some()).then(|| Whole {
                entry,
                data,
                checksum: summer.sum(),
            }),
        )
    }
}

fn changed(subject: String, how: &'static str) -> Error {
    Error::new(ErrorKind::Changed, "copy", subject)
        .cause(how)
        .hint("copy it again when nothing writes to it")
        .at(Locus::Source)
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
            Reply::Data(bytes) if !bytes.is_empty() && bytes.len() as u64 <= u64::from(len) => {
                offset += bytes.len() as u64;
                got.push(bytes);
            }
            Reply::Data(bytes) if !bytes.is_empty() => {
                return Err(Error::new(ErrorKind::Other, "read", subject)
                    .cause("the server sends more than it was asked for")
                    .at(Locus::Source));
            }
            Reply::Data(_)
            | Reply::Status {
                code: super::END, ..
            } => {
                return Err(changed(subject, "it became shorter while it was read"));
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

async fn write_piece(opened: Opened, offset: u64, payload: Vec<Bytes>) -> Result<Reply> {
    let request = Request::new(WRITE)
        .string(&opened.handle)
        .u64(offset)
        .payload(payload);
    opened.session.ask(request).await
}
