//! Copies with at least one remote end: each lane takes a file or a bundle of small ones at a time.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, Error, ErrorKind, Kind, Locus, Result, StoredSum, Summer, posix,
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Links, Notice,
    board::{Board, Hand},
    claims::clash,
    lane::{Shared, seen, spec_of},
    large,
    retry::retried,
    small::{self, Copied},
    walk::{There, Work},
};

/// Longest time that a file sent in one piece waits for a cap.
const WHOLE_WITHIN: Duration = Duration::from_secs(1);

/// Takes files until nothing more comes.
pub(super) async fn run(shared: &Arc<Shared>, board: &Board, lane: usize) {
    while let Some(hand) = board.take(lane).await {
        let done = hand.receipt();
        copy_hand(shared, hand).await;
        board.done(&done);
    }
}

async fn copy_hand(shared: &Arc<Shared>, hand: Hand) {
    // A stopped copy still empties the board, so that the walker is never stuck.
    if hand.bundled {
        if shared.may_start() {
            small::copy_bundle(shared, hand.works).await;
        }
        return;
    }
    stream::iter(hand.works)
        .for_each_concurrent(hand.at_once, |work| async move {
            if shared.may_start()
                && let Err(error) = copy_one(shared, &work).await
            {
                shared.failed(error);
            }
        })
        .await;
}

async fn copy_one(shared: &Arc<Shared>, work: &Work) -> Result<()> {
    let destination = &shared.destination.endpoint;
    let shown = destination.show(&work.to);
    if work.entry.kind == Kind::Link {
        return copy_link(shared, work, &shown).await;
    }
    let Some(entry) = needs_copy(shared, work, &shown).await? else {
        return Ok(());
    };
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(&shown));
        return Ok(());
    }
    let can = destination.capabilities();
    if can.file_bytes_max.is_some_and(|max| entry.size > max) {
        return Err(Error::new(ErrorKind::Unsupported, "write", shown)
            .cause("it is larger than the destination's largest file")
            .at(Locus::Destination));
    }
    let moving = Arc::new(shared.progress.start(shown.clone(), entry.size));
    if copy_within(shared, work, &entry).await? {
        moving.sent(entry.size);
        shared.progress.was_copied_there(entry.size);
    } else {
        // One end may accept a file whole that the other does not.
        let from = &work.source.place.endpoint;
        if entry.size > whole_max(&**destination).min(whole_max(&**from)) {
            let (copied, told) = large::copy(shared, work, &entry, &moving).await?;
            check_copy(shared, &work.to, copied, told).await?;
        } else {
            let copied = small::copy(shared, work, &entry, &moving).await?;
            check_copy(shared, &work.to, copied, None).await?;
        }
    }
    moving.arrived();
    shared.copied(&work.to, &shown);
    Ok(())
}

/// Returns the maximum bytes of a file that goes in one piece. Under a cap that is what the cap
/// allows in a second: a piece waits for all of that first, and longer waits would look like a
/// stall.
pub(super) fn whole_max(end: &dyn Endpoint) -> u64 {
    let rate = end.limits().and_then(|limits| limits.caps().rate_max);
    let in_a_second = rate.map_or(u64::MAX, |rate| rate.volume(WHOLE_WITHIN).get());
    end.capabilities().segment_size_min.min(in_a_second)
}

/// Returns the source entry, or `None` if the destination holds the file already.
pub(super) async fn needs_copy(
    shared: &Arc<Shared>,
    work: &Work,
    shown: &str,
) -> Result<Option<Entry>> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    let there = match &work.there {
        There::Nothing if !shared.looks_again() => None,
        There::Found(entry) => Some(entry.clone()),
        There::Ask | There::Nothing => {
            let there = retried(shared, || destination.stat(&work.to, false)).await;
            seen(&**destination, there)?
        }
    };
    let Some(mut there) = there else {
        return Ok(Some(work.entry.clone()));
    };
    refuse_other(shared, &there, shown)?;
    let mut entry = work.entry.clone();
    let is_asked = shared.options.update || entry.size == there.size;
    if is_asked && there.kind == Kind::File {
        if there.mtime.is_none() {
            let asked = retried(shared, || destination.stat(&work.to, false)).await?;
            there = asked.unwrap_or(there);
        }
        if entry.mtime.is_none() {
            let asked = retried(shared, || source.stat(&work.from, false)).await?;
            entry = asked.unwrap_or(entry);
        }
    }
    shared.learn_modes(&work.to, &entry, &there).await;
    let is_unchanged = shared.is_own(&work.to)
        && (shared.is_unchanged(work, &entry, &there)
            || shared.asks_clock(&entry, &there) && {
                let learning = || destination.learn_time_step_ns(&work.to);
                let step_ns = retried(shared, learning).await?;
                shared.is_unchanged_by(work, &entry, &there, step_ns)
            });
    if is_unchanged {
        if !shared.options.dry_run {
            let origin = source.show(&work.from);
            destination.forget_unfinished(&work.to, &origin).await;
        }
        shared.progress.was_unchanged(work.entry.size);
        (shared.options.on_notice)(&Notice::Unchanged(shown));
        return Ok(None);
    }
    if shared.must_stay(work, &entry, &there, shown).await? {
        return Ok(None);
    }
    Ok(Some(entry))
}

impl Shared {
    /// Returns whether the destination is looked at again right before a file is written. It is if
    /// the file must not replace anything and the destination does not enforce that itself.
    fn looks_again(&self) -> bool {
        let can = self.destination.endpoint.capabilities();
        !self.options.rules.replaces && !can.conditional_writes
    }

    /// Returns whether an existing file may be this copy's own, so that size and time tell whether
    /// it is unchanged. If nothing is to be replaced, somebody else's file may have the same size
    /// and age.
    pub(super) fn is_own(&self, to: &[u8]) -> bool {
        let written = self.options.written.as_ref();
        self.options.rules.replaces || written.is_none_or(|written| written.has(to))
    }

    /// Reports that a file arrived.
    pub(super) fn copied(&self, to: &[u8], shown: &str) {
        if let Some(written) = &self.options.written {
            written.note(to);
        }
        (self.options.on_notice)(&Notice::Copied(shown));
    }

    /// Returns whether the bytes `there` are those that were written before. Reports that to the
    /// caller.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if it differs and must not be replaced.
    pub(super) async fn must_stay(
        &self,
        work: &Work,
        source: &Entry,
        there: &Entry,
        shown: &str,
    ) -> Result<bool> {
        if self.options.rules.replaces {
            return Ok(false);
        }
        let ends = (&work.source.place.endpoint, &self.destination.endpoint);
        let is_same = there.kind == Kind::File
            && source.size == there.size
            && sum_at(&**ends.0, &work.from, source).await?
                == sum_at(&**ends.1, &work.to, there).await?;
        if !is_same {
            return Err(is_taken(shown));
        }
        if let Some(written) = &self.options.written {
            written.note(&work.to);
        }
        self.progress.was_unchanged(work.entry.size);
        (self.options.on_notice)(&Notice::Unchanged(shown));
        Ok(true)
    }
}

/// Returns the error that something has the name of a file that must not replace anything.
pub(super) fn is_taken(shown: &str) -> Error {
    let error = Error::new(ErrorKind::Conflict, "write", shown)
        .cause("something else got this name meanwhile")
        .hint("name a place where nothing is yet, or remove what is there");
    clash(error.at(Locus::Destination))
}

async fn sum_at(endpoint: &dyn Endpoint, path: &[u8], entry: &Entry) -> Result<Checksum> {
    let reader = endpoint.open(path, entry).await?;
    let mut body = reader.read(0..entry.size).await?;
    let mut summer = Summer::default();
    while let Some(bytes) = body.next().await {
        summer.add(&bytes?);
    }
    Ok(summer.sum())
}

/// Fails if something is at the destination that a file or a link must not replace.
fn refuse_other(shared: &Shared, there: &Entry, shown: &str) -> Result<()> {
    let (cause, hint) = match there.kind {
        Kind::Directory if shared.destination.endpoint.capabilities().directories => {
            ("a directory has that name", None)
        }
        Kind::Special => (
            "a device, a pipe or a socket is there",
            Some("name a file, or a directory that it may go into"),
        ),
        Kind::File | Kind::Directory | Kind::Link => return Ok(()),
    };
    let error = Error::new(ErrorKind::Conflict, "write", shown);
    let error = error.cause(cause).at(Locus::Destination);
    Err(match hint {
        Some(hint) => error.hint(hint),
        None => error,
    })
}

async fn copy_link(shared: &Arc<Shared>, work: &Work, shown: &str) -> Result<()> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    match shared.options.links {
        Links::Skip => {
            (shared.options.on_notice)(&Notice::LeftOut(&source.show(&work.from)));
            return Ok(());
        }
        Links::Follow => {
            // Where it may not be looked at, or points to itself, that is the reason.
            let looked = retried(shared, || source.stat(&work.from, true)).await;
            looked.map_err(|error| error.at(Locus::Source))?;
            return Err(points_nowhere(source.show(&work.from)));
        }
        Links::Keep => {}
    }
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(shown));
        return Ok(());
    }
    let target = retried(shared, || source.read_link(&work.from)).await?;
    let there = match &work.there {
        There::Nothing if !shared.looks_again() => None,
        There::Found(entry) => Some(entry.clone()),
        There::Ask | There::Nothing => destination.stat(&work.to, false).await?,
    };
    let is_link = there.as_ref().is_some_and(|there| there.kind == Kind::Link);
    if is_link
        && destination
            .read_link(&work.to)
            .await
            .is_ok_and(|there| there == target)
    {
        (shared.options.on_notice)(&Notice::Unchanged(shown));
        return Ok(());
    }
    if there.is_some() && !shared.options.rules.replaces {
        return Err(is_taken(shown));
    }
    let spec = spec_of(work, &work.entry);
    match retried(shared, || destination.make_link(&work.to, &target, &spec)).await {
        Ok(()) => shared.progress.made_link(),
        Err(error) if error.kind() == ErrorKind::Unsupported => shared.refused_link(&error, shown),
        Err(error) => return Err(error.at(Locus::Destination)),
    }
    Ok(())
}

/// Returns the error for a link that can't be followed.
pub(super) fn points_nowhere(shown: impl Into<String>) -> Error {
    Error::new(ErrorKind::NotFound, "follow", shown)
        .cause("the link points nowhere")
        .at(Locus::Source)
}

/// Lets the server copy the file itself if both ends are its own. Returns whether it did.
async fn copy_within(shared: &Arc<Shared>, work: &Work, entry: &Entry) -> Result<bool> {
    let source = &work.source.place.endpoint;
    let destination = &shared.destination.endpoint;
    let realm = source.realm();
    // To read back what was copied is to move it through here, so it may as well be summed.
    if realm.is_none() || realm != destination.realm() || shared.options.verify {
        return Ok(false);
    }
    let is_new = shared.options.rules.replaces || {
        let there = retried(shared, || destination.stat(&work.to, false)).await;
        seen(&**destination, there)?.is_none()
    };
    if !is_new {
        return Err(is_taken(&destination.show(&work.to)));
    }
    let from = source.locate(&work.from);
    let spec = spec_of(work, entry);
    match retried(shared, || destination.copy_within(&from, &work.to, &spec)).await {
        Ok(()) => Ok(true),
        // Large objects, other accounts, older servers: then the bytes go through here.
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads the copy back, if the user asked for that, and compares it with the bytes read and with
/// the source's own checksum.
pub(super) async fn check_copy(
    shared: &Shared,
    path: &[u8],
    (size, sum): Copied,
    told: Option<StoredSum>,
) -> Result<()> {
    if !shared.options.verify {
        return Ok(());
    }
    let destination = &shared.destination.endpoint;
    if let Some(local) = &shared.destination.local {
        let path = local.path(path);
        // A file that can't be opened is reported below.
        let _ = tokio::task::spawn_blocking(move || posix::drop_cached(&path)).await;
    }
    let found = retried(shared, || async {
        let there = destination.stat(path, false).await?;
        let there = there
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "verify", destination.show(path)))?;
        let reader = destination.open(path, &there).await?;
        let mut body = reader.read(0..size).await?;
        let mut summer = Summer::default();
        let mut theirs = told.map(StoredSum::summer);
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            if let Some(theirs) = &mut theirs {
                theirs.add(&bytes);
            }
        }
        // A longer file is not what was written either.
        let theirs = theirs.map(|theirs| theirs.sum());
        Ok(((there.size, summer.sum()), theirs))
    })
    .await
    .map_err(|error| error.at(Locus::Destination))?;
    let shown = || destination.show(path);
    match (told, found) {
        (_, (copied, _)) if copied != (size, sum) => Err(small::differs(shown(), sum, copied.1)),
        (Some(told), (_, Some(theirs))) => told.expect(theirs, &shown()),
        (None, _) | (_, (_, None)) => Ok(()),
    }
}

/// Borrows memory for `bytes` out of the copy's budget; a larger request counts as the whole
/// budget.
pub(super) async fn borrow_memory(shared: &Shared, bytes: u64) -> Option<OwnedSemaphorePermit> {
    let mebi = u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX);
    let permits = mebi.clamp(1, super::lane::BUFFERED_MIB_MAX);
    Arc::clone(&shared.buffers)
        .acquire_many_owned(permits)
        .await
        .ok()
}
