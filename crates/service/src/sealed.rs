//! A sealed dataset on its way out: read once, encoded once, the same bytes at every try.

mod opened;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::{
    code::Codec,
    dataset::{DatasetId, FileList, SourceReader},
    envelope::Cipher,
    stripe::{SPARE_BYTES, Stripe, encode_stripe},
};
use posthaste_journal::ChunkRecord;
use posthaste_types::{
    Bytes, ChunkIndex, Code, Digest, FragmentIndex, RequestId, TAG_BYTES, Timestamp,
};
use tokio::sync::OnceCell;

pub(crate) use opened::Opened;

/// A dataset the service reads chunks of.
pub(crate) struct Sealed {
    pub(crate) request: RequestId,
    pub(crate) dataset: DatasetId,
    pub(crate) root: PathBuf,
    pub(crate) code: Code,
    pub(crate) chunk_size: Bytes,
    pub(crate) expires: Timestamp,
    pub(crate) list: Arc<FileList>,
    codec: Codec,
    encryption: Encryption,
    reader: SourceReader,
    /// Stripes some send still holds: fragments of one chunk sent together are read together.
    stripes: Mutex<HashMap<ChunkIndex, Weak<OnceCell<Stripe>>>>,
    /// Digests of every chunk read before, so that a source that changes is noticed.
    digests: Mutex<HashMap<ChunkIndex, Vec<Digest>>>,
}

/// What becomes of chunks before they are coded.
pub(crate) enum Encryption {
    /// Nothing.
    None,
    /// They are encrypted.
    With(Cipher),
    /// They were, and the key is gone: no chunk can be read any more.
    Over,
}

/// A fragment ready to be sent.
pub(crate) struct Fragment {
    pub(crate) bytes: bytes::Bytes,
    pub(crate) digest: Digest,
    /// The digests of its chunk, to be journaled with the news that it is stored.
    pub(crate) record: ChunkRecord,
}

impl Sealed {
    pub(crate) fn open(
        request: &posthaste_journal::RequestRecord,
        chunk_size: Bytes,
        list: Arc<FileList>,
        known: Vec<ChunkRecord>,
        encryption: Encryption,
    ) -> Result<Self> {
        use std::os::unix::ffi::OsStrExt;
        let root = PathBuf::from(std::ffi::OsStr::from_bytes(&request.source));
        let dataset = request.dataset.parse().map_err(|_| {
            Error::new(
                ErrorKind::Corrupt,
                "use",
                format!("dataset id {}", request.dataset),
            )
        })?;
        Ok(Self {
            request: request.id,
            dataset,
            code: request.code,
            chunk_size,
            expires: request.expires,
            codec: Codec::new(request.code),
            encryption,
            reader: SourceReader::new(root.clone(), Arc::clone(&list), chunk_size),
            root,
            list,
            stripes: Mutex::default(),
            digests: Mutex::new(
                known
                    .into_iter()
                    .map(|record| (record.chunk, record.digests))
                    .collect(),
            ),
        })
    }

    /// Reads the chunk unless its stripe is still in memory, and gives out one fragment of it.
    ///
    /// # Errors
    /// The source's, or [`ErrorKind::Changed`] when the chunk has not the digest it had before.
    pub(crate) async fn fragment(
        self: &Arc<Self>,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Result<(Fragment, Arc<OnceCell<Stripe>>)> {
        let cell = self.cell(chunk);
        let stripe = cell
            .get_or_try_init(|| async {
                let sealed = Arc::clone(self);
                tokio::task::spawn_blocking(move || sealed.read_stripe(chunk))
                    .await
                    .map_err(|cause| {
                        Error::new(ErrorKind::Cancelled, "read", format!("chunk {chunk}"))
                            .cause(cause.to_string())
                    })?
            })
            .await?;
        let mut digests = vec![stripe.chunk_digest];
        digests.extend_from_slice(&stripe.digests);
        digests.extend(stripe.content_digest);
        let record = ChunkRecord {
            request: self.request,
            chunk,
            digests,
        };
        self.check_unchanged(&record)?;
        let (bytes, digest) = self.cut(stripe, chunk, fragment).ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "send",
                format!("fragment {fragment} of {chunk}"),
            )
        })?;
        Ok((
            Fragment {
                bytes,
                digest,
                record,
            },
            Arc::clone(&cell),
        ))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ChunkIndex, Vec<Digest>>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody read a chunk, so that its digests are known.
    pub(crate) fn is_read(&self, chunk: ChunkIndex) -> bool {
        self.known().contains_key(&chunk)
    }

    /// Chunks nobody read yet.
    pub(crate) fn unread(&self) -> Vec<ChunkIndex> {
        let chunks = Bytes::new(self.list.bytes).pieces(self.chunk_size);
        let known = self.known();
        let all = (0..u32::try_from(chunks).unwrap_or(u32::MAX)).map(ChunkIndex::new);
        all.filter(|chunk| !known.contains_key(chunk)).collect()
    }

    /// The digests of whole chunks that were read, from `from` on, `most` of them at most.
    pub(crate) fn digests_from(&self, from: ChunkIndex, most: usize) -> Vec<(ChunkIndex, Digest)> {
        let known = self.known();
        let mut all: Vec<(ChunkIndex, Digest)> = known
            .iter()
            .filter(|(chunk, _)| **chunk >= from)
            .filter_map(|(chunk, digests)| Some((*chunk, *digests.first()?)))
            .collect();
        all.sort_unstable();
        all.truncate(most);
        all
    }

    fn cut(
        &self,
        stripe: &Stripe,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Option<(bytes::Bytes, Digest)> {
        if fragment == FragmentIndex::WHOLE {
            let data = &stripe.fragments[..usize::from(self.code.data())];
            let mut whole = data.concat();
            whole.truncate(self.stored_bytes(chunk));
            return Some((whole.into(), stripe.chunk_digest));
        }
        let place = usize::from(fragment.get());
        Some((
            stripe.fragments.get(place)?.clone(),
            *stripe.digests.get(place)?,
        ))
    }

    /// Bytes of a chunk as depots store it.
    fn stored_bytes(&self, chunk: ChunkIndex) -> usize {
        let bytes = self.list.chunk_bytes(chunk.get(), self.chunk_size);
        match self.encryption {
            Encryption::None => bytes,
            Encryption::With(_) | Encryption::Over => {
                bytes + usize::try_from(TAG_BYTES.get()).unwrap_or(usize::MAX)
            }
        }
    }

    fn cell(&self, chunk: ChunkIndex) -> Arc<OnceCell<Stripe>> {
        let mut stripes = self.stripes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = stripes.get(&chunk).and_then(Weak::upgrade) {
            return cell;
        }
        stripes.retain(|_, cell| cell.strong_count() > 0);
        let cell = Arc::new(OnceCell::new());
        stripes.insert(chunk, Arc::downgrade(&cell));
        cell
    }

    fn read_stripe(&self, chunk: ChunkIndex) -> Result<Stripe> {
        let failed = |kind, operation| Error::new(kind, operation, format!("chunk {chunk}"));
        let cipher = match &self.encryption {
            Encryption::None => None,
            Encryption::With(cipher) => Some(cipher),
            Encryption::Over => {
                return Err(failed(ErrorKind::PermissionDenied, "encrypt")
                    .at(Locus::Source)
                    .cause("the key of its dataset is gone"));
            }
        };
        let size = self.list.chunk_bytes(chunk.get(), self.chunk_size);
        let mut buffer = Vec::with_capacity(size + SPARE_BYTES);
        self.reader.read_chunk(chunk.get(), &mut buffer)?;
        encode_stripe(&self.codec, cipher, chunk.get(), buffer)
            .map_err(|cause| failed(ErrorKind::Other, "encode").cause(cause))
    }

    fn check_unchanged(&self, record: &ChunkRecord) -> Result<()> {
        let mut digests = self.known();
        let known = digests
            .entry(record.chunk)
            .or_insert_with(|| record.digests.clone());
        if *known == record.digests {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Changed,
            "send",
            format!("chunk {}", record.chunk),
        )
        .at(Locus::Source)
        .cause("its source changed since it was first read"))
    }
}
