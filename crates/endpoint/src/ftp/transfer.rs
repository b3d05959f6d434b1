//! Transfers of file content on data connections.

use std::{
    io,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{StreamExt, future::join, stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    host::Wire,
    pool::Lease,
    remote::{Remote, line},
    reply::Reply,
};
use crate::{
    Checksum, Error, ErrorKind, FileTime, Locus, Result, Summer,
    endpoint::{Boxed, ByteStream, Entry, Reader},
    trickle::{STALLED_AFTER, Trickle},
};

/// Longest wait for a server's answer about a transfer that was ended early.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);

/// Bytes read at once.
const PIECE_BYTES: usize = 256 << 10;

/// File being received.
pub(super) struct Download {
    remote: Arc<Remote>,
    lease: Lease,
    data: Option<Box<dyn Wire>>,
    full: Vec<u8>,
    left: u64,
    trickle: Trickle,
    /// Set if the server sends no more than was asked for.
    is_exact: bool,
    /// Set if the server got no end to the range: the file ends with its last byte.
    is_to_end: bool,
    /// Set if the server got a start inside the file.
    is_restarted: bool,
    /// Set if the file's attributes are asked for at the end.
    looks: bool,
    looked: Option<Reply>,
}

impl Download {
    /// Requests the file's facts as soon as all of it is here.
    pub(super) fn look(&mut self) {
        self.looks = self.is_exact;
    }

    /// Returns the answer about the attributes, if they were asked for.
    pub(super) fn looked(self) -> Option<Reply> {
        self.looked
    }

    /// Returns the next bytes; `None` once all have arrived.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(data) = &mut self.data else {
            return Ok(None);
        };
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX);
        let wanted = wanted.min(PIECE_BYTES);
        let mut piece = BytesMut::with_capacity(wanted);
        // Large pieces, so that their reader is called seldom.
        while piece.len() < wanted {
            let mut room = {
                let left = wanted - piece.len();
                (&mut piece).limit(left)
            };
            match self.trickle.wait(data.read_buf(&mut room)).await {
                Ok(Ok(0)) if piece.is_empty() => return Err(self.ended_early().await),
                Ok(Ok(0)) => break,
                Ok(Ok(bytes)) => self.trickle.came(bytes),
                Ok(Err(cause)) => return Err(self.broken(cause).await),
                Err(dry) => {
                    let error = Error::new(ErrorKind::TimedOut, "read", self.shown());
                    return Err(error.cause(dry).at(Locus::Network));
                }
            }
        }
        self.left -= piece.len() as u64;
        if self.left == 0 {
            self.finish().await?;
        }
        Ok(Some(piece.freeze()))
    }

    fn shown(&self) -> String {
        self.remote.show_full(&self.full)
    }

    /// Reads the server's last answer after all bytes arrived, so that the session can be used
    /// again.
    async fn finish(&mut self) -> Result<()> {
        let Some(mut data) = self.data.take() else {
            return Ok(());
        };
        let mut ends_here = self.is_exact;
        if self.is_exact {
            // A close that TLS doesn't announce is harmless, since the length was right. With TLS,
            // ProFTPD fills its last block beyond the requested range.
            let mut rest = [0; 16];
            let read = timeout(STALLED_AFTER, data.read(&mut rest)).await;
            ends_here = !matches!(read, Ok(Ok(beyond)) if beyond > 0);
        }
        drop(data);
        if !ends_here && self.is_to_end {
            self.lease.session()?.settle(SETTLED_WITHIN).await;
            return Err(Error::new(ErrorKind::Changed, "read", self.shown())
                .cause("more comes than there is: it grew, or the server passes over REST")
                .at(Locus::Source));
        }
        if self.is_to_end && self.is_restarted {
            self.remote.is_restart_proven.store(true, Relaxed);
        }
        if ends_here {
            let session = self.lease.session()?;
            let looks = self.looks && !session.is_lockstep();
            if looks {
                // The server has sent all and listens again.
                session.tell(&[&line("MLST", &self.full)]).await?;
            }
            let reply = session.ended().await?;
            if looks {
                self.looked = Some(session.told().await?);
            }
            if !reply.is_done() {
                return Err(self
                    .remote
                    .refused(&reply, "read", &self.full, Locus::Source));
            }
        } else {
            self.lease.session()?.settle(SETTLED_WITHIN).await;
        }
        Ok(())
    }

    /// Returns why a transfer ended before its bytes were there.
    async fn ended_early(&mut self) -> Error {
        self.data = None;
        let left = self.left;
        let told = match self.lease.session() {
            Ok(session) => session.settle(SETTLED_WITHIN).await,
            Err(_) => None,
        };
        match told {
            Some(reply) if !reply.is_done() => {
                self.remote
                    .refused(&reply, "read", &self.full, Locus::Source)
            }
            Some(_) => Error::new(ErrorKind::Changed, "read", self.shown())
                .cause(format!("it ended {left} bytes early"))
                .at(Locus::Source),
            None => Error::new(ErrorKind::Unreachable, "read", self.shown())
                .cause("the connection was lost")
                .at(Locus::Network),
        }
    }

    async fn broken(&mut self, cause: io::Error) -> Error {
        let told = self.ended_early().await;
        if told.is_temporary() {
            return told;
        }
        Error::new(ErrorKind::Unreachable, "read", self.shown())
            .cause(cause)
            .at(Locus::Network)
    }
}

impl Remote {
    /// Streams a range of the file at `full`, of which `size` bytes exist.
    pub(super) async fn read(
        self: &Arc<Self>,
        full: Vec<u8>,
        range: Range<u64>,
        size: u64,
    ) -> Result<ByteStream> {
        if range.is_empty() {
            return Ok(Box::pin(stream::empty()));
        }
        let download = self.download(full, range, size).await?;
        Ok(Box::pin(stream::unfold(Some(download), |download| async {
            let mut download = download?;
            match download.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(download))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    /// Begins to read a non-empty range. The bytes after the last one reveal a server that begins
    /// elsewhere.
    pub(super) async fn download(
        self: &Arc<Self>,
        full: Vec<u8>,
        range: Range<u64>,
        size: u64,
    ) -> Result<Download> {
        let begins_inside = range.start > 0 && range.end < size;
        let is_proven = self.is_restart_proven.load(Relaxed) || self.reads_ranges.load(Relaxed);
        if begins_inside && !is_proven {
            let mut last = self.begin(full.clone(), size - 1..size, size).await?;
            while last.next().await?.is_some() {}
        }
        self.begin(full, range, size).await
    }

    async fn begin(
        self: &Arc<Self>,
        full: Vec<u8>,
        range: Range<u64>,
        size: u64,
    ) -> Result<Download> {
        let left = range.end.saturating_sub(range.start);
        let mut lease = self.lease().await?;
        let mut is_exact = range.end >= size;
        let to_end = format!("REST {}", range.start);
        let before = if is_exact || !self.reads_ranges.load(Relaxed) {
            (range.start > 0).then_some(to_end.clone())
        } else {
            is_exact = true;
            // Both ends belong to the range.
            Some(format!("RANG {} {}", range.start, range.end - 1))
        };
        let command = line("RETR", &full);
        let asked = before.as_deref().map(str::as_bytes);
        let mut is_ranged = before
            .as_deref()
            .is_some_and(|text| text.starts_with("RANG"));
        let mut opened = lease.session()?.transfer(asked, &command).await?;
        if let Err(reply) = &opened
            && is_ranged
            && !reply.is_missing()
        {
            is_ranged = false;
            // The server announces the command but refuses it: read to the end instead.
            self.reads_ranges.store(false, Relaxed);
            is_exact = false;
            let asked = (range.start > 0).then_some(to_end.as_bytes());
            opened = lease.session()?.transfer(asked, &command).await?;
        }
        let data = opened.map_err(|reply| self.refused(&reply, "read", &full, Locus::Source))?;
        Ok(Download {
            remote: Arc::clone(self),
            lease,
            data: Some(data),
            full,
            left,
            trickle: Trickle::of_file(),
            is_exact,
            is_to_end: is_exact && !is_ranged,
            is_restarted: range.start > 0,
            looks: false,
            looked: None,
        })
    }

    pub(super) async fn sum_of(
        self: &Arc<Self>,
        full: &[u8],
        range: Range<u64>,
        size: u64,
    ) -> Result<Checksum> {
        let mut body = self.read(full.to_vec(), range, size).await?;
        let mut summer = Summer::default();
        while let Some(bytes) = body.next().await {
            summer.add(&bytes?);
        }
        Ok(summer.sum())
    }

    /// Writes a body into the file at `full`, from `start` on: over the present content, or anew
    /// from 0. Returns its checksum and its length.
    pub(super) async fn write(
        &self,
        full: &[u8],
        start: u64,
        mut body: ByteStream,
    ) -> Result<(Checksum, u64)> {
        let mut lease = self.lease().await?;
        let before = (start > 0).then(|| format!("REST {start}"));
        let before = before.as_deref().map(str::as_bytes);
        let command = line("STOR", full);
        let opened = lease.session()?.transfer(before, &command).await;
        let opened = opened.map_err(|error| error.at(Locus::Destination))?;
        let mut data =
            opened.map_err(|reply| self.refused(&reply, "write", full, Locus::Destination))?;
        let (mut summer, mut sent) = (Summer::default(), 0);
        let mut next = body.next().await;
        while let Some(bytes) = next {
            let bytes = bytes?;
            summer.add(&bytes);
            // The next piece is read while this one is sent.
            let written = timeout(STALLED_AFTER, data.write_all(&bytes));
            let (written, following) = join(written, body.next()).await;
            next = following;
            if let Err(cause) = written.unwrap_or_else(|_| Err(stalled())) {
                return Err(self.cut_off(lease, data, full, cause).await);
            }
            sent += bytes.len() as u64;
        }
        let ended = async {
            data.flush().await?;
            data.shutdown().await
        };
        let ended = timeout(STALLED_AFTER, ended).await;
        if let Err(cause) = ended.unwrap_or_else(|_| Err(stalled())) {
            return Err(self.cut_off(lease, data, full, cause).await);
        }
        drop(data);
        let reply = lease.session()?.ended().await?;
        if !reply.is_done() {
            return Err(self.refused(&reply, "write", full, Locus::Destination));
        }
        Ok((summer.sum(), sent))
    }

    /// Returns why a server no longer accepts data: it may have said so.
    async fn cut_off(
        &self,
        mut lease: Lease,
        data: Box<dyn Wire>,
        full: &[u8],
        cause: io::Error,
    ) -> Error {
        drop(data);
        let told = match lease.session() {
            Ok(session) => session.settle(SETTLED_WITHIN).await,
            Err(_) => None,
        };
        match told {
            Some(reply) if !reply.is_done() => {
                self.refused(&reply, "write", full, Locus::Destination)
            }
            Some(_) | None => Error::new(ErrorKind::Unreachable, "write", self.show_full(full))
                .cause(cause)
                .at(Locus::Network),
        }
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "nothing was taken for a minute")
}

/// File open for range reads: each has a data connection of its own.
pub(super) struct FtpReader {
    pub(super) remote: Arc<Remote>,
    pub(super) full: Vec<u8>,
    pub(super) entry: Entry,
}

impl Reader for FtpReader {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn checksum(&self) -> Option<Checksum> {
        None
    }

    /// Times in whole seconds don't show a change within the last of them.
    fn is_of_one_version(&self) -> bool {
        self.entry.mtime.is_some_and(FileTime::shows_changes)
    }

    fn read(&self, range: Range<u64>) -> Boxed<'_, Result<ByteStream>> {
        let remote = &self.remote;
        Box::pin(remote.read(self.full.clone(), range, self.entry.size))
    }

    fn confirm(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let now = self.remote.stat(&self.full).await?;
            if now.is_some_and(|now| is_same(&now, &self.entry)) {
                return Ok(());
            }
            let error = Error::new(
                ErrorKind::Changed,
                "read",
                self.remote.show_full(&self.full),
            );
            Err(error
                .cause("it changed while it was read")
                .at(Locus::Source))
        })
    }
}

/// Returns whether nothing happened to a file, as far as a server reports.
pub(super) fn is_same(now: &Entry, before: &Entry) -> bool {
    (now.kind, now.size, now.mtime) == (before.kind, before.size, before.mtime)
}
