//! Restores digests that the journal lost from a manifest that depots kept.

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::dataset::Manifest;
use posthaste_journal::{ChunkRecord, RequestRecord, Scan};
use posthaste_types::ChunkIndex;

use super::Store;

impl Store {
    /// Returns whether digests of some chunks of an unfinished request are unknown.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn lacks_digests(&self, record: &RequestRecord) -> Result<bool> {
        let Some(Scan::Sealed {
            bytes, chunk_size, ..
        }) = record.scan
        else {
            return Ok(false);
        };
        if record.stage_in.is_some() || record.ended.is_some() {
            return Ok(false);
        }
        let known = self.journal(|journal| journal.chunks_read(record.id))?;
        Ok(known < bytes.pieces(chunk_size))
    }

    /// Returns the digests of all chunks from a request's manifest as depots keep it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it contradicts what is known of the request; the journal's.
    pub(crate) fn digests_in(
        &self,
        record: &RequestRecord,
        bytes: &[u8],
    ) -> Result<Vec<ChunkRecord>> {
        let wrong = |why: &'static str| {
            let subject = format!("the manifest of {}", record.id);
            Error::new(ErrorKind::Corrupt, "use", subject).cause(why)
        };
        let cipher = self.cipher(record)?;
        if cipher.is_none() && !record.recipients.is_empty() {
            return Err(wrong("the key of its dataset is gone"));
        }
        let manifest = Manifest::open_with(bytes, cipher)?;
        let Some(Scan::Sealed { chunk_size, .. }) = record.scan else {
            return Err(wrong("its source has not been scanned"));
        };
        let is_same = manifest.dataset == self.dataset(record.id)?
            && manifest.code == record.code
            && manifest.chunk_size == chunk_size
            && manifest.list.to_bytes() == self.list(record.id)?.to_bytes();
        if !is_same {
            return Err(wrong("it is that of another dataset"));
        }
        let chunks = (0..).zip(manifest.chunks);
        let chunks: Vec<ChunkRecord> = chunks
            .map(|(chunk, found)| {
                let mut digests = vec![found.chunk];
                digests.extend(found.fragments);
                digests.extend(found.content);
                ChunkRecord {
                    request: record.id,
                    chunk: ChunkIndex::new(chunk),
                    digests,
                }
            })
            .collect();
        let known = self.digests(record.id)?;
        let differs = |chunk: &ChunkRecord| {
            let known = known.get(&chunk.chunk);
            known.is_some_and(|known| *known != chunk.digests)
        };
        if chunks.iter().any(differs) {
            return Err(wrong("it says other digests than the journal"));
        }
        Ok(chunks)
    }
}
