//! Large local files from remote sources.

use std::{ops::Range, os::unix::fs::FileExt, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt, stream::try_unfold};

use super::{
    draft::{Draft, failed},
    show,
};
use crate::{
    Actor, Checksum, Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    unkept::UnkeptCount,
};

/// Large local file whose bytes come from a remote source.
pub(super) struct PosixWriter {
    actor: Actor,
    draft: Arc<Draft>,
    kept: Vec<(u64, Checksum)>,
    spec: FileSpec,
    segment_size: u64,
    unkept: Arc<UnkeptCount>,
}

/// Bytes gathered before a blocking thread writes them.
const GATHERED_BYTES: usize = 1 << 20;

impl PosixWriter {
    pub(super) fn new(
        actor: Actor,
        draft: Draft,
        kept: Vec<(u64, Checksum)>,
        spec: FileSpec,
        segment_size: u64,
        unkept: Arc<UnkeptCount>,
    ) -> Self {
        Self {
            actor,
            draft: Arc::new(draft),
            kept,
            spec,
            segment_size,
            unkept,
        }
    }

    /// Writes `gathered` at `offset` and hashes it while it is in the cache.
    async fn write_gathered(
        &self,
        gathered: Vec<Bytes>,
        mut offset: u64,
        mut summer: Summer,
    ) -> Result<(Summer, u64)> {
        let draft = Arc::clone(&self.draft);
        let written = self.actor.blocking(move || {
            gathered.iter().for_each(|bytes| summer.add(bytes));
            draft.write_pieces(&gathered, offset)?;
            offset += gathered.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
            Ok((summer, offset))
        });
        written.await
    }
}

impl PosixWriter {
    /// Writes a segment from `rest` and `body`, and leaves in `rest` the bytes of the next.
    async fn write_one(
        &self,
        index: u64,
        range: Range<u64>,
        rest: &mut Bytes,
        body: &mut ByteStream,
    ) -> Result<Checksum> {
        let mut summer = Summer::default();
        let (mut offset, mut left) = (range.start, range.end - range.start);
        let (mut gathered, mut gathered_bytes) = (Vec::new(), 0);
        while left > 0 {
            if rest.is_empty() {
                match body.next().await {
                    Some(bytes) => *rest = bytes?,
                    None => break,
                }
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            let bytes = rest.split_to(most.min(rest.len()));
            left -= bytes.len() as u64;
            gathered_bytes += bytes.len();
            gathered.push(bytes);
            if gathered_bytes >= GATHERED_BYTES {
                gathered_bytes = 0;
                (summer, offset) = self
                    .write_gathered(std::mem::take(&mut gathered), offset, summer)
                    .await?;
            }
        }
        (summer, offset) = self.write_gathered(gathered, offset, summer).await?;
        if offset != range.end {
            return Err(
                Error::new(ErrorKind::Unreachable, "read", &*self.spec.origin)
                    .cause("the source ended early")
                    .at(Locus::Source),
            );
        }
        let draft = Arc::clone(&self.draft);
        let sum = summer.sum();
        let recorded = self.actor.blocking(move || {
            draft.record(index, sum)?;
            Ok(sum)
        });
        recorded.await
    }
}

impl Writer for PosixWriter {
    fn segment_size(&self) -> u64 {
        self.segment_size
    }

    fn run_max(&self) -> u64 {
        (super::SEGMENT_BYTES / self.segment_size).max(1)
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        mut body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(async move {
            let count = (range.end - range.start).div_ceil(self.segment_size);
            let mut whole = Checksum::EMPTY;
            let mut rest = Bytes::new();
            for at in 0..count.max(1) {
                let start = range.start + at * self.segment_size;
                let segment = start..range.end.min(start + self.segment_size);
                let bytes = segment.end - segment.start;
                let written = self.write_one(index + at, segment, &mut rest, &mut body);
                let sum = written.await?;
                whole = whole.then(sum, bytes);
            }
            Ok(whole)
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        let (draft, spec) = (Arc::clone(&self.draft), self.spec.clone());
        let unkept = Arc::clone(&self.unkept);
        Box::pin(self.actor.blocking(move || {
            let refused = draft.publish(&spec)?;
            unkept.add(refused);
            Ok(())
        }))
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let found = self.draft.file().metadata();
            let found = found.map_err(|cause| failed("finish", self.draft.shown(), cause))?;
            if found.len() < size {
                return Err(
                    Error::new(ErrorKind::Corrupt, "finish", show(self.draft.shown()))
                        .cause(format!("{} bytes are there of {size}", found.len()))
                        .at(Locus::Destination),
                );
            }
            if found.len() > size {
                self.actor.run(|| self.draft.set_size(size))?;
            }
            self.finish(whole).await
        })
    }

    fn read_back(&self, range: Range<u64>) -> Option<ByteStream> {
        let (actor, draft) = (self.actor.clone(), Arc::clone(&self.draft));
        Some(Box::pin(try_unfold(range, move |left| {
            let (actor, draft) = (actor.clone(), Arc::clone(&draft));
            async move {
                if left.is_empty() {
                    return Ok(None);
                }
                let next = actor.blocking(move || {
                    let bytes = usize::try_from(left.end - left.start).unwrap_or(GATHERED_BYTES);
                    let mut bytes = vec![0; bytes.min(GATHERED_BYTES)];
                    let read = draft.file().read_exact_at(&mut bytes, left.start);
                    read.map_err(|cause| failed("read back", draft.shown(), cause))?;
                    let next = left.start + bytes.len() as u64;
                    Ok((Bytes::from(bytes), next..left.end))
                });
                next.await.map(Some)
            }
        })))
    }

    fn settle(&self) -> Boxed<'_, Result<bool>> {
        let draft = Arc::clone(&self.draft);
        Box::pin(self.actor.blocking(move || draft.settle().map(|()| true)))
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            // A failure here is not reported: the next run looks for the name again.
            let _ = self.actor.run(|| {
                self.draft.discard();
                Ok(())
            });
        })
    }
}
