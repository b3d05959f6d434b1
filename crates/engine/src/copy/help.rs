//! Help of other processes that move some of a copy's bytes, if both ends are such that they can
//! reach them.
//!
//! They get whole files that are not tiny and segments of large ones. The copy does itself what
//! nobody does or could do, so it never relies on them.

use std::{ops::Range, sync::Arc};

use posthaste_endpoint::{Boxed, Checksum, Counter, Entry, FileSpec, LentSegment, Result, Writer};

use super::{
    cargo::Cargo,
    lane::{Shared, spec_of},
    progress::Moving,
    walk::Work,
};

/// Smallest file to hand over: for smaller ones that takes as long as copying.
const WHOLE_BYTES_MIN: u64 = 1 << 20;

/// Work for others: a whole file, or a segment of one.
#[derive(Debug, Clone)]
pub struct Errand {
    /// The file below its source.
    pub from: Vec<u8>,
    /// Entry of the file when it was listed or opened.
    pub entry: Entry,
    /// The file below the destination.
    pub to: Vec<u8>,
    /// Attributes to keep at the destination.
    pub spec: FileSpec,
    /// Segment to copy; the whole file if `None`.
    pub segment: Option<LentSegment>,
}

/// Outcome of a request for help.
#[derive(Debug)]
pub enum Helped {
    /// Copied, with this checksum; for a segment, also its receipt.
    Done(Checksum, String),
    /// Nobody will do it.
    Nobody,
    /// The process of this number failed.
    Failed(u64),
}

/// Source of help with a copy.
pub trait Help: Send + Sync {
    /// Returns whether anybody can be asked.
    fn is_there(&self) -> bool;

    /// Has another process do it; `moved` counts bytes as they go.
    fn carry<'a>(
        &'a self,
        errand: &'a Errand,
        moved: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Boxed<'a, Helped>;

    /// Notes that this process could do what number `who` could not.
    fn could_be_done(&self, who: u64);
}

/// Outcome of help: done by others, or to be done here, perhaps after somebody failed.
pub(super) enum Left {
    Done(Checksum),
    Here(Option<u64>),
}

impl Left {
    /// Notes that the work was done here.
    pub(super) fn was_done(&self, shared: &Shared) {
        if let (Self::Here(Some(who)), Some(help)) = (self, &shared.options.help) {
            help.could_be_done(*who);
        }
    }
}

/// Returns whether others may help now.
pub(super) fn is_there(shared: &Shared) -> bool {
    let help = shared.options.help.as_ref();
    help.is_some_and(|help| help.is_there())
}

/// Lets others copy a whole file.
pub(super) async fn whole(
    shared: &Arc<Shared>,
    work: &Work,
    entry: &Entry,
    moving: &Arc<Moving>,
) -> Left {
    if entry.size < WHOLE_BYTES_MIN {
        return Left::Here(None);
    }
    let errand = Errand {
        from: work.from.clone(),
        entry: entry.clone(),
        to: work.to.clone(),
        spec: spec_of(work, entry),
        segment: None,
    };
    match carry(shared, errand, moving, entry.size).await {
        Helped::Done(sum, _) => Left::Done(sum),
        Helped::Nobody => Left::Here(None),
        Helped::Failed(who) => Left::Here(Some(who)),
    }
}

/// Lets others write a segment beside `writer`, which then accepts it.
///
/// # Errors
/// The writer can't accept the segment.
pub(super) async fn segment(
    (shared, moving): (&Arc<Shared>, &Arc<Moving>),
    mut errand: Errand,
    writer: &dyn Writer,
    (index, range): (u64, Range<u64>),
) -> Result<Left> {
    let Some(token) = is_there(shared).then(|| writer.lend()).flatten() else {
        return Ok(Left::Here(None));
    };
    let bytes = range.end - range.start;
    errand.segment = Some(LentSegment {
        token,
        index,
        range,
    });
    match carry(shared, errand, moving, bytes).await {
        Helped::Done(sum, receipt) => {
            writer.take(index, sum, &receipt)?;
            Ok(Left::Done(sum))
        }
        Helped::Nobody => Ok(Left::Here(None)),
        Helped::Failed(who) => Ok(Left::Here(Some(who))),
    }
}

async fn carry(shared: &Arc<Shared>, errand: Errand, moving: &Arc<Moving>, bytes: u64) -> Helped {
    let Some(help) = shared.options.help.as_ref().filter(|help| help.is_there()) else {
        return Helped::Nobody;
    };
    shared.options.throttle.pass(bytes).await;
    let cargo = Cargo::of(moving, bytes);
    let moved = |bytes| cargo.left(bytes);
    let helping = help.carry(&errand, &moved);
    let arrived = |helped: &Helped| vec![matches!(helped, Helped::Done(..))];
    cargo.carry(helping, arrived).await
}
