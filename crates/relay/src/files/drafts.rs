//! Large files on their way in.
//!
//! If a client leaves, its file stays where it is: hidden, with a record of the segments that are
//! there. A limited number of files stays open between segments.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_endpoint::{
    Checksum, Error, ErrorKind, Locus, Result, Unkept,
    peer::wire::{Create, Finish, FinishOpen, SEGMENT_BYTES_MAX},
    posix::{Draft, DraftRules, Place, segment_range},
};

use tokio::{sync::Notify, time::timeout};

use super::{
    ground::Ground,
    space::{Space, size_at},
};

/// Maximum of open files; each costs three descriptors.
const OPEN_MAX: usize = 128;

/// Maximum of segments of one file: what a ledger of the longest believed length holds.
const SEGMENTS_MAX: u64 = 1_000_000;

/// Smallest recorded segment: records of smaller ones cost too much.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Wait for each of the last segments, for a client that finishes a file ahead of them.
const ARRIVES_WITHIN: Duration = Duration::from_secs(10);

/// Unfinished file.
pub(super) struct OpenDraft {
    file: Create,
    pub(super) draft: Draft,
    kept: Mutex<BTreeMap<u64, Checksum>>,
    /// Signals that another segment is there.
    arrived: Notify,
    place: Place,
    /// Bytes it takes of the lent space.
    taken: Mutex<u64>,
}

/// Slot of a file in the table: locked while it is opened, which may take long.
#[derive(Default)]
struct Slot {
    draft: Mutex<Option<Arc<OpenDraft>>>,
}

#[derive(Default)]
struct Table {
    slots: HashMap<Vec<u8>, (Arc<Slot>, u64)>,
    /// Count of uses, to find the file used least recently.
    clock: u64,
}

/// Unfinished files that are open.
pub(super) struct Drafts {
    ground: Arc<Ground>,
    space: Space,
    table: Mutex<Table>,
}

impl Drafts {
    pub(super) fn new(ground: Arc<Ground>, space: Space) -> Self {
        Self {
            ground,
            space,
            table: Mutex::default(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slot(&self, path: &[u8]) -> Arc<Slot> {
        let mut table = self.table();
        table.clock += 1;
        let now = table.clock;
        if table.slots.len() >= OPEN_MAX && !table.slots.contains_key(path) {
            close_oldest(&mut table);
        }
        let (slot, used) = table
            .slots
            .entry(path.to_vec())
            .or_insert_with(|| (Arc::default(), now));
        *used = now;
        Arc::clone(slot)
    }

    /// Returns the unfinished file that `file` names. If it is not open, it is opened and its kept
    /// segments are read back. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for impossible sizes, [`ErrorKind::Full`], [`ErrorKind::Busy`] if
    /// another version of the file is being written; the system's.
    pub(super) fn open(&self, file: &Create) -> Result<Arc<OpenDraft>> {
        check(file)?;
        let slot = self.slot(&file.path.0);
        let mut open = slot.draft.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(draft) = &*open {
            if draft.file == *file {
                return Ok(Arc::clone(draft));
            }
            if Arc::strong_count(draft) > 1 {
                return Err(Error::new(ErrorKind::Busy, "write", "")
                    .cause("another version of it is being written")
                    .at(Locus::Destination));
            }
        }
        // The open file holds the lock.
        *open = None;
        let draft = match self.start(file, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => self.start(file, true),
            started => started,
        };
        let draft = Arc::new(draft?);
        *open = Some(Arc::clone(&draft));
        Ok(draft)
    }

    fn start(&self, file: &Create, make: bool) -> Result<OpenDraft> {
        let place = self.ground.place_to_write(&file.path.0, make)?;
        let rules = DraftRules {
            verify: false,
            fsync: false,
            ..DraftRules::default()
        };
        let had = size_at(&Draft::partial_path(&place.path, &file.spec.origin));
        if is_open_ended(file) {
            return self.start_open_ended(file, place, rules, had);
        }
        self.space.change(had, file.spec.size)?;
        let started = Draft::resumable(&place, &file.spec, file.segment_size, rules);
        let (draft, kept) = started.inspect_err(|_| {
            // Space taken a moment ago can be given back.
            let _ = self.space.change(file.spec.size, had);
        })?;
        Ok(OpenDraft {
            file: file.clone(),
            draft,
            kept: Mutex::new(kept.into_iter().collect()),
            arrived: Notify::new(),
            place,
            taken: Mutex::new(file.spec.size),
        })
    }

    fn start_open_ended(
        &self,
        file: &Create,
        place: Place,
        rules: DraftRules,
        had: u64,
    ) -> Result<OpenDraft> {
        let (draft, kept) = Draft::open_ended(&place, &file.spec, file.segment_size, rules)?;
        let found = draft.file().metadata();
        let found = found
            .map_err(|cause| Error::io("look at", "", cause))?
            .len();
        self.space.change(had, found)?;
        Ok(OpenDraft {
            file: file.clone(),
            draft,
            kept: Mutex::new(kept.into_iter().collect()),
            arrived: Notify::new(),
            place,
            taken: Mutex::new(found),
        })
    }

    /// Takes space for a file of unknown length that is to reach `end`. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Full`].
    pub(super) fn reach(&self, draft: &OpenDraft, end: u64) -> Result<()> {
        let mut taken = draft.taken_now();
        if end > *taken {
            self.space.change(*taken, end)?;
            *taken = end;
        }
        Ok(())
    }

    /// Gives the file its name once all segments are there, and returns what of it is not kept.
    /// Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the segments together have not the expected checksum; the
    /// system's.
    pub(super) fn finish(&self, finish: &Finish, flush: bool) -> Result<Unkept> {
        self.publish(&finish.file, finish.file.spec.size, finish.whole, flush)
    }

    /// Finishes a file of unknown length, whose length the request gives. Blocking.
    ///
    /// # Errors
    /// Errors of [`Drafts::finish`]; [`ErrorKind::Invalid`] for a file of known length.
    pub(super) fn finish_open(&self, finish: &FinishOpen, flush: bool) -> Result<Unkept> {
        if !is_open_ended(&finish.file) {
            return Err(known_length());
        }
        self.publish(&finish.file, finish.size, finish.whole, flush)
    }

    fn publish(&self, file: &Create, size: u64, whole: Checksum, flush: bool) -> Result<Unkept> {
        let draft = self.open(file)?;
        let found = draft.whole(size);
        if found != Some(whole) {
            let what = if found.is_some() {
                "the segments have another checksum than the file"
            } else {
                "segments are missing"
            };
            return Err(Error::new(ErrorKind::Corrupt, "write", "")
                .cause(what)
                .hint("run the same command again")
                .at(Locus::Destination));
        }
        let replaced = size_at(&draft.place.path);
        if is_open_ended(file) {
            draft.draft.set_size(size)?;
            let _ = self.space.change(draft.take_back(size), size);
        }
        let published = draft.draft.publish_with(&draft.file.spec, flush);
        // Whatever was said against it is not said a second time: it is opened anew, and looked at.
        self.close(&file.path.0);
        let unkept = published?;
        let _ = self.space.change(replaced, 0);
        Ok(unkept)
    }

    /// Removes the unfinished file. Blocking.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn discard(&self, file: &Create) -> Result<()> {
        let draft = self.open(file)?;
        draft.draft.discard();
        let _ = self.space.change(draft.take_back(0), 0);
        self.close(&file.path.0);
        Ok(())
    }

    fn close(&self, path: &[u8]) {
        self.table().slots.remove(path);
    }
}

fn close_oldest(table: &mut Table) {
    let unused = table.slots.iter().filter(|(_, (slot, _))| {
        let is_idle = slot.draft.try_lock().is_ok_and(|draft| {
            draft
                .as_ref()
                .is_none_or(|draft| Arc::strong_count(draft) == 1)
        });
        is_idle && Arc::strong_count(slot) == 1
    });
    let oldest = unused.min_by_key(|(_, (_, used))| *used);
    if let Some(path) = oldest.map(|(path, _)| path.clone()) {
        table.slots.remove(&path);
    }
}

/// Returns whether nobody knew the file's length at its start: a file of no bytes is a small one.
pub(super) fn is_open_ended(file: &Create) -> bool {
    file.spec.size == 0
}

/// Returns the error for a request about files of unknown length that names one of known length.
pub(super) fn known_length() -> Error {
    Error::new(ErrorKind::Invalid, "write", "").cause("its length was known when it was begun")
}

/// Returns the byte range of a segment of a file of unknown length, if that segment can exist.
pub(super) fn open_range(file: &Create, index: u64, bytes: u64) -> Option<Range<u64>> {
    let is_sound = index < SEGMENTS_MAX && (1..=file.segment_size).contains(&bytes);
    let start = index.checked_mul(file.segment_size).filter(|_| is_sound)?;
    Some(start..start.checked_add(bytes)?)
}

fn check(file: &Create) -> Result<()> {
    let is_sound = (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&file.segment_size)
        && file.spec.size.div_ceil(file.segment_size) <= SEGMENTS_MAX;
    if is_sound {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Invalid, "write", "").cause("segments of an impossible size"))
}

impl OpenDraft {
    fn kept_now(&self) -> MutexGuard<'_, BTreeMap<u64, Checksum>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the segments that are there.
    pub(super) fn kept(&self) -> Vec<(u64, Checksum)> {
        let kept = self.kept_now();
        kept.iter().map(|(&index, &sum)| (index, sum)).collect()
    }

    /// Notes that a segment is there. Blocking.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn record(&self, index: u64, sum: Checksum) -> Result<()> {
        self.draft.record(index, sum)?;
        self.kept_now().insert(index, sum);
        self.arrived.notify_waiters();
        Ok(())
    }

    /// Waits until all segments are there, or none has come for a while.
    pub(super) async fn all_arrived(&self) {
        let wanted = self.file.spec.size.div_ceil(self.file.segment_size);
        loop {
            let arrived = self.arrived.notified();
            if self.kept_now().len() as u64 >= wanted
                || timeout(ARRIVES_WITHIN, arrived).await.is_err()
            {
                return;
            }
        }
    }

    fn taken_now(&self) -> MutexGuard<'_, u64> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the space it takes and sets it to `left`.
    fn take_back(&self, left: u64) -> u64 {
        std::mem::replace(&mut *self.taken_now(), left)
    }

    /// Returns the checksum of all segments of a file of `size` bytes; `None` unless all are there.
    fn whole(&self, size: u64) -> Option<Checksum> {
        let step = self.file.segment_size;
        let kept = self.kept_now();
        (0..size.div_ceil(step)).try_fold(Checksum::EMPTY, |whole, index| {
            let range = segment_range(index, step, size);
            Some(whole.then(*kept.get(&index)?, range.end - range.start))
        })
    }
}
