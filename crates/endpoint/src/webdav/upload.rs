//! Writing to a WebDAV server: one stream a file, under a hidden name until it is whole.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
};

use adler2::Adler32;
use bytes::Bytes;
use futures_util::StreamExt;

use super::{Shelf, is_lost, parent_of};
use crate::{
    Checksum, ErrorKind, Result, Summer, dates,
    endpoint::{Boxed, ByteStream, FileSpec, Writer, base_name, new_word, partial_name},
    web::{About, Sent, drain, stream, told_adler32},
};

/// Sums what is sent.
#[derive(Default)]
pub(super) struct Tally {
    summer: Summer,
    len: u64,
    /// What servers may tell of what they stored, as long as this one does.
    adler: Option<Adler32>,
}

impl Tally {
    fn add(&mut self, bytes: &Bytes) {
        self.summer.add(bytes);
        self.len += bytes.len() as u64;
        if let Some(adler) = &mut self.adler {
            adler.write_slice(bytes);
        }
    }
}

impl Shelf {
    /// The hidden name beside `full` under which it is written, by this writer alone: servers tell nobody that another
    /// writes there too. What a killed one leaves stays.
    pub(super) fn partial_path(full: &[u8], spec: &FileSpec) -> Vec<u8> {
        let writer = format!("{}\n{}", spec.origin, new_word());
        let name = partial_name(base_name(full), &writer);
        [parent_of(full), b"/", &name].concat()
    }

    fn tally(&self) -> Tally {
        Tally {
            adler: self.tells_sums.load(Relaxed).then(Adler32::new),
            ..Tally::default()
        }
    }

    /// Puts bytes in memory under a hidden name.
    pub(super) async fn send(
        &self,
        partial: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
    ) -> Result<()> {
        let mut tally = self.tally();
        if tally.adler.is_some() {
            data.iter().for_each(|bytes| tally.add(bytes));
        }
        let told = self.send_body(partial, spec, Sent::payload(data)).await?;
        self.compare(partial, told, &tally)
    }

    /// Puts a stream there, and says what its checksum is. Where the answer is lost, what is there counts.
    async fn send_stream(
        &self,
        partial: &[u8],
        spec: &FileSpec,
        body: ByteStream,
        len: u64,
    ) -> Result<Checksum> {
        let tally = Arc::new(Mutex::new(self.tally()));
        let taking = Arc::clone(&tally);
        let body = body.map(move |bytes| {
            if let Ok(bytes) = &bytes {
                let mut tally = taking.lock().unwrap_or_else(PoisonError::into_inner);
                tally.add(bytes);
            }
            bytes
        });
        let body = Sent::stream(Box::pin(body), len);
        let sent = self.send_body(partial, spec, body).await;
        let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
        let sum = match sent {
            Ok(told) => {
                self.compare(partial, told, &tally)?;
                tally.summer.sum()
            }
            Err(error) if tally.len == len && is_lost(&error) => {
                let sum = tally.summer.sum();
                let there = self.check(partial, len, Some(sum)).await;
                return there.map(|()| sum).map_err(|_| error);
            }
            Err(error) => return Err(error),
        };
        self.check(partial, len, Some(sum)).await?;
        Ok(sum)
    }

    /// Puts a body under a hidden name; says the Adler-32 that the server tells of it.
    async fn send_body(&self, partial: &[u8], spec: &FileSpec, body: Sent) -> Result<Option<u32>> {
        let mut call = self
            .call("PUT", partial, "write")
            .header("content-type", "application/octet-stream")
            .header("want-digest", "adler32")
            .body(body);
        if let Some(mtime) = spec.mtime {
            // ownCloud and its kin take the time from here, nginx from the date of the request.
            call = call.header("x-oc-mtime", mtime.secs.to_string());
            if self.is_nginx.load(Relaxed) {
                call = call.header("date", dates::show_http(mtime));
            }
        }
        let response = self.place().ask(call).await?;
        let told = told_adler32(response.headers());
        self.tells_sums.store(told.is_some(), Relaxed);
        drain(response.into_body()).await;
        Ok(told)
    }

    /// Compares what the server tells of what it stored with what was sent, where both are known.
    fn compare(&self, partial: &[u8], told: Option<u32>, tally: &Tally) -> Result<()> {
        let (Some(told), Some(adler)) = (told, &tally.adler) else {
            return Ok(());
        };
        if told == adler.checksum() {
            return Ok(());
        }
        let about = About::writing("write", self.place().show_full(partial));
        Err(about
            .fail(ErrorKind::Corrupt)
            .cause("the server stored bytes with another checksum than those sent"))
    }

    /// Looks at what was written: its size, and what it reads back as where the rules say so.
    pub(super) async fn check(
        &self,
        partial: &[u8],
        size: u64,
        sum: Option<Checksum>,
    ) -> Result<()> {
        let about = About::writing("write", self.place().show_full(partial));
        let fail = |cause: String| about.fail(ErrorKind::Corrupt).cause(cause);
        match sum.filter(|_| self.rules.verify) {
            Some(wanted) => {
                let (found, len) = self.sum_of(partial).await?;
                if (found, len) != (wanted, size) {
                    return Err(fail("what was written reads back differently".to_owned())
                        .hint("check the server's disk"));
                }
            }
            None => {
                let there = self.look_at(partial).await?;
                let there = there.ok_or_else(|| {
                    fail("the server took it, and has nothing under that name".to_owned())
                })?;
                let found = there.size;
                if found != size {
                    return Err(fail(format!("the server holds {found} bytes of {size}")));
                }
            }
        }
        Ok(())
    }

    async fn sum_of(&self, partial: &[u8]) -> Result<(Checksum, u64)> {
        let call = self
            .call("GET", partial, "read back")
            .header("accept-encoding", "identity");
        let response = self.place().ask(call).await?;
        let mut body = stream(response.into_body(), self.place().show_full(partial));
        let (mut summer, mut len) = (Summer::default(), 0);
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            len += bytes.len() as u64;
            summer.add(&bytes);
        }
        Ok((summer.sum(), len))
    }
}

/// A file on its way.
pub(super) struct Upload {
    shelf: Arc<Shelf>,
    full: Vec<u8>,
    partial: Vec<u8>,
    spec: FileSpec,
}

impl Upload {
    pub(super) fn new(shelf: Arc<Shelf>, full: Vec<u8>, spec: &FileSpec) -> Self {
        Self {
            partial: Shelf::partial_path(&full, spec),
            spec: spec.clone(),
            shelf,
            full,
        }
    }
}

impl Writer for Upload {
    /// All of it: RFC 4918 has no way to write a range.
    fn segment_size(&self) -> u64 {
        self.spec.size.max(1)
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        Vec::new()
    }

    fn write(
        &self,
        _index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        let len = range.end - range.start;
        Box::pin(self.shelf.send_stream(&self.partial, &self.spec, body, len))
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let shelf = &self.shelf;
            shelf
                .publish(&self.partial, &self.full, self.spec.size)
                .await
        })
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(self.shelf.forget(&self.partial))
    }
}
