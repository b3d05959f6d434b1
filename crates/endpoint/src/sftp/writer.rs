//! Writing of large files: segments at any offset, noted here, renamed when all are stored.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex as BlockingMutex, PoisonError},
};

use super::{
    attributes::attributes_of,
    file::{FilePath, OpenFile},
    remote::Remote,
    wire::{Attributes, OPEN_CREATE, OPEN_READ, OPEN_WRITE, REMOVE, Request},
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    config::state_folder,
    endpoint::{Boxed, ByteStream, Entry, FileSpec, Kind, LentSegment, Writer, new_word},
    ledger::{Claim, Head, Kept, Ledger},
};

/// Bytes of a segment, and so the loss of each lane in a crash.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Receipt in the ledger: a server gives none for what it holds.
const RECEIPT: &str = "-";

/// Large file being written to a server.
pub(super) struct SftpWriter {
    file: OpenFile,
    full: Vec<u8>,
    /// Word in the unfinished copy's name, which no other writer has.
    word: String,
    /// Entry with the final name when the writer began.
    before: Option<Entry>,
    spec: FileSpec,
    kept: Vec<(u64, Checksum)>,
    /// Ledger of the copy. `None` if another process has it: this copy can't be continued then.
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

/// Writes a segment of the draft that another process began, and returns its checksum and its
/// receipt.
pub(super) async fn write_lent(
    remote: &Arc<Remote>,
    full: &[u8],
    spec: &FileSpec,
    segment: &LentSegment,
    body: ByteStream,
) -> Result<(Checksum, String)> {
    let path = FilePath::unfinished(remote.partial(full, &segment.token), full, spec);
    let file = OpenFile::open(Arc::clone(remote), path, OPEN_READ | OPEN_WRITE).await?;
    let written = write_segment(&file, &segment.range, spec, body).await;
    let closed = file.close().await;
    let sum = written?;
    closed?;
    Ok((sum, RECEIPT.to_owned()))
}

/// Writes a segment, and checks that the server holds it.
async fn write_segment(
    file: &OpenFile,
    range: &Range<u64>,
    spec: &FileSpec,
    body: ByteStream,
) -> Result<Checksum> {
    let (sum, end) = file.write(range.start, body).await?;
    if end != range.end {
        return Err(Error::new(ErrorKind::Unreachable, "read", &*spec.origin)
            .cause("the source ended early")
            .at(Locus::Source));
    }
    file.verify(range.clone(), sum).await?;
    Ok(sum)
}

/// Adopts the note of another machine.
pub(super) fn adopt(remote: &Remote, full: &[u8], spec: &FileSpec, note: &str) -> Result<()> {
    let path = ledger_path(remote, full, spec);
    Ledger::adopt(&path, &spec.identity(), note)
        .map_err(|cause| Error::io("note an unfinished copy in", path.to_string_lossy(), cause))
}

impl SftpWriter {
    /// Continues the unfinished copy of this source, or starts one.
    pub(super) async fn start(
        remote: Arc<Remote>,
        full: Vec<u8>,
        spec: &FileSpec,
        size: Option<u64>,
    ) -> Result<Self> {
        let path = ledger_path(&remote, &full, spec);
        let unnoted =
            |cause| Error::io("note an unfinished copy in", path.to_string_lossy(), cause);
        let claim = Claim::take(&path).map_err(unnoted)?;
        let mut head = Head {
            identity: spec.identity(),
            segment_size: SEGMENT_BYTES,
            token: new_word(),
        };
        let mut noted = Vec::new();
        if let Some((found, kept)) = claim.as_ref().and_then(Claim::load) {
            if found.identity == head.identity && found.segment_size == head.segment_size {
                (head, noted) = (found, kept);
            } else {
                let stale = remote.partial(&full, &found.token);
                let _ = remote.ask(Request::new(REMOVE).string(&stale)).await?;
            }
        }
        let before = remote.stat(&full, false).await?;
        let kind = before.as_ref().map(|there| there.kind);
        if matches!(kind, Some(Kind::Special | Kind::Link)) {
            remote.refuse_special(&full).await?;
        }
        let path = FilePath::unfinished(remote.partial(&full, &head.token), &full, spec);
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE;
        let file = OpenFile::open(remote, path, flags).await?;
        let kept = still_held(&file, size, noted).await?;
        let ledger = claim.map(|claim| claim.start(&head, &kept));
        let ledger = ledger.transpose().map_err(unnoted)?;
        Ok(Self {
            file,
            full,
            word: head.token,
            before,
            spec: spec.clone(),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            ledger: BlockingMutex::new(ledger),
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

    /// Fails if another file got the final name since this copy began, and differs: another
    /// finished first.
    async fn refuse_overtaken(&self) -> Result<()> {
        let remote = &self.file.remote;
        let look = |entry: Entry| (entry.kind, entry.size, entry.mtime);
        let now = remote.stat(&self.full, false).await?.map(look);
        let ours = remote.stat(&self.file.path.full, false).await?.map(look);
        if now.is_none() || now == self.before.clone().map(look) || now == ours {
            return Ok(());
        }
        Err(
            Error::new(ErrorKind::Conflict, "write", remote.show(&self.full))
                .cause("another wrote it meanwhile")
                .hint("look at what is there, then run the same command again to replace it")
                .at(Locus::Destination),
        )
    }

    async fn publish(&self, size: u64) -> Result<()> {
        let remote = &self.file.remote;
        let found = self.file.stat().await?.size;
        let is_open_ended = self.spec.size == 0;
        if found < size || found > size && !is_open_ended {
            return Err(
                Error::new(ErrorKind::Corrupt, "write", remote.show(&self.full))
                    .cause(format!("the server holds {found} bytes of {size}"))
                    .at(Locus::Destination),
            );
        }
        if found > size {
            let cut = Attributes {
                size: Some(size),
                ..Attributes::default()
            };
            self.file.set(&cut).await?;
        }
        self.file.flush().await?;
        // A server may write, and change the time, until it has closed the file.
        self.file.close().await?;
        let partial = &self.file.path;
        let attributes = attributes_of(self.spec.mode, self.spec.mtime);
        remote.dress(partial, attributes).await?;
        self.refuse_overtaken().await?;
        remote
            .publish(&partial.full, &self.full, &self.spec, Some(size))
            .await?;
        self.forget();
        Ok(())
    }
}

/// Returns the noted segments that the server's file holds, read back: the note alone may be of a
/// file that was lost.
async fn still_held(file: &OpenFile, size: Option<u64>, noted: Vec<Kept>) -> Result<Vec<Kept>> {
    let there = file.stat().await?.size;
    let size = size.unwrap_or(there);
    let mut kept: Vec<Kept> = Vec::new();
    for noted in noted {
        let start = noted.index.saturating_mul(SEGMENT_BYTES);
        let end = start.saturating_add(SEGMENT_BYTES).min(size);
        let is_new = kept.iter().all(|kept| kept.index != noted.index);
        if start < end && end <= there && is_new && file.sum_of(start..end).await? == noted.checksum
        {
            kept.push(noted);
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
            let sum = write_segment(&self.file, &range, &self.spec, body).await?;
            self.take(index, sum, RECEIPT)?;
            Ok(sum)
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.publish(self.spec.size))
    }

    fn finish_at(&self, size: u64, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.publish(size))
    }

    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(self.file.sync())
    }

    fn lend(&self) -> Option<String> {
        Some(self.word.clone())
    }

    fn take(&self, index: u64, sum: Checksum, _receipt: &str) -> Result<()> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = ledger
            .as_ref()
            .map(|ledger| ledger.add(index, sum, RECEIPT));
        noted
            .transpose()
            .map(|_| ())
            .map_err(|cause| Error::io("note an unfinished copy of", &*self.spec.origin, cause))
    }

    fn note(&self) -> Option<String> {
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.as_ref().and_then(Ledger::note)
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let _ = self.file.close().await;
            let request = Request::new(REMOVE).string(&self.file.path.full);
            let _ = self.file.remote.ask(request).await;
            self.forget();
        })
    }
}
