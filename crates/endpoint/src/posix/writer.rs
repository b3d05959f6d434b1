//! Large local files whose bytes come from elsewhere.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures_util::StreamExt;

use super::{
    blocking,
    draft::{Draft, failed},
    show,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
};

/// A large local file whose bytes come from a remote source.
pub(super) struct PosixWriter {
    draft: Arc<Draft>,
    kept: Vec<(u64, Checksum)>,
    spec: FileSpec,
}

/// Bytes gathered before a hop to a blocking thread writes them.
const GATHERED_BYTES: usize = 1 << 20;

impl PosixWriter {
    pub(super) fn new(draft: Draft, kept: Vec<(u64, Checksum)>, spec: FileSpec) -> Self {
        Self {
            draft: Arc::new(draft),
            kept,
            spec,
        }
    }

    /// Writes `gathered` at `offset` and sums it while it is in the cache.
    async fn write_gathered(
        &self,
        gathered: Vec<Bytes>,
        mut offset: u64,
        mut summer: Summer,
    ) -> Result<(Summer, u64)> {
        let draft = Arc::clone(&self.draft);
        blocking(move || {
            gathered.iter().for_each(|bytes| summer.add(bytes));
            draft.write_pieces(&gathered, offset)?;
            offset += gathered.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
            Ok((summer, offset))
        })
        .await
    }
}

impl Writer for PosixWriter {
    fn segment_size(&self) -> u64 {
        super::SEGMENT_BYTES
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
            let mut summer = Summer::default();
            let mut offset = range.start;
            let mut gathered = Vec::new();
            let mut gathered_bytes = 0;
            while let Some(bytes) = body.next().await {
                let bytes = bytes?;
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
            blocking(move || {
                draft.record(index, sum)?;
                Ok(sum)
            })
            .await
        })
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        let (draft, spec) = (Arc::clone(&self.draft), self.spec.clone());
        Box::pin(blocking(move || draft.publish(&spec)))
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            let found = self.draft.file().metadata();
            let found = found.map_err(|cause| failed("finish", self.draft.path(), cause))?;
            if found.len() < size {
                return Err(
                    Error::new(ErrorKind::Corrupt, "finish", show(self.draft.path()))
                        .cause(format!("{} bytes are there of {size}", found.len()))
                        .at(Locus::Destination),
                );
            }
            if found.len() > size {
                self.draft.set_size(size)?;
            }
            self.finish(whole).await
        })
    }

    fn settle(&self) -> Boxed<'_, Result<bool>> {
        let draft = Arc::clone(&self.draft);
        Box::pin(blocking(move || draft.settle().map(|()| true)))
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async { self.draft.discard() })
    }
}
