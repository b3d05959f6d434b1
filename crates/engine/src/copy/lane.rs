//! State shared by all lanes, the start of lanes and the end of a copy.

use std::{
    io,
    path::PathBuf,
    pin::pin,
    sync::{
        Arc, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use posthaste_endpoint::{
    Endpoint, Entry, Error, ErrorKind, FileSpec, Locus, Result, Unkept, limits::Gate, new_word,
    posix::without_lent_rights,
};
use posthaste_plan::tuner::Method;
use posthaste_types::Bytes;
use tokio::{
    sync::{Semaphore, mpsc},
    task::{JoinError, JoinSet},
    time::sleep,
};

use super::{
    Ending, Limit, Notice, Options, Place, Placed, Progress, Tuned,
    board::Board,
    claims::Claims,
    local,
    progress::Moving,
    remote, tuning,
    unchanged::Bare,
    walk::{Walker, Work},
    watch::Speeds,
};

/// Batches waiting for a lane: enough that lanes never wait for the walker, few enough that a
/// tree of any size costs no memory.
const QUEUE_BATCHES: usize = 64;

/// Bytes of file content in memory at once, in MiB, over all lanes.
pub(super) const BUFFERED_MIB_MAX: u32 = 96;

/// Temporary failures, each after its own retries, after which the other end counts as gone.
const TEMPORARY_FAILURES_MAX: u64 = 16;

/// Time for transfers under way to end after a copy's time is over: enough for the last answers of
/// what was sent, little beside any limit people set.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum number of lanes between local paths.
const TRANSFERS_MAX: usize = 256;

/// Refused files after which a destination counts as refusing all, if none has arrived.
const DENIALS_MAX: u64 = 16;

/// Files for which a server refuses the credentials after which it counts as refusing them for all,
/// if they were good for nothing: fewer than accounts are locked after.
const UNKNOWN_MAX: u64 = 3;

#[derive(Debug, Default)]
struct Tally {
    fatal: Option<Error>,
    /// First object that may not be written at the destination.
    denied: Option<Error>,
    denials: u64,
    /// Files for which the source refused the credentials.
    unknown: u64,
    links_refused: u64,
    last_error: Option<String>,
    last_code: Option<&'static str>,
    temporary: u64,
    left_out: u64,
    other: u64,
    /// Directories whose listing is incomplete.
    listings: u64,
    limit: Option<Limit>,
}

/// State shared by all lanes.
pub(super) struct Shared {
    pub destination: Place,
    pub options: Options,
    pub progress: Arc<Progress>,
    /// Streams that segments of large files may use.
    pub streams: Arc<Gate>,
    /// Speeds of the streams under way.
    pub speeds: Speeds,
    /// MiB of memory lent out.
    pub buffers: Arc<Semaphore>,
    /// Threads available for the segments of a large local file.
    pub spare_threads: AtomicUsize,
    /// The file systems can't share extents, so further attempts are pointless.
    pub no_clone: AtomicBool,
    /// Names at the destination that are taken.
    pub claims: Claims,
    /// Attributes that are asked for but that nothing at the destination can keep.
    lacks: [bool; 2],
    /// Counts of files that count as unchanged although the destination keeps less of them.
    pub bare: Bare,
    /// Files with set-user-ID and set-group-ID bits, where modes are to be kept: those are not.
    pub lent_rights: AtomicU64,
    /// Directories of this machine that were not there before the copy made any.
    pub absent: Mutex<Vec<PathBuf>>,
    is_local: AtomicBool,
    stopped: AtomicBool,
    tally: Mutex<Tally>,
    tuned: Mutex<Tuned>,
}

impl Shared {
    pub(super) fn new(destination: Place, options: Options, progress: Arc<Progress>) -> Self {
        let can = destination.endpoint.capabilities();
        let lacks = [!can.modes, can.mtime_step_ns.is_none()].map(|lacks| lacks && options.modes);
        Self {
            lacks,
            destination,
            options,
            progress,
            streams: Gate::new(1),
            speeds: Speeds::default(),
            buffers: Arc::new(Semaphore::new(BUFFERED_MIB_MAX as usize)),
            spare_threads: AtomicUsize::new(0),
            no_clone: AtomicBool::new(false),
            claims: Claims::default(),
            bare: Bare::default(),
            lent_rights: AtomicU64::new(0),
            absent: Mutex::default(),
            is_local: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            tally: Mutex::default(),
            tuned: Mutex::default(),
        }
    }

    /// Returns whether both ends are local.
    pub(super) fn is_local(&self) -> bool {
        self.is_local.load(Relaxed)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Ends the copy with `error`.
    pub(super) fn stop(&self, error: Error) {
        self.stopped.store(true, Relaxed);
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        if tally.fatal.is_none() {
            self.progress.failed();
            (self.options.on_notice)(&Notice::Failed(&error));
            tally.last_error = Some(error.to_string());
            tally.last_code = Some(error.code());
            tally.fatal = Some(error);
        }
    }

    /// Reports a failure; stops everything if every file would get the same error.
    pub(super) fn failed(&self, error: Error) {
        if self.is_stopped() && error.kind() == ErrorKind::Cancelled {
            return;
        }
        if is_fatal(&error) && !(is_about_one(&error) && self.was_known()) {
            return self.stop(error);
        }
        self.progress.failed();
        (self.options.on_notice)(&Notice::Failed(&error));
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.last_error = Some(error.to_string());
        tally.last_code = Some(error.code());
        tally.listings += u64::from(error.operation() == "list");
        if is_about_one(&error) {
            tally.denied.get_or_insert_with(|| error.retold());
        }
        if is_denied(&error) {
            tally.denials += 1;
            tally.denied.get_or_insert_with(|| error.retold());
            if tally.denials >= DENIALS_MAX && !self.has_arrived() {
                self.stopped.store(true, Relaxed);
            }
        }
        // Bytes that came spoiled each time are no reason to wait: the rest counts.
        if error.is_temporary() && error.kind() != ErrorKind::Corrupt {
            tally.temporary += 1;
            if tally.temporary >= TEMPORARY_FAILURES_MAX {
                self.stopped.store(true, Relaxed);
            }
        } else if is_left_out(&error) || is_about_one(&error) {
            tally.left_out += 1;
        } else {
            tally.other += 1;
        }
    }

    /// Counts the attributes that something lost at a local destination.
    pub(super) fn note(&self, unkept: Unkept) {
        if let Some(local) = &self.destination.local {
            local.note(unkept);
        }
    }

    /// Returns whether credentials that a source refuses for one file may be good for others: they
    /// were good for some, or few were refused.
    fn was_known(&self) -> bool {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.unknown += 1;
        tally.unknown <= UNKNOWN_MAX || self.has_arrived()
    }

    /// Returns whether anything is at the destination as it should be.
    fn has_arrived(&self) -> bool {
        let figures = self.progress.figures();
        figures.files + figures.unchanged + figures.links > 0
    }

    /// Counts a link that the destination refuses to make. It may keep none at all, so only the
    /// first is named.
    pub(super) fn refused_link(&self, error: &Error, shown: &str) {
        self.progress.failed();
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.left_out += 1;
        tally.links_refused += 1;
        tally.last_error = Some(error.to_string());
        tally.last_code = Some(error.code());
        let is_first = tally.links_refused == 1;
        drop(tally);
        (self.options.on_notice)(&if is_first {
            Notice::Failed(error)
        } else {
            Notice::LeftOut(shown)
        });
    }

    /// Returns whether the user's limits allow another file; notes the limit that doesn't.
    pub(super) fn may_start(&self) -> bool {
        if self.is_stopped() {
            return false;
        }
        let is_over = |max: Bytes| self.progress.figures().bytes >= max.get();
        if self.options.transfer_max.is_some_and(is_over) {
            self.reach(Limit::Transfer);
            return false;
        }
        true
    }

    fn reach(&self, limit: Limit) {
        self.stopped.store(true, Relaxed);
        self.tally
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .limit = Some(limit);
    }

    /// Sets the report of the optimizer.
    pub(super) fn tuned(&self, tuned: Tuned) {
        *self.tuned.lock().unwrap_or_else(PoisonError::into_inner) = tuned;
    }

    pub(super) fn ending(&self) -> Ending {
        let mut tuned = self.tuned.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = std::mem::take(&mut *self.tally.lock().unwrap_or_else(PoisonError::into_inner));
        let figures = self.progress.figures();
        let mut unkept = self.bare.count(self);
        let all = figures.files + figures.unchanged;
        let [modes, times] = self.lacks.map(|lacks| lacks.then_some(all));
        unkept.modes = modes.unwrap_or(unkept.modes);
        unkept.times = times.unwrap_or(unkept.times);
        let gave_up = tally.temporary >= TEMPORARY_FAILURES_MAX;
        // If nothing could be written, single files are not the reason.
        let denied = tally.denied.filter(|_| !self.has_arrived());
        Ending {
            rest_arrived: self.has_arrived() && tally.listings == 0 && !gave_up,
            figures,
            fatal: tally.fatal.or(denied),
            unkept,
            directories_unkept: self.bare.directories(),
            links_refused: tally.links_refused,
            untimed: self.bare.untimed(),
            lent_rights: self.lent_rights.load(Relaxed),
            last_error: tally.last_error,
            last_code: tally.last_code,
            temporary: tally.temporary,
            left_out: tally.left_out,
            other: tally.other,
            limit: tally.limit,
            tuned: std::mem::take(&mut *tuned),
        }
    }
}

/// Returns whether every file would get the same error.
fn is_fatal(error: &Error) -> bool {
    error.kind() == ErrorKind::Unauthenticated
        || error.locus() == Locus::Destination && error.concerns_everything()
}

/// Returns whether a source refuses the credentials for one file: some want others for some files.
fn is_about_one(error: &Error) -> bool {
    let is_refusal = |(name, value): &(&str, String)| *name == "status" && value == "401";
    error.kind() == ErrorKind::Unauthenticated
        && error.locus() == Locus::Source
        && error.context().iter().any(is_refusal)
}

/// Returns whether a destination refuses one thing, and perhaps all.
fn is_denied(error: &Error) -> bool {
    error.locus() == Locus::Destination && error.kind() == ErrorKind::PermissionDenied
}

/// Returns whether the operating system reported it.
fn is_of_system(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<io::Error>())
}

fn is_left_out(error: &Error) -> bool {
    let is_single = matches!(
        error.kind(),
        ErrorKind::Changed
            | ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::Unsupported
            | ErrorKind::Conflict
    );
    // A name that a file system can't have, a file that a disk can't read or take.
    let is_of_one_end = matches!(error.locus(), Locus::Source | Locus::Destination);
    let is_systems =
        matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Other) && is_of_system(error);
    is_single || is_of_one_end && is_systems
}

/// Returns what is known to be at the destination. A user with the right to write to a store need
/// not have the right to look: then nothing is known.
pub(super) fn seen(
    destination: &dyn Endpoint,
    there: Result<Option<Entry>>,
) -> Result<Option<Entry>> {
    let is_store = !destination.capabilities().directories;
    match there {
        Err(error) if is_store && error.kind() == ErrorKind::PermissionDenied => Ok(None),
        there => there.map_err(|error| error.at(Locus::Destination)),
    }
}

/// Returns what the destination is to keep of `entry`.
pub(super) fn spec_of(work: &Work, entry: &Entry) -> FileSpec {
    // A weak tag may stay while bytes change. Where nothing tells versions apart, only this run
    // knows what it copies.
    let is_weak = |version: &str| version.starts_with("W/");
    let version = entry.version.clone();
    let version = match entry.mtime {
        Some(_) => version,
        None => version
            .filter(|version| !is_weak(version))
            .or_else(|| Some(of_this_run())),
    };
    FileSpec {
        size: entry.size,
        mtime: entry.mtime,
        mode: entry.mode.map(without_lent_rights),
        origin: work.source.place.endpoint.show(&work.from).into(),
        version,
    }
}

/// Counts a file with set-user-ID or set-group-ID bits of which only its own answer tells, and no
/// listing.
pub(super) fn note_lent(shared: &Shared, work: &Work, entry: &Entry, moving: &Moving) {
    let lends = |mode| mode != without_lent_rights(mode);
    let is_new = work.entry.mode.is_none() && entry.mode.is_some_and(lends);
    if shared.options.modes && is_new && moving.note_lends() {
        shared.lent_rights.fetch_add(1, Relaxed);
    }
}

/// Returns the version of a file that no other run can tell from another of it.
pub(super) fn of_this_run() -> Box<str> {
    RUN.as_str().into()
}

/// Identity of this run among all others.
static RUN: LazyLock<String> = LazyLock::new(new_word);

/// Walks and copies until everything has arrived, the copy is stopped or its time is over.
pub(super) async fn run(shared: &Arc<Shared>, placed: Vec<Placed>) {
    let copying = run_to_end(shared, placed);
    match shared.options.duration_max {
        None => copying.await,
        // A copy that is given up ends like a killed one: its durable bytes are found again.
        Some(span) => tokio::select! {
            () = copying => {}
            () = expire(shared, span) => {}
        },
    }
}

/// Ends the copy at its time: nothing starts any more, and transfers under way have their grace.
async fn expire(shared: &Shared, span: Duration) {
    sleep(span).await;
    shared.reach(Limit::Duration);
    sleep(GRACE).await;
}

/// Stops a copy that nobody waits for any more: threads between local paths go on otherwise.
struct Abandoned<'a>(Option<&'a Shared>);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.stopped.store(true, Relaxed);
        }
    }
}

async fn run_to_end(shared: &Arc<Shared>, placed: Vec<Placed>) {
    let mut abandoned = Abandoned(Some(shared.as_ref()));
    let is_local = shared.destination.local.is_some()
        && placed
            .iter()
            .all(|placed| placed.source.place.local.is_some());
    shared.is_local.store(is_local, Relaxed);
    shared.claims.prepare(shared, &placed);
    let (queue, works) = mpsc::channel(QUEUE_BATCHES);
    let mut lanes = JoinSet::new();
    if is_local {
        let count = local_lanes(&shared.options);
        shared.spare_threads.store(count - 1, Relaxed);
        let works = Arc::new(Mutex::new(works));
        for _ in 0..count {
            let (shared, works) = (Arc::clone(shared), Arc::clone(&works));
            lanes.spawn_blocking(move || local::run(&shared, &works));
        }
    } else {
        let (tuning, board) = tuning::begin(shared, &placed);
        for lane in 0..usize::from(tuning.lanes()) {
            let (shared, board) = (Arc::clone(shared), Arc::clone(&board));
            lanes.spawn(async move { remote::run(&shared, &board, lane).await });
        }
        lanes.spawn(fill(Arc::clone(&board), works));
        let shared = Arc::clone(shared);
        lanes.spawn(async move { tuning.run(&shared, &board).await });
    }
    let mut walking = pin!(Walker::new(shared, queue).walk(placed));
    let walked = loop {
        tokio::select! {
            walked = &mut walking => break walked,
            Some(ended) = lanes.join_next() => hear(shared, &mut lanes, ended),
        }
    };
    while let Some(ended) = lanes.join_next().await {
        hear(shared, &mut lanes, ended);
    }
    if !shared.options.dry_run && !shared.is_stopped() {
        walked.seal(shared).await;
    }
    abandoned.0 = None;
}

/// Ends all lanes if one ended unexpectedly: the others would wait for it.
fn hear(shared: &Shared, lanes: &mut JoinSet<()>, ended: Result<(), JoinError>) {
    if let Err(cause) = ended
        && !shared.is_stopped()
    {
        shared.stop(Error::new(ErrorKind::Other, "run", "a lane").cause(cause));
        lanes.abort_all();
    }
}

/// Puts the walker's findings on the board.
async fn fill(board: Arc<Board>, mut works: mpsc::Receiver<Vec<Work>>) {
    while let Some(batch) = works.recv().await {
        for work in batch {
            board.put(work).await;
        }
    }
    board.end();
}

/// Returns the number of threads between local paths: that of processors, unless the user sets it.
fn local_lanes(options: &Options) -> usize {
    let asked = match options.method {
        Method::Fixed { setting } => Some(usize::from(setting.concurrency)),
        Method::Scc
        | Method::Mcc
        | Method::Promc
        | Method::PartialSecondOrder
        | Method::FullSecondOrder
        | Method::COrder
        | Method::Falcon
        | Method::Auto => None,
    };
    let cores = || std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 8));
    asked.unwrap_or_else(cores).clamp(1, TRANSFERS_MAX)
}

#[cfg(test)]
mod tests {
    use posthaste_endpoint::posix::{DraftRules, Posix};

    use super::{super::written::tests::options, *};

    #[test]
    fn credentials_end_a_copy_only_if_they_were_good_for_nothing() {
        for (arrived, left_out) in [(0, UNKNOWN_MAX), (1, 50)] {
            let rules = DraftRules::default();
            let place = Place::remote(Arc::new(Posix::new("there", rules)));
            let shared = Shared::new(place, options(rules, None), Arc::default());
            (0..arrived).for_each(|_| shared.progress.was_unchanged(1));
            for _ in 0..50 {
                let refused = Error::new(ErrorKind::Unauthenticated, "read", "https://h/t/x");
                shared.failed(refused.with("status", 401).at(Locus::Source));
            }
            let ending = shared.ending();
            assert_eq!(ending.left_out, left_out);
            assert_eq!(ending.fatal.is_some(), arrived == 0);
        }
    }
}
