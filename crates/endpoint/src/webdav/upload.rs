//! Writing to a WebDAV server: one stream per file, under a hidden name until it is complete.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use adler2::Adler32;
use bytes::Bytes;
use futures_util::StreamExt;

use super::{Shelf, is_lost, parent_of, target};
use crate::{
    Checksum, Error, ErrorKind, Result, StoredSum, Summer,
    config::state_folder,
    dates,
    endpoint::{Boxed, ByteStream, FileSpec, FileTime, Writer, base_name, new_word, partial_name},
    ledger::{Claim, Head, Ledger},
    web::{About, Call, Sent, drain, of_owncloud, stream, text_of, told_adler32},
};

/// Least size of a file whose upload is noted: noting a smaller one takes as long as sending it.
const NOTED_BYTES_MIN: u64 = 1 << 20;

/// An upload under a hidden name, until it gets its own.
pub(super) struct Hidden {
    /// Path of the unfinished copy.
    pub(super) partial: Vec<u8>,
    /// Request description for errors.
    about: About,
    /// Note by which the next run finds the copy.
    note: Option<Ledger>,
}

impl Hidden {
    /// Notes that the file has its own name, or is gone.
    pub(super) fn is_done(&self) {
        if let Some(note) = &self.note {
            note.remove();
        }
    }
}

/// Returns the hidden name of a writer.
fn partial_of(full: &[u8], origin: &str, word: &str) -> Vec<u8> {
    let name = partial_name(base_name(full), &format!("{origin}\n{word}"));
    [parent_of(full), b"/", &name].concat()
}

/// Facts in the answer to a write.
struct Taken {
    /// The Adler-32 of the stored bytes.
    adler: Option<u32>,
    /// Checksum of them that ownCloud reports.
    sum: Option<StoredSum>,
    keeps_time: bool,
}

/// Sums of the sent bytes.
#[derive(Default)]
pub(super) struct Tally {
    summer: Summer,
    len: u64,
    /// Checksums that servers may report of what they stored, as long as this one does.
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
    /// Returns the hidden name beside `full` for this writer alone: servers don't report that
    /// another writer uses a name. Removes what a killed writer of this user left there.
    pub(super) async fn hidden(&self, full: &[u8], spec: &FileSpec) -> Hidden {
        let word = new_word();
        let note = match spec.size >= NOTED_BYTES_MIN {
            true => self.note(full, spec, &word).await,
            false => None,
        };
        Hidden {
            partial: partial_of(full, &spec.origin, &word),
            about: About::writing("write", self.place().show_full(full)),
            note,
        }
    }

    /// Returns the path of the note on what is written to a file from one source.
    fn note_path(&self, full: &[u8], origin: &str) -> PathBuf {
        let file = [self.place().origin().as_bytes(), b"\n", full].concat();
        let name = [&file[..], b"\n", origin.as_bytes()].concat();
        let hash = blake3::hash(&name).to_hex();
        state_folder().join(format!("webdav-{}", &hash[..32]))
    }

    /// Notes that a file is written under a hidden name, and removes what an earlier run left.
    /// Makes no note if another process writes the same file, or if none can be kept: what is left
    /// of this run stays then.
    async fn note(&self, full: &[u8], spec: &FileSpec, word: &str) -> Option<Ledger> {
        let claim = Claim::take(&self.note_path(full, &spec.origin)).ok()??;
        if let Some((left, _)) = claim.load() {
            let partial = partial_of(full, &spec.origin, &left.token);
            if !self.is_removed(&partial).await {
                return None;
            }
        }
        let head = Head {
            identity: spec.identity(),
            segment_size: spec.size.max(1),
            token: word.to_owned(),
        };
        claim.start(&head, &[]).ok()
    }

    /// Removes an earlier run's remainder of a file that is complete now.
    pub(super) async fn forget_left(&self, full: &[u8], origin: &str) {
        let path = self.note_path(full, origin);
        if Ledger::load(&path).is_none() {
            return;
        }
        // No other process writes it.
        if let Ok(Some(claim)) = Claim::take(&path)
            && let Some((left, _)) = claim.load()
            && self
                .is_removed(&partial_of(full, origin, &left.token))
                .await
        {
            let _ = std::fs::remove_file(&path);
        }
    }

    /// Gives the upload up: its remainder is hidden, and the next run finds it.
    pub(super) async fn forget(&self, hidden: &Hidden) {
        if self.is_removed(&hidden.partial).await {
            hidden.is_done();
        }
    }

    async fn is_removed(&self, partial: &[u8]) -> bool {
        let removed = self.command(self.call("DELETE", partial, "remove")).await;
        removed.is_ok_and(|_| true)
            || self
                .look_at(partial)
                .await
                .is_ok_and(|there| there.is_none())
    }

    fn tally(&self) -> Tally {
        Tally {
            adler: self.tells_sums.load(Relaxed).then(Adler32::new),
            ..Tally::default()
        }
    }

    /// Puts bytes in memory under a hidden name. Returns whether the time is kept.
    pub(super) async fn send(
        &self,
        hidden: &Hidden,
        spec: &FileSpec,
        data: Vec<Bytes>,
    ) -> Result<bool> {
        let mut tally = self.tally();
        if tally.adler.is_some() {
            data.iter().for_each(|bytes| tally.add(bytes));
        }
        let body = Sent::payload(data.clone());
        let taken = self.send_body(hidden, spec, body).await?;
        if taken.sum.is_some_and(|told| told.of(&data) != told) {
            return Err(differs(hidden));
        }
        compare(hidden, &taken, &tally)?;
        Ok(taken.keeps_time)
    }

    /// Puts a stream there, and returns its checksum and whether the time is kept. If the answer is
    /// lost, the entry there counts.
    async fn send_stream(
        &self,
        hidden: &Hidden,
        spec: &FileSpec,
        body: ByteStream,
        len: u64,
    ) -> Result<(Checksum, bool)> {
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
        let sent = self.send_body(hidden, spec, body).await;
        let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
        let sum = tally.summer.sum();
        let keeps_time = match sent {
            Ok(taken) => {
                compare(hidden, &taken, &tally)?;
                taken.keeps_time
            }
            Err(error) if tally.len == len && is_lost(&error) => {
                let there = self.check(hidden, len, Some(sum)).await;
                let mtime = there.map_err(|_| error)?;
                return Ok((sum, mtime.is_some() && mtime == spec.mtime));
            }
            Err(error) => return Err(error),
        };
        self.check(hidden, len, Some(sum)).await?;
        Ok((sum, keeps_time))
    }

    /// Uploads a body under a hidden name.
    async fn send_body(&self, hidden: &Hidden, spec: &FileSpec, body: Sent) -> Result<Taken> {
        let about = hidden.about.clone();
        let mut call = Call::new("PUT", target(&hidden.partial), about)
            .header("content-type", "application/octet-stream")
            .header("want-digest", "adler32")
            .body(body);
        let is_nginx = self.is_nginx().await?;
        if let Some(mtime) = spec.mtime {
            // ownCloud and its relatives read the time from here, nginx from the date of the
            // request.
            call = call.header("x-oc-mtime", mtime.secs.to_string());
            if is_nginx {
                call = call.header("date", dates::show_http(mtime));
            }
        }
        let response = self.place().ask(call).await?;
        let adler = told_adler32(response.headers());
        self.tells_sums.store(adler.is_some(), Relaxed);
        let sum = of_owncloud(response.headers());
        let accepts = text_of(response.headers(), "x-oc-mtime");
        let accepts = accepts.is_some_and(|answer| answer.eq_ignore_ascii_case("accepted"));
        drain(response.into_body()).await;
        Ok(Taken {
            adler,
            sum,
            keeps_time: accepts || is_nginx,
        })
    }

    /// Returns whether the server is nginx, by any of its answers.
    async fn is_nginx(&self) -> Result<bool> {
        if self.is_nginx.get().is_none() {
            self.look_at(&self.place().full(b"")).await?;
        }
        Ok(self.is_nginx.get() == Some(&true))
    }

    /// Checks the uploaded file: its size and, if the rules say so, its bytes read back. Returns
    /// its time if it was reported.
    pub(super) async fn check(
        &self,
        hidden: &Hidden,
        size: u64,
        sum: Option<Checksum>,
    ) -> Result<Option<FileTime>> {
        let fail = |cause: String| hidden.about.fail(ErrorKind::Corrupt).cause(cause);
        if let Some(wanted) = sum.filter(|_| self.rules.verify) {
            let (found, len) = self.sum_of(hidden).await?;
            if (found, len) != (wanted, size) {
                return Err(fail("what was written reads back differently".to_owned())
                    .hint("check the server's disk"));
            }
            return Ok(None);
        }
        let there = self.look_at(&hidden.partial).await?;
        let there = there.ok_or_else(|| {
            fail("the server took it, and has nothing under that name".to_owned())
        })?;
        let found = there.size;
        if found != size {
            return Err(fail(format!("the server holds {found} bytes of {size}")));
        }
        Ok(there.mtime)
    }

    async fn sum_of(&self, hidden: &Hidden) -> Result<(Checksum, u64)> {
        let shown = hidden.about.subject.clone();
        let about = About::writing("read back", shown.clone());
        let call = Call::new("GET", target(&hidden.partial), about);
        let call = call.header("accept-encoding", "identity");
        let response = self.place().ask(call).await?;
        let mut body = stream(response.into_body(), shown);
        let (mut summer, mut len) = (Summer::default(), 0);
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            len += bytes.len() as u64;
            summer.add(&bytes);
        }
        Ok((summer.sum(), len))
    }
}

/// Compares the server's report of the stored bytes with the sent ones, if both are known.
fn compare(hidden: &Hidden, taken: &Taken, tally: &Tally) -> Result<()> {
    let (Some(told), Some(adler)) = (taken.adler, &tally.adler) else {
        return Ok(());
    };
    if told == adler.checksum() {
        return Ok(());
    }
    Err(differs(hidden))
}

fn differs(hidden: &Hidden) -> Error {
    let error = hidden.about.fail(ErrorKind::Corrupt);
    error.cause("the server stored bytes with another checksum than those sent")
}

/// File being uploaded.
pub(super) struct Upload {
    shelf: Arc<Shelf>,
    full: Vec<u8>,
    hidden: Hidden,
    spec: FileSpec,
    keeps_time: AtomicBool,
}

impl Upload {
    pub(super) async fn new(shelf: Arc<Shelf>, full: Vec<u8>, spec: &FileSpec) -> Self {
        Self {
            hidden: shelf.hidden(&full, spec).await,
            keeps_time: AtomicBool::new(false),
            spec: spec.clone(),
            shelf,
            full,
        }
    }
}

impl Writer for Upload {
    /// Returns no bound: RFC 4918 has no way to write a range.
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
        Box::pin(async move {
            let sent = self.shelf.send_stream(&self.hidden, &self.spec, body, len);
            let (sum, keeps_time) = sent.await?;
            self.keeps_time.store(keeps_time, Relaxed);
            Ok(sum)
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let shelf = &self.shelf;
            let (partial, full) = (&self.hidden.partial, &self.full);
            shelf.publish(partial, full, self.spec.size).await?;
            self.hidden.is_done();
            shelf.note_time(&self.spec, self.keeps_time.load(Relaxed));
            Ok(())
        })
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(self.shelf.forget(&self.hidden))
    }
}
