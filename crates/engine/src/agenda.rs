//! Directories still to look at. Several are visited at once, the newest first, so that a deep tree
//! is finished branch by branch and few of them wait at any moment.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::Notify, task::JoinSet};

/// Maximum of waiting directories; beyond it the visits that found them wait too.
const WAITING_MAX: usize = 4_096;

/// Visit of a directory, page by page.
pub(crate) trait Visit: Send + Sized + 'static {
    /// Reads the next page and returns the directories found in it; `None` at the end. Failures are
    /// reported where the visit began.
    fn step(&mut self) -> impl Future<Output = Option<Vec<Self>>> + Send;
}

/// Waiting items, and the number being looked at.
#[derive(Debug)]
struct State<V> {
    waiting: Vec<V>,
    busy: usize,
}

#[derive(Debug)]
struct Agenda<V> {
    state: Mutex<State<V>>,
    changed: Notify,
}

/// Guard that gives a place back, also when the visit panics.
struct Busy<'a, V>(&'a Agenda<V>);

impl<V> Drop for Busy<'_, V> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        if state.busy == 0 && state.waiting.is_empty() {
            drop(state);
            self.0.changed.notify_waiters();
        }
    }
}

impl<V: Visit> Agenda<V> {
    async fn work(&self) {
        while let Some((mut visit, _busy)) = self.take().await {
            while let Some(found) = visit.step().await {
                if found.is_empty() {
                    continue;
                }
                if self.state().waiting.len() >= WAITING_MAX {
                    // Below what it found: it goes on when that is done.
                    self.add([visit].into_iter().chain(found));
                    break;
                }
                self.add(found);
            }
        }
    }
}

impl<V> Agenda<V> {
    fn state(&self) -> MutexGuard<'_, State<V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, found: impl IntoIterator<Item = V>) {
        self.state().waiting.extend(found);
        self.changed.notify_one();
    }

    /// Returns the newest directory; `None` when all are done.
    async fn take(&self) -> Option<(V, Busy<'_, V>)> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Waiting starts here, not at the first poll: what comes in between is heard.
            changed.as_mut().enable();
            {
                let mut state = self.state();
                if let Some(visit) = state.waiting.pop() {
                    state.busy += 1;
                    let more = !state.waiting.is_empty();
                    drop(state);
                    if more {
                        self.changed.notify_one();
                    }
                    return Some((visit, Busy(self)));
                }
                if state.busy == 0 {
                    return None;
                }
            }
            changed.await;
        }
    }
}

/// Visits all directories and those found in them, `at_once` at a time.
pub(crate) async fn visit_all<V: Visit>(first: Vec<V>, at_once: usize) {
    let agenda = std::sync::Arc::new(Agenda {
        state: Mutex::new(State {
            waiting: first,
            busy: 0,
        }),
        changed: Notify::new(),
    });
    let mut workers = JoinSet::new();
    for _ in 0..at_once {
        let agenda = std::sync::Arc::clone(&agenda);
        workers.spawn(async move { agenda.work().await });
    }
    while let Some(ended) = workers.join_next().await {
        if let Err(cause) = ended
            && cause.is_panic()
        {
            std::panic::resume_unwind(cause.into_panic());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use super::*;

    /// Tree in which every directory of `depth` more levels holds `fan_out` others, with pages of
    /// `page`.
    struct Branch {
        depth: usize,
        left: usize,
        fan_out: usize,
        page: usize,
        seen: Arc<AtomicUsize>,
        open: Arc<AtomicUsize>,
        open_max: Arc<AtomicUsize>,
    }

    impl Branch {
        fn below(&self) -> Self {
            let open = self.open.fetch_add(1, Relaxed) + 1;
            self.open_max.fetch_max(open, Relaxed);
            Self {
                depth: self.depth - 1,
                left: if self.depth == 1 { 0 } else { self.fan_out },
                fan_out: self.fan_out,
                page: self.page,
                seen: Arc::clone(&self.seen),
                open: Arc::clone(&self.open),
                open_max: Arc::clone(&self.open_max),
            }
        }
    }

    impl Visit for Branch {
        async fn step(&mut self) -> Option<Vec<Self>> {
            tokio::task::yield_now().await;
            if self.left == 0 {
                self.seen.fetch_add(1, Relaxed);
                self.open.fetch_sub(1, Relaxed);
                return None;
            }
            let page = self.left.min(self.page);
            self.left -= page;
            Some((0..page).map(|_| self.below()).collect())
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_directory_is_looked_at_and_few_wait() {
        for (fan_out, depth, wanted) in [(3, 8, 9_841), (300, 2, 90_301), (20_000, 1, 20_001)] {
            let seen = Arc::new(AtomicUsize::new(0));
            let open = Arc::new(AtomicUsize::new(1));
            let open_max = Arc::new(AtomicUsize::new(1));
            let root = Branch {
                depth,
                left: fan_out,
                fan_out,
                page: 512,
                seen: Arc::clone(&seen),
                open: Arc::clone(&open),
                open_max: Arc::clone(&open_max),
            };
            visit_all(vec![root], 16).await;
            assert_eq!(seen.load(Relaxed), wanted);
            assert_eq!(open.load(Relaxed), 0);
            let most = open_max.load(Relaxed);
            assert!(most <= WAITING_MAX + 17 * 512, "{most} at once");
        }
    }

    #[tokio::test]
    async fn nothing_to_look_at_ends_at_once() {
        visit_all(Vec::<Branch>::new(), 4).await;
    }
}
