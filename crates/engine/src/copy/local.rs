//! Copies between two local paths: blocking threads, one cache-sized block at a time, no queues
//! inside.
//!
//! If the file systems can share extents, they do. Otherwise each block is read, summed, written,
//! read back from the page cache and compared, all while it is in the processor's cache. That costs
//! little and finds what the kernel, the memory or a buggy file system broke. Holes are neither
//! read nor written.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use posthaste_endpoint::{
    Checksum, Error, ErrorKind, FileSpec, Kind, Locus, Result, Summer,
    posix::{self, BLOCK_BYTES, Draft, Place, Posix, SEGMENT_BYTES, SourceFile},
};
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    Links, Notice,
    lane::{Shared, spec_of},
    progress::Moving,
    remote::{is_taken, points_nowhere},
    small,
    walk::{There, Work},
};

/// Smallest file for which the file system is asked to share extents.
const CLONE_BYTES_MIN: u64 = 64 << 10;

/// Takes batches until the queue ends.
pub(super) fn run(shared: &Arc<Shared>, works: &Mutex<mpsc::Receiver<Vec<Work>>>) {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let next = works
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .blocking_recv();
        let Some(batch) = next else {
            return;
        };
        for work in batch {
            // A stopped copy still empties the queue, so that the walker is never stuck.
            if shared.may_start()
                && let Err(error) = copy_one(shared, &work, &mut block)
            {
                shared.failed(error);
            }
        }
    }
}

fn ends<'a>(shared: &'a Shared, work: &'a Work) -> Result<(&'a Posix, &'a Posix)> {
    work.source
        .place
        .local
        .as_ref()
        .zip(shared.destination.local.as_ref())
        .ok_or_else(|| Error::new(ErrorKind::Invalid, "copy locally", "a remote path"))
}

fn copy_one(shared: &Arc<Shared>, work: &Work, block: &mut [u8]) -> Result<()> {
    let (from, to) = ends(shared, work)?;
    let from = from.source(&work.from)?;
    let to = match to.place(&work.to) {
        // A missing directory would be made.
        Err(error) if shared.options.dry_run && error.kind() == ErrorKind::NotFound => {
            Place::plain(to.path(&work.to))
        }
        place => place?,
    };
    if work.entry.kind == Kind::Link {
        return copy_link(shared, work, &from, &to);
    }
    let there = match &work.there {
        There::Nothing => None,
        There::Found(entry) => Some(entry.clone()),
        There::Ask => posix::stat(&to.path, false).map_err(|error| about(error, &to))?,
    };
    let shown = to.shown().to_string_lossy();
    if let Some(there) = &there {
        if there.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::Conflict, "write", shown)
                .cause("a directory has that name")
                .at(Locus::Destination));
        }
        let learning = shared.learn_modes(&work.to, &work.entry, there);
        Handle::current().block_on(learning);
        let is_unchanged = shared.is_own(&work.to)
            && (shared.is_unchanged(work, &work.entry, there)
                || shared.asks_clock(&work.entry, there) && {
                    let step_ns = ends(shared, work)?.1.time_step_ns(&work.to)?;
                    shared.is_unchanged_by(work, &work.entry, there, step_ns)
                });
        if is_unchanged {
            shared.progress.was_unchanged(work.entry.size);
            (shared.options.on_notice)(&Notice::Unchanged(&shown));
            return Ok(());
        }
        let staying = shared.must_stay(work, &work.entry, there, &shown);
        if Handle::current().block_on(staying)? {
            return Ok(());
        }
    }
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(&shown));
        return Ok(());
    }
    let follow = shared.options.links == Links::Follow || work.from.is_empty();
    let source = SourceFile::open_at(&from, follow)?;
    let spec = spec_of(work, source.entry());
    let moving = shared.progress.start(shown.clone().into_owned(), spec.size);
    let copying = Copying {
        shared,
        source: &source,
        spec: &spec,
        moving: &moving,
    };
    if spec.size > SEGMENT_BYTES {
        copying.copy_large(&to, block)?;
    } else {
        copying.copy_small(&to, block)?;
    }
    if shared.options.verify {
        copying.check(&to, block)?;
    }
    moving.arrived();
    shared.copied(&work.to, &shown);
    Ok(())
}

fn copy_link(shared: &Shared, work: &Work, from: &Place, to: &Place) -> Result<()> {
    let shown = to.shown().to_string_lossy();
    match shared.options.links {
        Links::Skip => {
            let left_out = from.shown().to_string_lossy();
            (shared.options.on_notice)(&Notice::LeftOut(&left_out));
            return Ok(());
        }
        Links::Follow => {
            // Where it may not be looked at, or points to itself, that is the reason.
            let looked = posix::stat(&from.path, true);
            looked.map_err(|error| about(error, from).at(Locus::Source))?;
            return Err(points_nowhere(from.shown().to_string_lossy()));
        }
        Links::Keep => {}
    }
    let target = posix::read_link(&from.path).map_err(|error| about(error, from))?;
    let there = posix::stat(&to.path, false).map_err(|error| about(error, to))?;
    let is_there = there.is_some();
    if there.is_some_and(|there| there.kind == Kind::Link)
        && posix::read_link(&to.path).is_ok_and(|there| there == target)
    {
        (shared.options.on_notice)(&Notice::Unchanged(&shown));
        return Ok(());
    }
    if shared.options.dry_run {
        (shared.options.on_notice)(&Notice::WouldCopy(&shown));
        return Ok(());
    }
    if is_there && !shared.options.rules.replaces {
        return Err(is_taken(&shown));
    }
    let made = posix::make_link(&to.path, &target, &spec_of(work, &work.entry));
    match made.map_err(|error| about(error, to)) {
        Ok(unkept) => {
            shared.note(unkept);
            shared.progress.made_link();
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            shared.refused_link(&error, &shown);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn about(error: Error, to: &Place) -> Error {
    error.about(to.shown().to_string_lossy())
}

struct Copying<'a> {
    shared: &'a Shared,
    source: &'a SourceFile,
    spec: &'a FileSpec,
    moving: &'a Moving,
}

impl Copying<'_> {
    fn copy_small(&self, to: &Place, block: &mut [u8]) -> Result<()> {
        let draft = Draft::small(to, self.spec, self.shared.options.rules)?;
        if !self.clone_extents(&draft) {
            if self.source.is_sparse() {
                draft.set_size(self.spec.size)?;
            }
            self.copy_range(&draft, 0..self.spec.size, block)?;
        }
        self.source.confirm()?;
        self.publish(&draft)
    }

    fn publish(&self, draft: &Draft) -> Result<()> {
        self.shared.note(draft.publish(self.spec)?);
        Ok(())
    }

    /// Compares the file under its final name with the source. It reads from the file system, not
    /// from the memory that was written.
    fn check(&self, to: &Place, block: &mut [u8]) -> Result<()> {
        let shown = || to.shown().to_string_lossy();
        let fail = |cause| Error::io("verify", shown(), cause).at(Locus::Destination);
        posix::drop_cached(&to.path).map_err(fail)?;
        let there = SourceFile::open_at(to, false);
        let there = there.map_err(|error| error.at(Locus::Destination))?;
        let size = self.spec.size;
        let mut is_same = there.entry().size == size;
        let mut offset = 0;
        let mut found = vec![0; block.len()];
        while is_same && offset < size {
            let rest = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let len = rest.min(block.len());
            let (wanted, found) = (&mut block[..len], &mut found[..len]);
            self.source.read_at(wanted, offset)?;
            let read = there.read_at(found, offset);
            read.map_err(|error| error.at(Locus::Destination))?;
            is_same = wanted == found;
            offset += len as u64;
        }
        if is_same {
            return self.source.confirm();
        }
        Err(small::is_other(shown()))
    }

    /// Lets the file system share the source's extents, if it can.
    fn clone_extents(&self, draft: &Draft) -> bool {
        if self.spec.size < CLONE_BYTES_MIN || self.shared.no_clone.load(Relaxed) {
            return false;
        }
        if rustix::fs::ioctl_ficlone(draft.file(), self.source.file()).is_err() {
            self.shared.no_clone.store(true, Relaxed);
            return false;
        }
        self.moving.sent(self.spec.size);
        true
    }

    /// Copies the data of one range and sums it; holes stay holes.
    fn copy_range(&self, draft: &Draft, range: Range<u64>, block: &mut [u8]) -> Result<Checksum> {
        let mut summer = Summer::default();
        let mut offset = range.start;
        while let Some(data) = self.source.next_data(offset, range.end) {
            if data.start > offset {
                summer.add_zeros(data.start - offset);
                self.moving.sent(data.start - offset);
            }
            offset = data.start;
            while offset < data.end {
                if self.shared.is_stopped() {
                    return Err(Error::new(ErrorKind::Cancelled, "copy", &*self.spec.origin));
                }
                let rest = usize::try_from(data.end - offset).unwrap_or(usize::MAX);
                let len = rest.min(block.len());
                let bytes = &mut block[..len];
                self.source.read_at(bytes, offset)?;
                summer.add(bytes);
                self.pace(len as u64);
                draft.write_at(bytes, offset)?;
                self.moving.sent(len as u64);
                offset += len as u64;
            }
        }
        if offset < range.end {
            summer.add_zeros(range.end - offset);
            self.moving.sent(range.end - offset);
        }
        Ok(summer.sum())
    }

    fn pace(&self, bytes: u64) {
        self.shared.options.throttle.pass_blocking(bytes);
    }

    fn copy_large(&self, to: &Place, block: &mut [u8]) -> Result<()> {
        let (draft, kept) =
            Draft::resumable(to, self.spec, SEGMENT_BYTES, self.shared.options.rules)?;
        let copied = self.copy_segments(&draft, &kept, block);
        let finished = copied.and_then(|()| self.source.confirm());
        match finished {
            Ok(()) => self.publish(&draft),
            Err(error) => {
                if error.kind() == ErrorKind::Changed {
                    draft.discard();
                }
                Err(error)
            }
        }
    }

    fn copy_segments(
        &self,
        draft: &Draft,
        kept: &[(u64, Checksum)],
        block: &mut [u8],
    ) -> Result<()> {
        let segments = self.spec.size.div_ceil(SEGMENT_BYTES);
        if kept.is_empty() && self.clone_extents(draft) {
            return Ok(());
        }
        let mut held = kept.iter().map(|&(index, _)| index).peekable();
        let mut missing = Vec::new();
        for index in 0..segments {
            if held.next_if_eq(&index).is_some() {
                let range = self.range(index);
                self.moving.resumed(range.end - range.start);
            } else {
                missing.push(index);
            }
        }
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = |block: &mut [u8]| -> Result<()> {
            while let Some(&index) = missing.get(next.fetch_add(1, Relaxed)) {
                if failed.load(Relaxed) || self.shared.is_stopped() {
                    return Err(Error::new(ErrorKind::Cancelled, "copy", &*self.spec.origin));
                }
                self.copy_segment(draft, index, block)
                    .inspect_err(|_| failed.store(true, Relaxed))?;
            }
            Ok(())
        };
        let borrowed = self.borrow_threads(missing.len().saturating_sub(1));
        let result = thread::scope(|scope| {
            let started: Vec<_> = (0..borrowed)
                .map(|_| scope.spawn(|| work(&mut vec![0; BLOCK_BYTES])))
                .collect();
            let mut results = vec![work(block)];
            for thread in started {
                results.push(thread.join().unwrap_or_else(|_| {
                    Err(Error::new(ErrorKind::Other, "run", "a copying thread"))
                }));
            }
            first_cause(results)
        });
        self.shared.spare_threads.fetch_add(borrowed, Relaxed);
        result
    }

    fn borrow_threads(&self, wanted: usize) -> usize {
        let mut lent = 0;
        let _ = self
            .shared
            .spare_threads
            .fetch_update(Relaxed, Relaxed, |spare| {
                lent = spare.min(wanted);
                Some(spare - lent)
            });
        lent
    }

    fn range(&self, index: u64) -> Range<u64> {
        let start = index * SEGMENT_BYTES;
        start..(start + SEGMENT_BYTES).min(self.spec.size)
    }

    fn copy_segment(&self, draft: &Draft, index: u64, block: &mut [u8]) -> Result<()> {
        let range = self.range(index);
        let sum = self.copy_range(draft, range, block)?;
        draft.record(index, sum)
    }
}

/// Returns the error that made the others stop.
fn first_cause(results: Vec<Result<()>>) -> Result<()> {
    let mut stopped = Ok(());
    for result in results {
        match result {
            Err(error) if error.kind() == ErrorKind::Cancelled => stopped = Err(error),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
    }
    stopped
}
