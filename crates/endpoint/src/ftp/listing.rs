//! Listings: read to the end before they are handed out, so that no session waits for their reader.

use std::{io, path::PathBuf, sync::Arc};

use bytes::BytesMut;
use tokio::{
    fs::File,
    io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt, BufReader},
};

use super::{
    facts::told_of,
    host::Wire,
    remote::{Remote, line, parent_of},
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Entry, Kind, Listing, join},
    trickle::Trickle,
};

/// Largest listing kept in memory, in bytes: some ten thousand entries.
const MEMORY_BYTES_MAX: usize = 2 << 20;

/// Longest line, in bytes: names are shorter, and facts few.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Entries of one page.
const PAGE_ENTRIES: usize = 512;

/// Entries of a directory, as lines.
pub(super) struct FtpListing {
    remote: Arc<Remote>,
    full: Vec<u8>,
    follow: bool,
    lines: Box<dyn AsyncBufRead + Send + Unpin>,
}

impl FtpListing {
    pub(super) async fn start(remote: Arc<Remote>, full: Vec<u8>, follow: bool) -> Result<Self> {
        let mut lease = remote.lease().await?;
        let command = line("MLSD", &full);
        let opened = lease.session()?.transfer(None, &command).await?;
        let data = opened.map_err(|reply| remote.refused(&reply, "list", &full, Locus::Source))?;
        let fail = |cause: io::Error| {
            let kind = if cause.kind() == io::ErrorKind::TimedOut {
                ErrorKind::TimedOut
            } else {
                ErrorKind::Unreachable
            };
            let error = Error::new(kind, "list", remote.show_full(&full));
            error.cause(cause).at(Locus::Network)
        };
        let lines = take_in(data).await.map_err(fail)?;
        let reply = lease.session()?.ended().await?;
        if !reply.is_done() {
            return Err(remote.refused(&reply, "list", &full, Locus::Source));
        }
        drop(lease);
        Ok(Self {
            remote,
            full,
            follow,
            lines,
        })
    }

    fn fail(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::new(ErrorKind::Other, "list", self.remote.show_full(&self.full))
            .cause(cause)
            .at(Locus::Source)
    }

    /// Returns the next line without its end; `None` after the last.
    async fn next_line(&mut self) -> Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.lines).take(LINE_BYTES_MAX);
        let read = bounded.read_until(b'\n', &mut line).await;
        let read = read.map_err(|cause| self.fail(cause))?;
        if read as u64 == LINE_BYTES_MAX {
            return Err(self.fail("a line has no end"));
        }
        if read > 0 && line.last() != Some(&b'\n') {
            return Err(self.fail("the server's list ends in the middle of a line"));
        }
        for end in [b'\n', b'\r'] {
            line.pop_if(|last| *last == end);
        }
        Ok((read > 0).then_some(line))
    }

    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        let mut page = Vec::new();
        while page.len() < PAGE_ENTRIES {
            let Some(line) = self.next_line().await? else {
                break;
            };
            let Some(told) = told_of(&line) else {
                if line.is_empty() {
                    continue;
                }
                return Err(self.fail("the server sends a line that is no entry"));
            };
            let mut entry = told.entry;
            if told.is_itself || is_above(&entry, &self.full) {
                continue;
            }
            if entry.kind == Kind::File && !told.has_size {
                // List what can't be looked at: its reader gets the reason.
                let found = self.remote.stat(&join(&self.full, &entry.name)).await;
                entry.size = found.map_or(0, |found| found.map_or(0, |found| found.size));
            }
            if self.follow && entry.kind == Kind::Link {
                let target = self.remote.stat(&join(&self.full, &entry.name)).await?;
                entry = target.map_or(entry.clone(), |found| Entry {
                    name: entry.name,
                    ..found
                });
            }
            page.push(entry);
        }
        Ok(page)
    }
}

/// Returns whether an entry is the directory itself or the one above it, which some servers name in
/// full. Other names with a slash are reported as left out by the copy.
fn is_above(entry: &Entry, full: &[u8]) -> bool {
    let is_named =
        matches!(&*entry.name, b"." | b"..") || [full, parent_of(full)].contains(&&*entry.name);
    entry.kind == Kind::Directory && is_named
}

/// Reads to the end: into memory, or a file that nobody else sees.
async fn take_in(mut data: Box<dyn Wire>) -> io::Result<Box<dyn AsyncBufRead + Send + Unpin>> {
    let mut memory = BytesMut::with_capacity(64 << 10);
    let mut file: Option<File> = None;
    let mut trickle = Trickle::of_answer();
    loop {
        memory.reserve(64 << 10);
        let late = |dry| Err(io::Error::new(io::ErrorKind::TimedOut, dry));
        let read = trickle.wait(data.read_buf(&mut memory)).await;
        let read = read.unwrap_or_else(late)?;
        trickle.came(read);
        let is_end = read == 0;
        if memory.len() > MEMORY_BYTES_MAX || is_end && file.is_some() {
            let spool = match &mut file {
                Some(file) => file,
                None => file.insert(unnamed_file().await?),
            };
            spool.write_all(&memory).await?;
            memory.clear();
        }
        if is_end {
            break;
        }
    }
    match file {
        None => Ok(Box::new(BufReader::new(io::Cursor::new(memory.freeze())))),
        Some(mut file) => {
            file.flush().await?;
            file.rewind().await?;
            Ok(Box::new(BufReader::new(file)))
        }
    }
}

/// Returns a temporary file without a name: it disappears with its holder.
async fn unnamed_file() -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut lot = [0; 16];
    getrandom::fill(&mut lot).map_err(|cause| io::Error::other(cause.to_string()))?;
    let name = format!("posthaste-listing-{:032x}", u128::from_le_bytes(lot));
    let path: PathBuf = std::env::temp_dir().join(name);
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = tokio::fs::OpenOptions::from(options).open(&path).await?;
    tokio::fs::remove_file(&path).await?;
    Ok(file)
}

impl Listing for FtpListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_listings_are_read_from_a_file() {
        for lines in [3_usize, 60_000] {
            let (mut near, far) = tokio::io::duplex(1 << 16);
            let sending = async move {
                for index in 0..lines {
                    let line =
                        format!("type=file;size={index};modify=20200101000000; name-{index}\r\n");
                    near.write_all(line.as_bytes()).await.unwrap();
                }
            };
            let (taken, ()) = tokio::join!(take_in(Box::new(far)), sending);
            let mut read = taken.unwrap().lines();
            for index in 0..lines {
                let line = read.next_line().await.unwrap().unwrap();
                let told = told_of(line.as_bytes()).unwrap();
                assert_eq!(told.entry.size, index as u64);
            }
            assert_eq!(read.next_line().await.unwrap(), None);
        }
    }
}
