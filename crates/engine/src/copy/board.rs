//! Files waiting for a lane, by class, and which lane takes which.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use posthaste_endpoint::Kind;
use posthaste_plan::{
    run,
    tuner::{Choice, Class, ClassSet, PathFacts, Share, Stocks},
};
use posthaste_types::Bytes;
use tokio::sync::Notify;

use super::walk::Work;

/// Maximum of waiting files: enough to know what lies ahead and to divide it into classes, few
/// enough that a tree of any size costs little memory (about 300 bytes each).
const WAITING_MAX: u64 = 20_000;

/// Maximum of files in one hand: the size of one request if files travel together.
const HAND_FILES_MAX: usize = 512;

/// Files waiting for lanes.
#[derive(Debug)]
pub(super) struct Board {
    state: Mutex<State>,
    /// Signals that files wait, shares have changed, or nothing more comes.
    filled: Notify,
    /// Signals that there is room again.
    emptied: Notify,
    /// Signals that no file waits or is in a hand, and nothing more comes.
    finished: Notify,
    facts: PathFacts,
    bundles: Bundles,
}

/// Small files that travel together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bundles {
    /// Bytes of one request; 0 if each file takes its own.
    pub bytes_max: u64,
    /// Bytes of the largest file that travels so; a larger one travels alone.
    pub file_bytes_max: u64,
}

#[derive(Debug)]
struct State {
    waiting: [VecDeque<Work>; 4],
    stocks: Stocks,
    /// Waiting or in a lane's hand.
    open: Stocks,
    shares: Vec<Share>,
    /// Bundles dealt so far.
    dealt: u64,
    ended: bool,
}

/// Receipt that a lane gives back when it is done with a hand.
#[derive(Debug)]
pub(super) struct Receipt {
    sizes: Vec<(Class, Bytes)>,
}

/// Next work of a lane.
#[derive(Debug)]
pub(super) struct Hand {
    class: Class,
    pub works: Vec<Work>,
    /// Number of files at once, unless they travel together.
    pub at_once: usize,
    /// They travel together.
    pub bundled: bool,
}

impl Hand {
    /// Returns the receipt to give back when the hand is done.
    pub(super) fn receipt(&self) -> Receipt {
        let sizes = self
            .works
            .iter()
            .map(|work| (self.class, Bytes::new(work.entry.size)));
        Receipt {
            sizes: sizes.collect(),
        }
    }
}

impl Board {
    pub(super) fn new(facts: PathFacts, bundles: Bundles) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: Default::default(),
                stocks: Stocks::default(),
                open: Stocks::default(),
                shares: Vec::new(),
                dealt: 0,
                ended: false,
            }),
            filled: Notify::new(),
            emptied: Notify::new(),
            finished: Notify::new(),
            facts,
            bundles,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn class_of(&self, work: &Work) -> Class {
        match work.entry.kind {
            Kind::File => self.facts.class(Bytes::new(work.entry.size)),
            Kind::Link | Kind::Directory | Kind::Special => Class::Small,
        }
    }

    /// Adds a file; waits while too many files wait.
    pub(super) async fn put(&self, work: Work) {
        loop {
            // Registered before the look, so that no room made in between is missed.
            let emptied = self.emptied.notified();
            if self.state().stocks.total().files < WAITING_MAX {
                break;
            }
            emptied.await;
        }
        let class = self.class_of(&work);
        let mut state = self.state();
        state.stocks.add(class, Bytes::new(work.entry.size));
        state.open.add(class, Bytes::new(work.entry.size));
        state.waiting[class.index()].push_back(work);
        drop(state);
        self.filled.notify_one();
    }

    /// Ends the board: nothing more will be added.
    pub(super) fn end(&self) {
        self.state().ended = true;
        self.filled.notify_waiters();
        self.filled.notify_one();
        if self.is_finished() {
            self.finished.notify_one();
        }
    }

    /// Returns what is left to move, as far as the walk found it.
    pub(super) fn open(&self) -> Stocks {
        self.state().open
    }

    /// Returns whether the walk found `files` files, or ended.
    pub(super) fn is_known(&self, files: u64) -> bool {
        let state = self.state();
        state.ended || state.open.total().files >= files
    }

    /// Returns whether nothing is left to move.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.state();
        state.ended && state.open.total().files == 0
    }

    /// Wakes when [`Board::is_finished`] may have become true.
    pub(super) async fn finished(&self) {
        self.finished.notified().await;
    }

    /// Accepts a hand back from a lane that is done with it.
    pub(super) fn done(&self, receipt: &Receipt) {
        let mut state = self.state();
        for &(class, bytes) in &receipt.sizes {
            state.open.remove(class, bytes);
        }
        drop(state);
        if self.is_finished() {
            self.finished.notify_one();
        }
    }

    /// Divides the classes among the lanes from now on.
    pub(super) fn set_shares(&self, choice: &Choice) {
        self.state().shares.clone_from(&choice.shares);
        self.filled.notify_waiters();
        self.filled.notify_one();
    }

    /// Returns whether files wait that no share wants, while some share has nothing left to do.
    pub(super) fn is_share_done(&self) -> bool {
        let state = self.state();
        let present = state.stocks.present();
        let wanted = state
            .shares
            .iter()
            .fold(ClassSet::NONE, |all, share| all.union(share.classes));
        let waits = present.iter().any(|class| !wanted.contains(class));
        waits && !present.iter().any(|class| wanted.contains(class))
    }

    /// Returns the next files for lane `lane`; `None` if nothing more will come.
    pub(super) async fn take(&self, lane: usize) -> Option<Hand> {
        loop {
            let filled = self.filled.notified();
            tokio::pin!(filled);
            // Waiting starts here, not at the first poll: what comes in between is heard.
            filled.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(hand) = self.deal(&mut state, lane) {
                    let more = state.stocks.total().files > 0;
                    drop(state);
                    self.emptied.notify_one();
                    if more {
                        self.filled.notify_one();
                    }
                    return Some(hand);
                }
                if state.ended && state.stocks.total().files == 0 {
                    drop(state);
                    self.filled.notify_one();
                    return None;
                }
            }
            filled.await;
        }
    }

    fn deal(&self, state: &mut State, lane: usize) -> Option<Hand> {
        let mut first = 0;
        let own = state.shares.iter().position(|share| {
            first += usize::from(share.channels);
            lane < first
        })?;
        let order = std::iter::once(own).chain((0..state.shares.len()).filter(|at| *at != own));
        // Whose own classes are empty helps the others.
        let present = state.stocks.present();
        let (share, class) = order
            .filter_map(|at| {
                let share = &state.shares[at];
                let class = share
                    .classes
                    .iter()
                    .find(|class| present.contains(*class))?;
                Some((share.clone(), class))
            })
            .next()?;
        let channels = u64::from(share.channels.max(1));
        let ahead = usize::from(share.setting.pipelining.max(1));
        let stock = state.stocks.get(class);
        let fair_files = usize::try_from(stock.files.div_ceil(channels)).unwrap_or(usize::MAX);
        let bytes_left = stock.bytes.get();
        let most = self.bundles.bytes_max;
        let bytes_max = run::bundle_bytes(bytes_left, channels, most, state.dealt);
        let queue = &mut state.waiting[class.index()];
        let mut works = vec![queue.pop_front()?];
        let is_small = |work: &Work| {
            work.entry.kind == Kind::File && work.entry.size <= self.bundles.file_bytes_max
        };
        let bundled = self.bundles.bytes_max > 0 && is_small(&works[0]);
        state.dealt += u64::from(bundled);
        let files_max = if bundled {
            HAND_FILES_MAX
        } else {
            ahead.min(fair_files)
        };
        let mut bytes = works[0].entry.size;
        while works.len() < files_max
            && let Some(next) = queue.front()
            && (!bundled || (bytes.saturating_add(next.entry.size) <= bytes_max && is_small(next)))
            && let Some(next) = queue.pop_front()
        {
            bytes = bytes.saturating_add(next.entry.size);
            works.push(next);
        }
        for work in &works {
            state.stocks.remove(class, Bytes::new(work.entry.size));
        }
        Some(Hand {
            class,
            works,
            at_once: ahead,
            bundled,
        })
    }
}
