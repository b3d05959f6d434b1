//! Sealed dataset on its way out: read once, encoded once, the same bytes at every try.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use posthaste_endpoint::{Actor, Error, ErrorKind, Locus, Result};
use posthaste_types::{Bytes, ChunkIndex, Code, Digest, FragmentIndex, TAG_BYTES, Timestamp};
use tokio::sync::OnceCell;

use crate::{
    code::Codec,
    dataset::{DatasetId, FileFault, FileList, SourceReader},
    envelope::Cipher,
    stripe::{SPARE_BYTES, Stripe, digest_of, encode_stripe},
};

/// Properties of a sealed dataset beside its files.
#[derive(Debug)]
pub struct Seal {
    /// Name at depots.
    pub dataset: DatasetId,
    /// Folder of its files.
    pub root: PathBuf,
    /// Code of its chunks.
    pub code: Code,
    /// Length of each chunk.
    pub chunk_size: Bytes,
    /// Time until which depots keep it.
    pub expires: Timestamp,
    /// Encryption of chunks before they are coded.
    pub encryption: Encryption,
    /// Actor as whom its files are read.
    pub actor: Actor,
}

/// Sealed dataset whose chunks are read.
pub struct Sealed {
    seal: Seal,
    list: Arc<FileList>,
    codec: Codec,
    reader: SourceReader,
    /// Stripes that a send still holds: fragments of one chunk sent together are read together.
    stripes: Mutex<HashMap<ChunkIndex, Weak<OnceCell<Stripe>>>>,
    /// Digests of every chunk read before, so that a changed source is noticed.
    digests: Mutex<HashMap<ChunkIndex, Vec<Digest>>>,
    /// New digests of chunks that changed because a file was left out, until they are noted.
    renewals: Mutex<HashMap<ChunkIndex, Vec<Digest>>>,
    /// Number of failed reads of a chunk that were attributed to a file left out meanwhile.
    excused: Mutex<HashMap<ChunkIndex, u32>>,
    /// Last fault found in its source.
    trouble: Mutex<Option<String>>,
}

/// Encryption of chunks before they are coded.
#[derive(Debug)]
pub enum Encryption {
    /// Nothing.
    None,
    /// Encrypted.
    With(Cipher),
    /// Formerly encrypted, and the key is gone: no chunk can be read any more.
    Over,
}

/// Maximum of excused reads for one chunk: if reads fail beyond that, the fault is another.
const EXCUSES_MAX: u32 = 8;

/// A fragment ready to be sent.
pub struct Fragment {
    /// Bytes to send.
    pub bytes: bytes::Bytes,
    /// Its digest.
    pub digest: Digest,
    /// Digests of its chunk: of the whole, of each fragment and, if it is encrypted, of its
    /// content.
    pub digests: Vec<Digest>,
}

impl Sealed {
    /// Opens it; `known` are the digests of chunks that were read before.
    #[must_use]
    pub fn new(
        seal: Seal,
        list: Arc<FileList>,
        known: impl IntoIterator<Item = (ChunkIndex, Vec<Digest>)>,
    ) -> Self {
        Self {
            codec: Codec::new(seal.code),
            reader: SourceReader::new(seal.root.clone(), Arc::clone(&list), seal.chunk_size),
            list,
            stripes: Mutex::default(),
            digests: Mutex::new(known.into_iter().collect()),
            renewals: Mutex::default(),
            excused: Mutex::default(),
            trouble: Mutex::default(),
            seal,
        }
    }

    /// Returns the seal.
    #[must_use]
    pub fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Its files.
    #[must_use]
    pub fn list(&self) -> &Arc<FileList> {
        &self.list
    }

    /// Reads the chunk unless its stripe is still in memory, and returns one fragment of it.
    ///
    /// # Errors
    /// Errors of the source, or [`ErrorKind::Changed`] if the chunk has not the digest it had
    /// before.
    pub async fn fragment(
        self: &Arc<Self>,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Result<(Fragment, Arc<OnceCell<Stripe>>)> {
        let cut = self.cut_fragment(chunk, fragment).await;
        cut.inspect_err(|error| self.note(error))
    }

    /// Returns the last fault found in its source, for people.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.trouble_book().clone()
    }

    fn trouble_book(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, error: &Error) {
        if error.locus() == Locus::Source {
            *self.trouble_book() = Some(error.to_string());
        }
    }

    async fn cut_fragment(
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
        let unchanged = self.check_unchanged(chunk, &digests);
        unchanged.inspect_err(|_| {
            if self.reader.lacks_some(chunk.get()) {
                self.renewals().insert(chunk, digests.clone());
            }
        })?;
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
                digests,
            },
            Arc::clone(&cell),
        ))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ChunkIndex, Vec<Digest>>> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the files of a chunk that were at fault in its last read and were not left out.
    #[must_use]
    pub fn faults(&self, chunk: ChunkIndex) -> Vec<FileFault> {
        self.reader.faults(chunk.get())
    }

    /// Returns the first and the last chunk that hold something of a file.
    #[must_use]
    pub fn chunks_of(&self, file: usize) -> (ChunkIndex, ChunkIndex) {
        let entry = self.list.files.get(file);
        let (offset, size) = entry.map_or((0, 0), |entry| (entry.offset, entry.size));
        [offset, offset + size.saturating_sub(1)]
            .map(|byte| byte / self.seal.chunk_size.get().max(1))
            .map(|chunk| ChunkIndex::new(u32::try_from(chunk).unwrap_or(u32::MAX)))
            .into()
    }

    /// Reads a file no more.
    pub fn leave_out(&self, file: usize) {
        self.reader.leave_out(file);
    }

    /// Returns whether a chunk holds something of a file that was left out.
    #[must_use]
    pub fn lacks_some(&self, chunk: ChunkIndex) -> bool {
        self.reader.lacks_some(chunk.get())
    }

    /// Returns whether a failed read of a chunk deserves a retry, because one of its files was left
    /// out. The number of retries per chunk is limited.
    #[must_use]
    pub fn excuses(&self, chunk: ChunkIndex) -> bool {
        if !self.lacks_some(chunk) {
            return false;
        }
        let mut excused = self.excused.lock().unwrap_or_else(PoisonError::into_inner);
        let count = excused.entry(chunk).or_default();
        *count = count.saturating_add(1);
        *count <= EXCUSES_MAX
    }

    /// Returns how many files were left out.
    #[must_use]
    pub fn left_out(&self) -> usize {
        self.reader.left_out()
    }

    /// Returns whether a chunk was found changed since a file was left out.
    #[must_use]
    pub fn is_renewed(&self, chunk: ChunkIndex) -> bool {
        self.renewals().contains_key(&chunk)
    }

    /// Accepts a chunk as it was in its last read. Returns its digests as they are now.
    pub fn renew(&self, chunk: ChunkIndex) -> Option<Vec<Digest>> {
        let digests = self.renewals().remove(&chunk)?;
        self.known().insert(chunk, digests.clone());
        Some(digests)
    }

    fn renewals(&self) -> MutexGuard<'_, HashMap<ChunkIndex, Vec<Digest>>> {
        self.renewals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the digests of a chunk that somebody read.
    #[must_use]
    pub fn digests_of(&self, chunk: ChunkIndex) -> Option<Vec<Digest>> {
        self.known().get(&chunk).cloned()
    }

    /// Returns whether somebody read a chunk, so that its digests are known.
    #[must_use]
    pub fn is_read(&self, chunk: ChunkIndex) -> bool {
        self.known().contains_key(&chunk)
    }

    /// Returns the chunks that nobody read yet.
    #[must_use]
    pub fn unread(&self) -> Vec<ChunkIndex> {
        let chunks = Bytes::new(self.list.bytes).pieces(self.seal.chunk_size);
        let known = self.known();
        let all = (0..u32::try_from(chunks).unwrap_or(u32::MAX)).map(ChunkIndex::new);
        all.filter(|chunk| !known.contains_key(chunk)).collect()
    }

    /// Returns the digests of whole chunks that were read, from `from` on, `most` of them at most.
    #[must_use]
    pub fn digests_from(&self, from: ChunkIndex, most: usize) -> Vec<(ChunkIndex, Digest)> {
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
            let data = &stripe.fragments[..usize::from(self.seal.code.data())];
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

    /// Returns the bytes of a fragment.
    #[must_use]
    pub fn fragment_bytes(&self, chunk: ChunkIndex, fragment: FragmentIndex) -> Bytes {
        let whole = self.stored_bytes(chunk);
        let bytes = if fragment == FragmentIndex::WHOLE {
            whole
        } else {
            whole.div_ceil(self.seal.code.data().into())
        };
        Bytes::new(bytes as u64)
    }

    /// Returns the number of digests of a chunk: of the whole, of each fragment and, if it is
    /// encrypted, of its content.
    #[must_use]
    pub fn digests_expected(&self) -> usize {
        let is_encrypted = !matches!(self.seal.encryption, Encryption::None);
        1 + usize::from(self.seal.code.total()) + usize::from(is_encrypted)
    }

    /// Returns the bytes of a chunk as depots store it.
    fn stored_bytes(&self, chunk: ChunkIndex) -> usize {
        let bytes = self.list.chunk_bytes(chunk.get(), self.seal.chunk_size);
        match self.seal.encryption {
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
        let cipher = match &self.seal.encryption {
            Encryption::None => None,
            Encryption::With(cipher) => Some(cipher),
            Encryption::Over => return Err(key_is_gone(chunk)),
        };
        let size = self.list.chunk_bytes(chunk.get(), self.seal.chunk_size);
        let mut buffer = Vec::with_capacity(size + SPARE_BYTES);
        let read = || self.reader.read_chunk(chunk.get(), &mut buffer);
        self.seal.actor.run(read)?;
        encode_stripe(&self.codec, cipher, chunk.get(), buffer)
            .map_err(|cause| failed(ErrorKind::Other, "encode").cause(cause))
    }

    /// Names the files that have bytes in a chunk, the first of them.
    fn files_of(&self, chunk: ChunkIndex) -> String {
        const SHOWN_MAX: usize = 3;
        let extents = self.list.extents(chunk.get(), self.seal.chunk_size);
        let mut names: Vec<String> = Vec::new();
        for extent in extents {
            if names.len() == SHOWN_MAX {
                names.push("…".into());
                break;
            }
            let file = &self.list.files[extent.file];
            names.push(file.below(&self.seal.root).display().to_string());
        }
        names.join(", ")
    }

    /// Checks that a chunk that was read here or elsewhere is what it was before.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if it is not.
    pub fn check_unchanged(&self, chunk: ChunkIndex, digests: &[Digest]) -> Result<()> {
        let mut known = self.known();
        let before = known.entry(chunk).or_insert_with(|| digests.to_vec());
        if *before == digests {
            return Ok(());
        }
        drop(known);
        let error = self.changed("send", chunk);
        self.note(&error);
        Err(error)
    }

    fn changed(&self, operation: &'static str, chunk: ChunkIndex) -> Error {
        Error::new(ErrorKind::Changed, operation, self.files_of(chunk))
            .at(Locus::Source)
            .cause("one of them changed since it was first read")
    }

    /// Reads everything that was read before once more, and compares it. Chunks with a file that is
    /// gone are passed over. Blocking; it reads with the rights of the calling thread.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] if a chunk is not what was read before; those of reading, and
    /// [`ErrorKind::PermissionDenied`] if the key of an encrypted dataset is gone.
    pub fn compare(&self) -> Result<()> {
        let known: BTreeMap<_, _> = self.known().clone().into_iter().collect();
        let mut buffer = Vec::new();
        for (chunk, digests) in known {
            match self.reader.read_chunk(chunk.get(), &mut buffer) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read?,
            }
            let is_same = match &self.seal.encryption {
                Encryption::None => digests.first() == Some(&digest_of(&buffer)),
                Encryption::With(cipher) => digests.last() == Some(&cipher.digest(&buffer)),
                Encryption::Over => return Err(key_is_gone(chunk)),
            };
            if !is_same {
                return Err(self.changed("release", chunk));
            }
        }
        Ok(())
    }
}

fn key_is_gone(chunk: ChunkIndex) -> Error {
    Error::new(
        ErrorKind::PermissionDenied,
        "encrypt",
        format!("chunk {chunk}"),
    )
    .at(Locus::Source)
    .cause("the key of its dataset is gone")
}
