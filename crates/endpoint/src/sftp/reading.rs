//! Reads files of a server: many requests under way, and one behind the reported end.
//!
//! The reported size of a file may be wrong: files of /proc say 0, a log grows, and servers err. A
//! file is whole when nothing follows its last byte.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    END,
    file::{OpenFile, Opened},
    session::Batch,
    wire::{CLOSE, FSTAT, READ, Reply, Request},
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{ByteStream, Entry, Kind, Whole},
    error::server_says,
    posix::UNTOLD_BYTES_MAX,
};

/// Most requests of one range in flight: 4 MiB at OpenSSH's limits, which fills a long path.
pub(super) const REQUESTS_MAX: usize = 16;

impl OpenFile {
    /// Streams a range with many requests in flight.
    pub(super) async fn read(&self, range: Range<u64>) -> Result<ByteStream> {
        let (slot, lease) = self.place();
        let lease = Arc::new(lease);
        let opened = self.handle_on(slot).await?;
        let step = u64::from(opened.session.read_bytes_max);
        let subject = self.show();
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

    pub(super) async fn sum_of(&self, range: Range<u64>) -> Result<Checksum> {
        let mut summer = Summer::default();
        let mut body = self.read(range).await?;
        while let Some(bytes) = body.next().await {
            summer.add(&bytes?);
        }
        Ok(summer.sum())
    }

    /// Requests at once all of a small file that should look like `listed`, the bytes behind it,
    /// its attributes then, and its closing. Returns `None` if it looks otherwise, or anything
    /// fails.
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
        let behind = batch.add(Request::new(READ).string(&handle).u64(offset).u32(1));
        let stat = batch.add(Request::new(FSTAT).string(&handle));
        // The handle may be another file's from here on.
        self.forget().await;
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
        is_whole &= is_end(&behind.reply().await?);
        let Reply::Attributes(attributes) = stat.reply().await? else {
            return Ok(None);
        };
        closed.reply().await?;
        let entry = self
            .remote
            .entry(Vec::new(), &attributes, &self.path.shown)?;
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

    /// Reads a file whole that does not look as listed, or that the server delivers in other
    /// pieces.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if the reported size is wrong, except for a file that seems to be
    /// empty.
    pub(super) async fn read_whole(&self) -> Result<Whole> {
        let mut entry = self.stat().await?;
        if entry.kind != Kind::File {
            return Err(changed(self.show(), "it is no file any more"));
        }
        let data = match entry.size {
            0 => self.read_untold().await?,
            size => self.read(0..size).await?.try_collect().await?,
        };
        let size = data.iter().map(|bytes| bytes.len() as u64).sum();
        if size == entry.size {
            self.confirm(&entry).await?;
        }
        // A file of /proc was read to its end, and its time may be that of each look.
        entry.size = size;
        let mut summer = Summer::default();
        data.iter().for_each(|bytes| summer.add(bytes));
        Ok(Whole {
            entry,
            data,
            checksum: summer.sum(),
        })
    }

    /// Reads the content of a file that is reported as empty.
    async fn read_untold(&self) -> Result<Vec<Bytes>> {
        let Opened { session, handle } = self.handle().await?;
        let (mut data, mut offset) = (Vec::new(), 0);
        while offset <= UNTOLD_BYTES_MAX {
            let read = Request::new(READ).string(&handle).u64(offset);
            match session.ask(read.u32(session.read_bytes_max)).await? {
                Reply::Data(bytes) if !bytes.is_empty() => {
                    offset += bytes.len() as u64;
                    data.push(bytes);
                }
                reply if is_end(&reply) => return Ok(data),
                reply => {
                    let refusal = self.remote.refusal(&reply, "read", &self.path.shown);
                    return Err(refusal.at(Locus::Source));
                }
            }
        }
        Err(Error::new(ErrorKind::Unsupported, "read", self.show())
            .cause("its size is said to be 0, and it holds many bytes")
            .hint("copy it as a stream: ssh HOST cat FILE | posthaste cp - DESTINATION")
            .at(Locus::Source))
    }

    /// Fails unless size and mtime are those of `entry`, and nothing comes after its last byte.
    pub(super) async fn confirm(&self, entry: &Entry) -> Result<()> {
        if self.ends_as(entry).await? {
            return Ok(());
        }
        Err(changed(
            self.show(),
            "more comes than it is said to hold: it grew, or its size is told wrongly",
        ))
    }

    /// Returns whether nothing follows the last byte of a file that still looks like `entry`.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it differs.
    pub(super) async fn ends_as(&self, entry: &Entry) -> Result<bool> {
        let Opened { session, handle } = self.handle().await?;
        let mut batch = Batch::new(&session);
        let behind = Request::new(READ).string(&handle).u64(entry.size).u32(1);
        let behind = batch.add(behind);
        let stat = batch.add(Request::new(FSTAT).string(&handle));
        batch.send().await?;
        let (behind, stat) = (behind.reply().await?, stat.reply().await?);
        let now = self.looked_at(&stat)?;
        if (now.size, now.mtime) != (entry.size, entry.mtime) {
            return Err(changed(self.show(), "it changed while it was read"));
        }
        Ok(is_end(&behind))
    }
}

/// Returns whether nothing is left to read.
fn is_end(reply: &Reply) -> bool {
    match reply {
        Reply::Data(bytes) => bytes.is_empty(),
        Reply::Status { code, .. } => *code == END,
        Reply::Handle(_) | Reply::Names(_) | Reply::Attributes(_) | Reply::Extended(_) => false,
    }
}

pub(super) fn changed(subject: String, how: &'static str) -> Error {
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
            reply if is_end(&reply) => {
                return Err(changed(subject, "it became shorter while it was read"));
            }
            Reply::Data(bytes) if bytes.len() as u64 <= u64::from(len) => {
                offset += bytes.len() as u64;
                got.push(bytes);
            }
            Reply::Data(_) => {
                return Err(Error::new(ErrorKind::Other, "read", subject)
                    .cause("the server sends more than it was asked for")
                    .at(Locus::Source));
            }
            Reply::Status { message, .. } => {
                return Err(Error::new(ErrorKind::Other, "read", subject)
                    .cause(server_says(&message))
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
