//! Writing of large files: segments one after the other under a hidden name, noted here, renamed
//! when all are stored.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use super::remote::Remote;
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    config::state_folder,
    endpoint::{Boxed, ByteStream, FileSpec, Writer, new_word},
    ledger::{Claim, Head, Kept, Ledger},
};

/// Bytes of a segment, and so the loss in a crash.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Large file being written to a server.
pub(super) struct FtpWriter {
    remote: Arc<Remote>,
    full: Vec<u8>,
    partial: Vec<u8>,
    spec: FileSpec,
    kept: Vec<(u64, Checksum)>,
    segment_size: u64,
    /// Ledger of the copy. `None` if another process has it: this copy can't be continued then.
    ledger: Mutex<Option<Ledger>>,
}

fn ledger_path(remote: &Remote, full: &[u8], spec: &FileSpec) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(remote.host.show().as_bytes());
    hasher.update(b"\n");
    hasher.update(remote.host.user.as_bytes());
    hasher.update(b"\n");
    hasher.update(full);
    hasher.update(b"\n");
    hasher.update(spec.origin.as_bytes());
    state_folder().join(format!("ftp-{}", &hasher.finalize().to_hex()[..32]))
}

fn unnoted(path: &std::path::Path, cause: std::io::Error) -> Error {
    Error::io("note an unfinished copy in", path.to_string_lossy(), cause)
}

/// Adopts the note of another machine.
pub(super) fn adopt(remote: &Remote, full: &[u8], spec: &FileSpec, note: &str) -> Result<()> {
    let path = ledger_path(remote, full, spec);
    Ledger::adopt(&path, &spec.identity(), note).map_err(|cause| unnoted(&path, cause))
}

impl FtpWriter {
    /// Continues the unfinished copy of this source, or starts one.
    pub(super) async fn start(remote: Arc<Remote>, full: Vec<u8>, spec: &FileSpec) -> Result<Self> {
        let path = ledger_path(&remote, &full, spec);
        let claim = Claim::take(&path).map_err(|cause| unnoted(&path, cause))?;
        // Without REST a file is one stream.
        let segment_size = match remote.features.restart {
            true => SEGMENT_BYTES,
            false => spec.size.max(1),
        };
        let mut head = Head {
            identity: spec.identity(),
            segment_size,
            token: new_word(),
        };
        let mut noted = Vec::new();
        if let Some((found, kept)) = claim.as_ref().and_then(Claim::load) {
            let is_same = found.identity == head.identity && found.segment_size == segment_size;
            if is_same && remote.features.restart {
                (head, noted) = (found, kept);
            } else {
                remote.remove(&remote.partial(&full, &found.token)).await?;
            }
        }
        let partial = remote.partial(&full, &head.token);
        let kept = still_held(&remote, &partial, spec.size, noted).await?;
        if kept.is_empty() {
            // The first segment makes the file anew; a remainder of another copy must not count.
            remote.remove(&partial).await?;
        }
        let ledger = claim.map(|claim| claim.start(&head, &kept));
        let ledger = ledger.transpose().map_err(|cause| unnoted(&path, cause))?;
        Ok(Self {
            remote,
            full,
            partial,
            spec: spec.clone(),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            segment_size,
            ledger: Mutex::new(ledger),
        })
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Option<Ledger>> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self) {
        if let Some(ledger) = self.ledger().take() {
            ledger.remove();
        }
    }

    fn corrupt(&self, cause: String) -> Error {
        Error::new(
            ErrorKind::Corrupt,
            "write",
            self.remote.show_full(&self.full),
        )
        .cause(cause)
        .at(Locus::Destination)
    }

    async fn publish(&self) -> Result<()> {
        let publishing = self.remote.publish(&self.partial, &self.full, &self.spec);
        publishing.await?;
        self.forget();
        Ok(())
    }

    async fn write_segment(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Result<Checksum> {
        let remote = &self.remote;
        let (sum, sent) = remote.write(&self.partial, range.start, body).await?;
        if sent != range.end - range.start {
            let error = Error::new(ErrorKind::Unreachable, "read", &*self.spec.origin);
            return Err(error.cause("the source ended early").at(Locus::Source));
        }
        let found = remote
            .stat(&self.partial)
            .await?
            .map_or(0, |found| found.size);
        if found < range.end {
            let end = range.end;
            return Err(self.corrupt(format!("the server holds {found} bytes of {end}")));
        }
        if remote.rules.verify && remote.sum_of(&self.partial, range, found).await? != sum {
            return Err(self
                .corrupt("what was written reads back differently".to_owned())
                .hint("check the server's disk"));
        }
        if let Some(ledger) = self.ledger().as_ref() {
            let noted = ledger.add(index, sum, "-");
            noted.map_err(|cause| {
                Error::io("note an unfinished copy of", &*self.spec.origin, cause)
            })?;
        }
        Ok(sum)
    }
}

/// Returns the noted segments from the first on that the server's file holds, read back: the note
/// alone may be of a file that was lost.
async fn still_held(
    remote: &Arc<Remote>,
    partial: &[u8],
    size: u64,
    mut noted: Vec<Kept>,
) -> Result<Vec<Kept>> {
    let there = remote.stat(partial).await?.map_or(0, |there| there.size);
    noted.sort_by_key(|noted| noted.index);
    noted.dedup_by_key(|noted| noted.index);
    let mut kept: Vec<Kept> = Vec::new();
    for noted in noted {
        let start = noted.index.saturating_mul(SEGMENT_BYTES);
        let end = start.saturating_add(SEGMENT_BYTES).min(size);
        let is_next = noted.index == kept.len() as u64 && start < end && end <= there;
        if !is_next || remote.sum_of(partial, start..end, there).await? != noted.checksum {
            break;
        }
        kept.push(noted);
    }
    Ok(kept)
}

impl Writer for FtpWriter {
    fn segment_size(&self) -> u64 {
        self.segment_size
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
        Box::pin(self.write_segment(index, range, body))
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(self.publish())
    }

    fn note(&self) -> Option<String> {
        self.ledger().as_ref().and_then(Ledger::note)
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            let _ = self.remote.ask("DELE", &self.partial).await;
            self.forget();
        })
    }
}
