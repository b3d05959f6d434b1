//! Directories in which everything has arrived, before they get their attributes.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use posthaste_endpoint::{Entry, Locus, Unkept};
use tokio::{sync::Notify, task::JoinSet};

use super::{
    super::{Source, lane::Shared, retry::retried},
    directory::Directory,
};

/// Maximum of directories waiting to be sealed before the walk waits for them.
const WAITING_MAX: usize = 4_096;

/// Directories sealed in one request if an endpoint can.
const SEALED_TOGETHER_MAX: usize = 256;

/// Requests to seal under way at once.
const SEALS_AT_ONCE: usize = 8;

/// Directory to seal. It holds the one above, whose turn comes after it.
#[derive(Debug)]
pub(super) struct Seal {
    pub source: Arc<Source>,
    pub from: Vec<u8>,
    pub to: Vec<u8>,
    pub entry: Option<Entry>,
    /// The directory comes from a listing of the whole tree.
    pub by_keys: bool,
    pub empty: bool,
    pub parent: Option<Arc<Directory>>,
}

impl Seal {
    /// Lets the directory above be sealed at the same time if that makes no difference: sealing
    /// this one does not change that one, and is allowed in either order.
    fn release(&mut self) {
        let is_open = |parent: &mut Arc<Directory>| parent.stays_open();
        // An empty one may only be made now, which would change the one above.
        if !self.empty {
            self.parent.take_if(is_open);
        }
    }

    /// Counts the attributes that the source has of it, as far as it keeps any of directories.
    fn holds(&self) -> Unkept {
        let can = self.source.place.endpoint.capabilities();
        let is_kept = can.directory_attributes && !self.by_keys;
        let told = |is_told: fn(&Entry) -> bool| self.entry.as_ref().is_some_and(is_told);
        let has_time = is_kept && can.mtime_step_ns.is_some();
        Unkept {
            modes: (told(|entry| entry.mode.is_some()) || is_kept && can.modes).into(),
            times: (told(|entry| entry.mtime.is_some()) || has_time).into(),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Seal>,
    /// Attributes that directories lack, because the destination keeps none.
    unsealed: Unkept,
    /// Directories not sealed yet, whether their turn has come or not.
    open: usize,
    /// The walk has ended.
    ended: bool,
}

/// The directories of a copy.
#[derive(Debug, Default)]
pub(super) struct Seals {
    state: Mutex<State>,
    /// The destination keeps attributes of directories.
    kept: bool,
    /// The copy ends early, or changes nothing.
    off: AtomicBool,
    changed: Notify,
    emptied: Notify,
}

impl Seals {
    pub(super) fn new(shared: &Shared) -> Arc<Self> {
        let can = shared.destination.endpoint.capabilities();
        Arc::new(Self {
            kept: can.directory_attributes,
            off: AtomicBool::new(shared.options.dry_run),
            ..Self::default()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a directory that begins.
    pub(super) fn begin(&self) {
        self.state().open += 1;
    }

    /// Adds a directory in which everything has arrived; `None` for one without anything to set.
    pub(super) fn add(&self, seal: Option<Seal>) {
        // If a listing of keys has no object of the directory's own, there is nothing to keep.
        let is_plain = |entry: &Entry| entry.mtime.is_none() && entry.version.is_none();
        let is_due = |seal: &Seal| {
            let is_told = !(seal.by_keys && seal.entry.as_ref().is_some_and(is_plain));
            (self.kept && is_told) || (seal.empty && !seal.to.is_empty())
        };
        let seal = seal.filter(|_| !self.off.load(Relaxed));
        // One that is dropped lets go of the directory above, which comes here too: before the lock.
        let (due, unsealed) = match seal {
            Some(seal) if is_due(&seal) => (Some(seal), Unkept::default()),
            other => (None, other.map_or(Unkept::default(), |seal| seal.holds())),
        };
        let mut state = self.state();
        state.unsealed += unsealed;
        match due {
            Some(seal) => state.waiting.push(seal),
            None => state.open -= 1,
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Waits while many directories wait.
    pub(super) async fn room(&self) {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            if self.off.load(Relaxed) || self.state().waiting.len() < WAITING_MAX {
                return;
            }
            emptied.await;
        }
    }

    /// Notes that nothing more begins.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.changed.notify_waiters();
        self.changed.notify_one();
    }

    /// Returns what directories lack so far.
    pub(super) fn unsealed(&self) -> Unkept {
        self.state().unsealed
    }

    async fn take(&self) -> Option<Vec<Seal>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = self.state();
                let share = state.waiting.len().div_ceil(SEALS_AT_ONCE);
                let count = share.clamp(1, SEALED_TOGETHER_MAX);
                let from = state.waiting.len().saturating_sub(count);
                let taken = state.waiting.split_off(from);
                let is_over = taken.is_empty() && state.ended && state.open == 0;
                let more = !state.waiting.is_empty();
                drop(state);
                if more || is_over {
                    self.changed.notify_one();
                }
                if !taken.is_empty() {
                    self.emptied.notify_waiters();
                    return Some(taken);
                }
                if is_over {
                    return None;
                }
            }
            changed.await;
        }
    }

    fn done(&self, count: usize) {
        self.state().open -= count;
        self.changed.notify_one();
    }

    /// Starts to seal the directories that come.
    pub(super) fn start(self: &Arc<Self>, shared: &Arc<Shared>) -> JoinSet<()> {
        let mut set = JoinSet::new();
        if self.off.load(Relaxed) {
            return set;
        }
        for _ in 0..SEALS_AT_ONCE {
            let (seals, shared) = (Arc::clone(self), Arc::clone(shared));
            set.spawn(async move {
                while let Some(mut taken) = seals.take().await {
                    let count = taken.len();
                    taken.iter_mut().for_each(Seal::release);
                    seal_all(&shared, taken).await;
                    seals.done(count);
                }
            });
        }
        set
    }
}

/// Seals directories; once dropped they release those above.
async fn seal_all(shared: &Shared, mut seals: Vec<Seal>) {
    if shared.is_stopped() {
        return;
    }
    let endpoint = &shared.destination.endpoint;
    for seal in &mut seals {
        ask(shared, seal).await;
    }
    let wanted: Vec<(Vec<u8>, Entry, bool)> = seals
        .iter_mut()
        .filter_map(|seal| Some((std::mem::take(&mut seal.to), seal.entry.take()?, seal.empty)))
        .collect();
    let outcomes = endpoint.seal_directories(&wanted).await;
    for (outcome, (path, entry, empty)) in outcomes.into_iter().zip(&wanted) {
        let outcome = match outcome {
            Err(error) if error.is_temporary() => {
                retried(shared, || endpoint.seal_directory(path, entry, *empty)).await
            }
            outcome => outcome,
        };
        if let Err(error) = outcome {
            shared.failed(error.at(Locus::Destination));
        }
    }
}

/// Asks the source for what its listing left open.
async fn ask(shared: &Shared, seal: &mut Seal) {
    let is_told = |entry: &Entry| entry.mtime.is_some();
    if seal.entry.as_ref().is_some_and(is_told) {
        return;
    }
    let endpoint = &seal.source.place.endpoint;
    if let Ok(Some(asked)) = retried(shared, || endpoint.stat(&seal.from, true)).await {
        seal.entry = Some(asked);
    }
}
