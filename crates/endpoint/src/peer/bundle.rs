//! Many small files in one request.

use std::{collections::VecDeque, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join_all;
use posthaste_types::Record;

use super::{
    body,
    frame::{Piece, Pieces},
    remote::{Answer, Remote},
    wire::{
        BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX, BUNDLE_NAMES_BYTES_MAX, Done, Fetch, Fetched,
        Operation, Outcomes, Store, Stored,
    },
};
use crate::{
    Error, ErrorKind, Locus, Result,
    checksum::Summer,
    endpoint::{Entry, Parcel, Whole},
};

/// Size below which files are gathered with their records, so that one write call carries many;
/// larger ones are passed on as they are.
const GATHERED_BYTES_MAX: usize = 32 << 10;

/// Bytes of a record about a file beside its name and origin.
const RECORD_BYTES: u64 = 96;

/// Reads small files; one result each.
pub(super) async fn get_all(
    remote: &Arc<Remote>,
    wanted: &[(Vec<u8>, Entry)],
    share: u64,
) -> Vec<Result<Whole>> {
    let sizes = wanted
        .iter()
        .map(|(path, entry)| (entry.size, path.len() as u64 + RECORD_BYTES));
    let mut rest = wanted;
    let bundles = bundles(sizes, share).into_iter().map(|count| {
        let (bundle, after) = rest.split_at(count);
        rest = after;
        fetch(remote, bundle)
    });
    let bundles: Vec<_> = bundles.collect();
    join_all(bundles).await.into_iter().flatten().collect()
}

/// Stores small files; one result each.
pub(super) async fn put_all(
    remote: &Arc<Remote>,
    parcels: Vec<Parcel>,
    share: u64,
) -> Vec<Result<()>> {
    let sizes = parcels.iter().map(|parcel| {
        let names = parcel.path.len() + parcel.spec.origin.len();
        (parcel.spec.size, names as u64 + RECORD_BYTES)
    });
    let counts = bundles(sizes, share);
    let mut parcels = parcels.into_iter();
    let bundles: Vec<_> = counts
        .into_iter()
        .map(|count| store(remote, parcels.by_ref().take(count).collect()))
        .collect();
    join_all(bundles).await.into_iter().flatten().collect()
}

/// Returns the one result of a bundle of one.
pub(super) fn only<T>(results: Vec<Result<T>>, shown: impl FnOnce() -> String) -> Result<T> {
    results
        .into_iter()
        .next()
        .unwrap_or_else(|| Err(Error::new(ErrorKind::Other, "copy", shown()).at(Locus::Network)))
}

/// Returns how many files each request carries: about `share` bytes, and never more than a bundle
/// may.
fn bundles(sizes: impl Iterator<Item = (u64, u64)>, share: u64) -> Vec<usize> {
    let share = share.min(BUNDLE_BYTES_MAX);
    let (mut counts, mut count, mut bytes, mut names) = (Vec::new(), 0, 0, 0);
    for (size, name) in sizes {
        let is_full = bytes + size > share
            || names + name > BUNDLE_NAMES_BYTES_MAX
            || count == BUNDLE_FILES_MAX;
        if count > 0 && is_full {
            counts.push(count);
            (count, bytes, names) = (0, 0, 0);
        }
        count += 1;
        bytes += size;
        names += name;
    }
    if count > 0 {
        counts.push(count);
    }
    counts
}

/// Returns one failure for every file of a bundle.
fn all_failed<T>(
    remote: &Remote,
    error: &Error,
    paths: impl Iterator<Item = Vec<u8>>,
) -> Vec<Result<T>> {
    let refusal = super::wire::Refusal::of(error);
    paths
        .map(|path| {
            let error = refusal
                .clone()
                .into_error(error.operation(), remote.show(&path))
                .at(error.locus());
            Err(error)
        })
        .collect()
}

async fn fetch(remote: &Arc<Remote>, wanted: &[(Vec<u8>, Entry)]) -> Vec<Result<Whole>> {
    let paths = || wanted.iter().map(|(path, _)| path.clone());
    let message = Fetch {
        paths: paths().map(|path| remote.name(&path)).collect(),
    };
    let first = wanted.first().map_or(&[][..], |(path, _)| path);
    let fetched = async {
        let mut answer = remote.begin(Operation::Fetch, first, &message).await?;
        let mut unpacking = Unpacking::default();
        let mut hasher = blake3::Hasher::new();
        loop {
            match answer.next().await? {
                Some(Piece::Data(bytes)) => {
                    hasher.update(&bytes);
                    unpacking.add(&answer, bytes, wanted.len())?;
                }
                Some(Piece::Digest(digest)) => {
                    if digest != *hasher.finalize().as_bytes() {
                        return Err(answer.corrupt());
                    }
                    if unpacking.found.len() != wanted.len() {
                        return Err(answer.nonsense("files are missing in the answer"));
                    }
                    answer.end().await?;
                    return Ok(unpacking.found);
                }
                Some(Piece::Message(bytes)) => {
                    answer.read::<Done>(&bytes)?;
                    return Err(answer.nonsense("the answer has no files"));
                }
                None => return Err(answer.nonsense("the answer ended early")),
            }
        }
    };
    match fetched.await {
        Ok(found) => found
            .into_iter()
            .zip(paths())
            .map(|(found, path)| {
                found.map_err(|refusal| remote.refused(Operation::Fetch, &path, refusal))
            })
            .collect(),
        Err(error) => all_failed(remote, &error, paths()),
    }
}

/// Extraction of small files from the data of an answer, without copying them.
#[derive(Default)]
struct Unpacking {
    pieces: Pieces,
    /// File whose bytes arrive now.
    entry: Option<Entry>,
    /// Complete file that is not confirmed yet.
    whole: Option<Whole>,
    found: Vec<Result<Whole, super::wire::Refusal>>,
}

impl Unpacking {
    fn add(&mut self, answer: &Answer, bytes: Bytes, wanted: usize) -> Result<()> {
        self.pieces.push(bytes);
        loop {
            if let Some(entry) = self.entry.take() {
                let len = usize::try_from(entry.size).unwrap_or(usize::MAX);
                let Some(data) = self.pieces.take(len) else {
                    self.entry = Some(entry);
                    return Ok(());
                };
                let mut summer = Summer::default();
                data.iter().for_each(|bytes| summer.add(bytes));
                self.whole = Some(Whole {
                    entry,
                    data,
                    checksum: summer.sum(),
                });
            }
            let Some(record) = self.take_record(answer)? else {
                return Ok(());
            };
            match (record, self.whole.take()) {
                (Fetched::Head { entry }, None) if entry.size <= BUNDLE_BYTES_MAX => {
                    self.entry = Some(entry);
                }
                (Fetched::Confirmed, Some(whole)) => self.found.push(Ok(whole)),
                (Fetched::Refused { refusal }, _) => self.found.push(Err(refusal)),
                (Fetched::Head { .. } | Fetched::Confirmed, _) => {
                    return Err(answer.nonsense("the files of the answer are out of order"));
                }
            }
            if self.found.len() > wanted {
                return Err(answer.nonsense("the answer has more files than asked for"));
            }
        }
    }

    fn take_record(&mut self, answer: &Answer) -> Result<Option<Fetched>> {
        let bytes = match self.pieces.take_record() {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(None),
            Err(broken) => return Err(answer.nonsense(broken)),
        };
        let record = Fetched::from_bytes(&bytes);
        record.map(Some).map_err(|cause| answer.nonsense(cause))
    }
}

async fn store(remote: &Arc<Remote>, parcels: Vec<Parcel>) -> Vec<Result<()>> {
    let paths: Vec<Vec<u8>> = parcels.iter().map(|parcel| parcel.path.clone()).collect();
    let stored = async {
        let pieces = pack(remote, parcels)?;
        let first = paths.first().map_or(&[][..], Vec::as_slice);
        let begun = remote.begin_whole(Operation::Store, first, pieces);
        let mut answer = begun.await?;
        let outcomes: Outcomes<Done> = answer.message().await?;
        if outcomes.0.len() != paths.len() {
            return Err(answer.nonsense("files are missing in the answer"));
        }
        answer.end().await?;
        Ok(outcomes.0)
    };
    match stored.await {
        Ok(outcomes) => outcomes
            .into_iter()
            .zip(&paths)
            .map(|(outcome, path)| match outcome {
                Ok(Done) => Ok(()),
                Err(refusal) => Err(remote.refused(Operation::Store, path, refusal)),
            })
            .collect(),
        Err(error) => all_failed(remote, &error, paths.into_iter()),
    }
}

/// Builds the body that stores `parcels`.
fn pack(remote: &Remote, parcels: Vec<Parcel>) -> Result<VecDeque<Bytes>> {
    let mut packing = Packing::default();
    let count = u32::try_from(parcels.len()).unwrap_or(u32::MAX);
    for parcel in parcels {
        let len: u64 = parcel.data.iter().map(|bytes| bytes.len() as u64).sum();
        if len != parcel.spec.size {
            return Err(Error::new(ErrorKind::Changed, "read", &*parcel.spec.origin)
                .cause("it has another size than it had"));
        }
        let record = Stored {
            path: remote.name(&parcel.path),
            spec: parcel.spec,
            sum: parcel.sum,
        };
        packing.add_record(&record);
        parcel.data.into_iter().for_each(|bytes| packing.add(bytes));
    }
    packing.flush();
    let message = Store {
        count,
        bytes: packing.len,
        flush: remote.flush,
    };
    let mut pieces = packing.pieces;
    pieces.push_front(body::message(&message.to_bytes()));
    let digest = packing.hasher.finalize();
    pieces.push_back(Bytes::copy_from_slice(digest.as_bytes()));
    Ok(pieces)
}

#[derive(Default)]
struct Packing {
    pieces: VecDeque<Bytes>,
    gathered: BytesMut,
    hasher: blake3::Hasher,
    len: u64,
}

impl Packing {
    fn add_record(&mut self, record: &Stored) {
        let bytes = record.to_bytes();
        self.gathered
            .put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.gathered.extend_from_slice(&bytes);
    }

    fn add(&mut self, bytes: Bytes) {
        if bytes.len() <= GATHERED_BYTES_MAX {
            self.gathered.extend_from_slice(&bytes);
            return;
        }
        self.flush();
        self.push(bytes);
    }

    fn flush(&mut self) {
        let gathered = self.gathered.split().freeze();
        if !gathered.is_empty() {
            self.push(gathered);
        }
    }

    fn push(&mut self, bytes: Bytes) {
        self.hasher.update(&bytes);
        self.len += bytes.len() as u64;
        self.pieces.push_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_hold_what_they_may_and_nothing_is_left_out() {
        let counts = |sizes: &[u64], share| bundles(sizes.iter().map(|&size| (size, 10)), share);
        assert_eq!(counts(&[], 100), [0; 0]);
        assert_eq!(counts(&[50, 50, 50], 100), [2, 1]);
        assert_eq!(counts(&[500, 1, 1], 100), [1, 2], "a large one goes alone");
        assert_eq!(counts(&[0; 5000], 100), [4096, 904]);
        let long_names = bundles(std::iter::repeat_n((1, 1 << 20), 5), 1 << 20);
        assert_eq!(long_names, [2, 2, 1]);
    }
}
