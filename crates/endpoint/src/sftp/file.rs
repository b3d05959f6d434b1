//! Open files on a server: pipelined writes, read back and hashed.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::Mutex;

use super::{
    attributes::attributes_of,
    filling::Filling,
    pool::{EachSlot, Lease, Stream},
    reading::{REQUESTS_MAX, changed},
    remote::Remote,
    session::{Batch, Session},
    wire::{
        Attributes, CLOSE, EXTENDED, FSETSTAT, FSTAT, OPEN, OPEN_CREATE, OPEN_NEW, OPEN_WRITE,
        Reply, Request, STAT, WRITE,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{ByteStream, Entry, FileSpec, unsupported},
    outgoing::Outgoing,
    trial::SECOND_NS,
};

/// Bytes that a server copies in one request: it answers nothing else on its connection meanwhile.
const COPY_BYTES: u64 = 64 << 20;

/// Path of a file, and the path shown for it: an unfinished copy is shown as the file it becomes.
#[derive(Debug, Clone)]
pub(super) struct FilePath {
    pub(super) full: Vec<u8>,
    pub(super) shown: Vec<u8>,
    /// Set if the file is made for nobody else to read, and gets its mode in the end.
    is_private: bool,
}

impl FilePath {
    /// Returns the path of an ordinary file.
    pub(super) fn of(full: Vec<u8>) -> Self {
        let shown = full.clone();
        Self {
            full,
            shown,
            is_private: false,
        }
    }

    /// Returns the path of the unfinished copy at `full` of the future `shown`. It gets a mode in
    /// the end if `spec` names one.
    pub(super) fn unfinished(full: Vec<u8>, shown: &[u8], spec: &FileSpec) -> Self {
        Self {
            full,
            shown: shown.to_vec(),
            is_private: spec.mode.is_some(),
        }
    }
}

/// File that is reopened on a new connection.
pub(super) struct OpenFile {
    pub(super) remote: Arc<Remote>,
    pub(super) path: FilePath,
    /// Flags of the first open; afterwards the file must exist and keep its content.
    flags: u32,
    /// Connection for a small file's bytes; large files use those with room.
    home: Option<Lease>,
    opened: Mutex<EachSlot<Opened>>,
    is_made: AtomicBool,
}

#[derive(Clone)]
pub(super) struct Opened {
    pub(super) session: Arc<Session>,
    pub(super) handle: Bytes,
}

impl OpenFile {
    /// Opens a file whose bytes use many connections.
    pub(super) async fn open(remote: Arc<Remote>, path: FilePath, flags: u32) -> Result<Self> {
        Self::open_at(remote, path, flags, None).await
    }

    /// Opens a file whose bytes use one connection.
    pub(super) async fn open_small(
        remote: Arc<Remote>,
        path: FilePath,
        flags: u32,
    ) -> Result<Self> {
        let home = remote.pool.lease(Stream::SmallFile);
        Self::open_at(remote, path, flags, Some(home)).await
    }

    async fn open_at(
        remote: Arc<Remote>,
        path: FilePath,
        flags: u32,
        home: Option<Lease>,
    ) -> Result<Self> {
        let file = Self {
            home,
            remote,
            path,
            flags,
            opened: Mutex::default(),
            is_made: AtomicBool::new(false),
        };
        file.handle().await?;
        Ok(file)
    }

    pub(super) async fn handle(&self) -> Result<Opened> {
        self.handle_on(self.home.as_ref().map_or(0, Lease::slot))
            .await
    }

    pub(super) async fn handle_on(&self, slot: usize) -> Result<Opened> {
        let session = self.remote.pool.session(slot).await?;
        let mut opened = self.opened.lock().await;
        let place = &mut opened[slot];
        if let Some(opened) = place.as_ref()
            && Arc::ptr_eq(&opened.session, &session)
        {
            return Ok(opened.clone());
        }
        let flags = if self.is_made.load(Relaxed) {
            self.flags & !(OPEN_CREATE | OPEN_NEW)
        } else {
            self.flags
        };
        let request = Request::new(OPEN)
            .string(&self.path.full)
            .u32(flags)
            .attributes(&Attributes {
                mode: (self.path.is_private && flags & OPEN_CREATE != 0).then_some(0o600),
                ..Attributes::default()
            });
        let (operation, locus) = if self.flags & OPEN_WRITE == 0 {
            ("read", Locus::Source)
        } else {
            ("write", Locus::Destination)
        };
        match session.ask(request).await? {
            Reply::Handle(handle) => {
                let opened = Opened { session, handle };
                *place = Some(opened.clone());
                self.is_made.store(true, Relaxed);
                Ok(opened)
            }
            reply => {
                let refusal = self.remote.refusal(&reply, operation, &self.path.shown);
                Err(refusal.at(locus))
            }
        }
    }

    /// Returns the address of the file for people.
    pub(super) fn show(&self) -> String {
        self.remote.show(&self.path.shown)
    }

    /// Counts its handles as closed.
    pub(super) async fn forget(&self) {
        self.opened.lock().await.fill(None);
    }

    /// Closes the file on all connections. Servers report failed writes there: quotas, broken
    /// uploads.
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
        let stat = Request::new(FSTAT).string(&opened.handle);
        self.looked_at(&opened.session.ask(stat).await?)
    }

    /// Parses the answer to FSTAT.
    pub(super) fn looked_at(&self, reply: &Reply) -> Result<Entry> {
        let shown = &self.path.shown;
        match reply {
            Reply::Attributes(attributes) => self.remote.entry(Vec::new(), attributes, shown),
            reply => Err(self.remote.refusal(reply, "look at", shown)),
        }
    }

    /// Sets attributes, such as the size.
    pub(super) async fn set(&self, attributes: &Attributes) -> Result<()> {
        let opened = self.handle().await?;
        let request = Request::new(FSETSTAT)
            .string(&opened.handle)
            .attributes(attributes);
        self.written(opened.session.ask(request).await).await
    }

    /// Flushes the file to the server's disk. Returns whether the server can.
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
            reply => Err(self.remote.write_refusal(&reply, &self.path.shown).await),
        }
    }

    /// Flushes the file if the rules ask for it and the server can.
    pub(super) async fn flush(&self) -> Result<()> {
        match self.remote.rules.fsync {
            true => self.sync().await.map(|_| ()),
            false => Ok(()),
        }
    }

    /// Returns the connection for a stream, and the lease of its place there.
    pub(super) fn place(&self) -> (usize, Option<Lease>) {
        match &self.home {
            Some(home) => (home.slot(), None),
            None => {
                let lease = self.remote.pool.lease(Stream::Range);
                (lease.slot(), Some(lease))
            }
        }
    }

    /// Writes pieces at growing offsets with many requests in flight; returns the checksum.
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

    /// Lets the server copy this file, which must match `spec`, into another.
    pub(super) async fn copy_to(&self, to: &Self, spec: &FileSpec) -> Result<()> {
        let entry = self.stat().await?;
        let same_time = match (entry.mtime, spec.mtime) {
            (Some(found), Some(wanted)) => found.agrees(wanted, SECOND_NS),
            (_, None) | (None, _) => true,
        };
        if entry.size != spec.size || !same_time {
            return Err(changed(self.show(), "it changed meanwhile"));
        }
        let (slot, _lease) = self.place();
        let mut start = 0;
        while start < entry.size {
            let end = (start + COPY_BYTES).min(entry.size);
            let (from, into) = (self.handle_on(slot).await?, to.handle_on(slot).await?);
            if !Arc::ptr_eq(&from.session, &into.session) {
                return Err(Error::new(ErrorKind::Unreachable, "copy", self.show())
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
        if !self.ends_as(&entry).await? {
            // Its reader sees what it holds.
            return Err(unsupported("copy on the server to", to.show()));
        }
        let found = to.stat().await?.size;
        if found != entry.size {
            return Err(Error::new(ErrorKind::Corrupt, "write", to.show())
                .cause(format!("the server copied {found} bytes of {}", entry.size))
                .at(Locus::Destination));
        }
        let attributes = attributes_of(spec.mode, spec.mtime);
        to.remote.dress(&to.path, attributes).await
    }

    async fn written(&self, answer: Result<Reply>) -> Result<()> {
        match answer? {
            Reply::Status {
                code: super::OK, ..
            } => Ok(()),
            reply => Err(self.remote.write_refusal(&reply, &self.path.shown).await),
        }
    }

    /// Reads a range back and compares its checksum, unless the rules forbid it.
    pub(super) async fn verify(&self, range: Range<u64>, sum: Checksum) -> Result<()> {
        if !self.remote.rules.verify || self.sum_of(range).await? == sum {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, "write", self.show())
            .cause("what was written reads back differently")
            .hint("check the disk there")
            .at(Locus::Destination))
    }

    /// Writes and checks a small file, sets its attributes and closes it.
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
        self.remote.dress(&self.path, attributes).await
    }

    /// Sends all requests that a small file needs before the first answer. The server works in that
    /// order, and the later rename waits for the success of each step.
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
        // The handle may be another file's from here on.
        self.forget().await;
        let close = batch.add(Request::new(CLOSE).string(&handle));
        let look = batch.add(Request::new(STAT).string(&self.path.full));
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
        let looked = look.reply().await;
        outcome.and(closed)?;
        if let Ok(Reply::Attributes(found)) = &looked
            && let Some(size) = found.size.filter(|size| *size != spec.size)
        {
            let error = Error::new(ErrorKind::Corrupt, "write", self.show());
            return Err(error
                .cause(format!("the server holds {size} bytes of {}", spec.size))
                .at(Locus::Destination));
        }
        match set {
            Reply::Status {
                code: super::OK, ..
            } => {
                self.remote.note(attributes.not_in(&looked?));
                Ok(())
            }
            _ => self.remote.dress(&self.path, attributes).await,
        }
    }
}

async fn write_piece(opened: Opened, offset: u64, payload: Vec<Bytes>) -> Result<Reply> {
    let request = Request::new(WRITE)
        .string(&opened.handle)
        .u64(offset)
        .payload(payload);
    opened.session.ask(request).await
}
