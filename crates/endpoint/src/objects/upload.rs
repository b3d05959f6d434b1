//! Uploads in segments that a later run can continue, as far as all stores agree.
//!
//! A ledger under the state folder notes the store's name for the upload, and each segment's
//! checksum and receipt. A later run asks the store what it still holds, and keeps that. If the
//! source has changed since, the old upload is discarded.

use std::{
    collections::BTreeMap,
    future::Future,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    Doubt, RawStore, Record, check_held, is_kept_as, may_be_done,
    whole::{is_refused, overtaken},
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result,
    cut::{self, Cut},
    endpoint::{Boxed, ByteStream, FileSpec, LentSegment, Writer},
    ledger::{Head, Kept, Ledger},
};

/// Ledger entry for a store that has no name for an unfinished upload.
const NO_TOKEN: &str = "-";

/// Knowledge of an object's length before it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// Length known: [`FileSpec::size`].
    Known,
    /// Length unknown.
    Open,
}

impl Length {
    /// Returns how an object is cut under a store's limits, and the specification under which it is
    /// continued.
    fn cut(self, spec: &FileSpec, limits: &'static cut::Limits) -> (Cut, FileSpec) {
        match self {
            Self::Known => (Cut::even(spec.size, limits), spec.clone()),
            Self::Open => (Cut::Growing(limits), spec.open_ended()),
        }
    }
}

/// Upload at a particular store. Segments are numbered from 0.
pub(crate) trait Segments: Send + Sync + Sized + 'static {
    type Store: RawStore;
    /// Facts about a segment that the store holds.
    type Stored: Clone + Send + Sync;

    /// Returns the store's limits.
    fn limits() -> &'static cut::Limits;

    /// Restores the upload that a ledger calls `token`.
    fn at(store: &Arc<Self::Store>, key: &str, spec: &FileSpec, token: &str) -> Self;

    /// Starts an upload.
    fn begin(
        store: &Arc<Self::Store>,
        key: &str,
        spec: &FileSpec,
    ) -> impl Future<Output = Result<Self>> + Send {
        async { Ok(Self::at(store, key, spec, NO_TOKEN)) }
    }

    /// Returns the `noted` segments that the store still holds; `None` if it does not know the
    /// upload any more.
    fn held(&self, noted: Noted) -> impl Future<Output = Result<Option<Vec<Kept>>>> + Send;

    /// Returns its form in ledgers.
    fn token(&self) -> String {
        NO_TOKEN.to_owned()
    }

    /// Returns a segment's form in ledgers, besides its checksum.
    fn receipt(stored: &Self::Stored) -> String;

    /// Restores a segment from a ledger.
    fn noted(kept: &Kept) -> Option<Self::Stored>;

    /// Returns the address of the object for messages.
    fn shown(&self) -> String;

    /// Stores `len` bytes as segment `index`.
    fn send(
        &self,
        index: u64,
        len: u64,
        body: ByteStream,
    ) -> impl Future<Output = Result<(Checksum, Self::Stored)>> + Send;

    /// Assembles the object from these segments, which come in order and must add up to `size`
    /// bytes with the checksum `whole`. If `only_new`, an existing object is not replaced.
    fn complete(
        &self,
        segments: Vec<Segment<Self::Stored>>,
        sums: (u64, Checksum),
        only_new: bool,
    ) -> impl Future<Output = Result<(), Incomplete>> + Send;

    /// Returns whether the object of `head` has the bytes of these segments, whose checksum is
    /// `whole`.
    fn is_made_of(
        head: &<Self::Store as RawStore>::Head,
        segments: &[Segment<Self::Stored>],
        whole: Checksum,
    ) -> bool;

    /// Removes the leftovers of a completed upload.
    fn clean_up(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Removes the stored segments.
    fn discard(&self) -> impl Future<Output = ()> + Send;
}

/// Segment that the store holds.
pub(crate) struct Segment<T> {
    pub index: u64,
    pub start: u64,
    pub len: u64,
    pub stored: T,
}

/// Reason why an object could not be completed.
pub(crate) struct Incomplete {
    pub error: Error,
    /// True if the store does not know the upload any more: it must start again.
    pub is_gone: bool,
}

impl From<Error> for Incomplete {
    fn from(error: Error) -> Self {
        Self {
            error,
            is_gone: false,
        }
    }
}

/// Segments of an upload in a ledger.
pub(crate) struct Noted {
    kept: Vec<Kept>,
    cut: Cut,
}

impl Noted {
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns those that the store holds completely, as far as `size_of` reports.
    pub(crate) fn held(self, size_of: impl Fn(&Kept) -> Option<u64>) -> Vec<Kept> {
        let mut held = BTreeMap::new();
        for kept in self.kept {
            if size_of(&kept).is_some_and(|size| self.cut.allows(kept.index, size)) {
                held.insert(kept.index, kept);
            }
        }
        held.into_values().collect()
    }
}

/// Object being uploaded.
pub(crate) struct Upload<P: Segments> {
    store: Arc<P::Store>,
    key: String,
    spec: FileSpec,
    segments: P,
    cut: Cut,
    stored: Mutex<BTreeMap<u64, P::Stored>>,
    kept: Vec<(u64, Checksum)>,
    ledger: Ledger,
    only_new: bool,
}

impl<P: Segments> Upload<P> {
    /// Continues the unfinished upload of the same source, or starts one.
    pub(super) async fn start(
        store: &Arc<P::Store>,
        key: &str,
        spec: &FileSpec,
        length: Length,
    ) -> Result<Self> {
        let (cut, spec) = length.cut(spec, P::limits());
        let record = Record::of(&**store, key, &spec.origin);
        let (identity, segment_size) = (spec.identity(), cut.segment());
        let mut resumed = None;
        if let Some((head, kept)) = record.load() {
            let old = P::at(store, key, &spec, &head.token);
            if head.identity == identity && head.segment_size == segment_size {
                let kept = old.held(Noted { kept, cut }).await?;
                resumed = kept.map(|kept| (old, kept));
            } else {
                old.discard().await;
            }
        }
        let (segments, kept) = match resumed {
            Some(resumed) => resumed,
            None => (P::begin(store, key, &spec).await?, Vec::new()),
        };
        let head = Head {
            identity,
            segment_size,
            token: segments.token(),
        };
        let ledger = record.start(&head, &kept)?;
        let stored = kept
            .iter()
            .filter_map(|kept| Some((kept.index, P::noted(kept)?)));
        Ok(Self {
            store: Arc::clone(store),
            key: key.to_owned(),
            stored: Mutex::new(stored.collect()),
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            spec,
            segments,
            cut,
            ledger,
            only_new: false,
        })
    }

    /// Sets whether an existing object is replaced.
    pub(super) fn replacing(self, replaces: bool) -> Self {
        Self {
            only_new: !replaces,
            ..self
        }
    }

    /// Sends a segment of an upload that another process began, and returns its checksum and its
    /// receipt.
    pub(super) async fn send_lent(
        store: &Arc<P::Store>,
        key: &str,
        spec: &FileSpec,
        segment: &LentSegment,
        body: ByteStream,
    ) -> Result<(Checksum, String)> {
        let len = segment.range.end.saturating_sub(segment.range.start);
        let upload = P::at(store, key, spec, &segment.token);
        let (sum, stored) = upload.send(segment.index, len, body).await?;
        Ok((sum, P::receipt(&stored)))
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, P::Stored>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation, self.segments.shown())
    }

    async fn write_segment(&self, index: u64, len: u64, body: ByteStream) -> Result<Checksum> {
        let segments_max = P::limits().segments_max;
        if index >= segments_max {
            return Err(self
                .fail(ErrorKind::Unsupported, "write")
                .cause(format!("it has more than {segments_max} segments"))
                .hint("say how long it is with --size")
                .at(Locus::Destination));
        }
        let (checksum, stored) = self.segments.send(index, len, body).await?;
        let kept = Kept {
            index,
            checksum,
            receipt: P::receipt(&stored),
        };
        self.note_segment(kept, stored)?;
        Ok(checksum)
    }

    /// Records a segment that the store holds.
    fn note_segment(&self, kept: Kept, stored: P::Stored) -> Result<()> {
        let noted = self.ledger.add(kept.index, kept.checksum, &kept.receipt);
        noted.map_err(|cause| {
            Error::io("note an unfinished upload of", self.segments.shown(), cause)
        })?;
        self.stored().insert(kept.index, stored);
        Ok(())
    }

    /// Returns the segments below `size`, in order.
    fn below(&self, size: u64) -> Vec<Segment<P::Stored>> {
        let stored = self.stored();
        let segments = stored.iter().map(|(&index, stored)| {
            let (start, next) = (self.cut.start(index), self.cut.start(index + 1));
            Segment {
                index,
                start,
                len: next.min(size).saturating_sub(start),
                stored: stored.clone(),
            }
        });
        segments.filter(|segment| segment.start < size).collect()
    }

    async fn complete(&self, size: u64, whole: Checksum) -> Result<()> {
        let completed = self.put_together(size, whole).await;
        let Err(Incomplete { error, is_gone }) = completed else {
            check_held(&*self.store, &self.key, &self.spec, size).await?;
            self.clean_up().await;
            return Ok(());
        };
        // An earlier request may have completed it, or this one with a lost answer.
        let is_refused = self.only_new && is_refused(&error);
        if (is_gone || is_refused || may_be_done(&error)) && self.is_published(size, whole).await {
            self.segments.discard().await;
            self.clean_up().await;
            return Ok(());
        }
        if is_gone {
            self.ledger.remove();
            return Err(error.hint("run the same command again"));
        }
        Err(if is_refused {
            overtaken(self.segments.shown())
        } else {
            error
        })
    }

    async fn put_together(&self, size: u64, whole: Checksum) -> Result<(), Incomplete> {
        let complete = |only_new| {
            self.segments
                .complete(self.below(size), (size, whole), only_new)
        };
        // Some stores ignore the condition.
        if self.only_new && self.store.head(&self.key, "look at").await?.is_some() {
            return Err(overtaken(self.segments.shown()).into());
        }
        match complete(self.only_new).await {
            Err(refused) if self.only_new && refused.error.kind() == ErrorKind::Unsupported => {
                complete(false).await
            }
            completed => completed,
        }
    }

    /// Removes leftovers, then the ledger, by which a later run finds what could not be removed.
    async fn clean_up(&self) {
        if self.segments.clean_up().await.is_ok() {
            self.ledger.remove();
        }
    }

    /// Removes the leftovers of a completed upload from `origin`.
    pub(super) async fn forget(store: &Arc<P::Store>, key: &str, origin: &str) {
        let record = Record::of(&**store, key, origin);
        let Some((head, _)) = record.load() else {
            return;
        };
        let spec = FileSpec {
            size: 0,
            mtime: None,
            mode: None,
            origin: origin.into(),
            version: None,
        };
        let segments = P::at(store, key, &spec, &head.token);
        segments.discard().await;
        if segments.clean_up().await.is_ok() {
            record.remove();
        }
    }

    /// Returns whether the object under the final name is the one that was sent.
    async fn is_published(&self, size: u64, whole: Checksum) -> bool {
        let Ok(Some(head)) = self.store.head(&self.key, "look at").await else {
            return false;
        };
        is_kept_as(&P::Store::entry(&head, Kind::File), &self.spec, size)
            && P::is_made_of(&head, &self.below(size), whole)
    }
}

impl<P: Segments> Writer for Upload<P> {
    fn segment_size(&self) -> u64 {
        self.cut.segment()
    }

    fn segment_start(&self, index: u64) -> u64 {
        self.cut.start(index)
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
        Box::pin(self.write_segment(index, range.end - range.start, body))
    }

    fn finish(&self, whole: Checksum) -> Boxed<'_, Result<()>> {
        match self.cut {
            Cut::Even { size, .. } => self.finish_at(size, whole),
            Cut::Growing(_) => Box::pin(async {
                let error = self.fail(ErrorKind::Invalid, "finish");
                Err(error.cause("nobody said where it ends"))
            }),
        }
    }

    fn finish_at(&self, size: u64, whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            self.complete(size, whole).await?;
            Doubt::of(&*self.store, &self.key).clear();
            Ok(())
        })
    }

    /// The store only vouches for what it keeps.
    fn settle(&self) -> Boxed<'_, Result<bool>> {
        Box::pin(async { Ok(true) })
    }

    fn note(&self) -> Option<String> {
        self.ledger.note()
    }

    fn lend(&self) -> Option<String> {
        Some(self.segments.token())
    }

    fn take(&self, index: u64, checksum: Checksum, receipt: &str) -> Result<()> {
        let kept = Kept {
            index,
            checksum,
            receipt: receipt.to_owned(),
        };
        let stored = P::noted(&kept).filter(|_| kept.can_be_noted());
        let stored = stored.ok_or_else(|| {
            self.fail(ErrorKind::Invalid, "take a segment of")
                .cause("its receipt is none")
        })?;
        self.note_segment(kept, stored)
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.segments.discard().await;
            self.ledger.remove();
        })
    }
}
