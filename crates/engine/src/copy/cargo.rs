//! Bytes that an attempt moves, counted as they leave. In the end, bytes that arrived count once,
//! and others do not count.

use std::sync::{Arc, Mutex, PoisonError};

use posthaste_endpoint::{Counter, Outgoing};

use super::progress::Moving;

/// Files, or a piece of one, that one attempt moves one after the other.
#[derive(Debug)]
pub(super) struct Cargo {
    hold: Mutex<Hold>,
}

#[derive(Debug)]
struct Hold {
    items: Vec<Item>,
    /// Index of the first item that has not left completely.
    at: usize,
    /// Bytes that left beside these: names, and bytes sent more than once.
    surplus: u64,
    /// The attempt is over: later counts are ignored.
    is_settled: bool,
}

#[derive(Debug)]
struct Item {
    moving: Arc<Moving>,
    /// Turn of the file in which this moves.
    turn: u64,
    bytes: u64,
    left: u64,
}

impl Cargo {
    /// Returns a cargo of so many bytes of each of these.
    pub(super) fn new<'a>(items: impl Iterator<Item = (&'a Arc<Moving>, u64)>) -> Arc<Self> {
        let items = items.map(|(moving, bytes)| Item {
            moving: Arc::clone(moving),
            turn: moving.turn(),
            bytes,
            left: 0,
        });
        Arc::new(Self {
            hold: Mutex::new(Hold {
                items: items.collect(),
                at: 0,
                surplus: 0,
                is_settled: false,
            }),
        })
    }

    /// Returns a cargo of so many bytes of this one.
    pub(super) fn of(moving: &Arc<Moving>, bytes: u64) -> Arc<Self> {
        Self::new(std::iter::once((moving, bytes)))
    }

    fn hold(&self) -> std::sync::MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the attempt, whose result says of each item whether it arrived. If the attempt is
    /// dropped, nothing arrived, unless all had left: then the caller knows better than to wait for
    /// the answer.
    pub(super) async fn carry<T>(
        self: &Arc<Self>,
        attempt: impl Future<Output = T>,
        arrived: impl FnOnce(&T) -> Vec<bool>,
    ) -> T {
        let _settling = Settling(self);
        let counter: Arc<dyn Counter> = Arc::<Self>::clone(self);
        let outcome = Outgoing::new(counter).cover(attempt).await;
        self.hold().settle(&arrived(&outcome));
        outcome
    }

    /// Runs an attempt that brings all of it or nothing, else like [`Cargo::carry`].
    pub(super) async fn carry_all<T, E>(
        self: &Arc<Self>,
        attempt: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let items = self.hold().items.len();
        let arrived = |outcome: &Result<T, E>| vec![outcome.is_ok(); items];
        self.carry(attempt, arrived).await
    }

    /// Takes all counts back: the attempt is given up.
    pub(super) fn give_up(&self) {
        self.hold().settle(&[]);
    }
}

/// Guard that settles the cargo if nobody did.
struct Settling<'a>(&'a Cargo);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut hold = self.0.hold();
        let all = vec![hold.at == hold.items.len(); hold.items.len()];
        hold.settle(&all);
    }
}

impl Counter for Cargo {
    fn left(&self, bytes: u64) {
        self.hold().left(bytes);
    }

    fn came_back(&self, bytes: u64) {
        self.hold().came_back(bytes);
    }
}

impl Hold {
    fn left(&mut self, mut bytes: u64) {
        if self.is_settled {
            return;
        }
        while let Some(item) = self.items.get_mut(self.at) {
            let now = bytes.min(item.bytes - item.left);
            item.set(item.left + now);
            bytes -= now;
            if item.left < item.bytes {
                return;
            }
            self.at += 1;
        }
        self.surplus += bytes;
    }

    fn came_back(&mut self, mut bytes: u64) {
        if self.is_settled {
            return;
        }
        let beside = bytes.min(self.surplus);
        self.surplus -= beside;
        bytes -= beside;
        while bytes > 0 {
            if let Some(item) = self.items.get_mut(self.at) {
                let now = bytes.min(item.left);
                item.set(item.left - now);
                bytes -= now;
            }
            if bytes == 0 || self.at == 0 {
                return;
            }
            self.at -= 1;
        }
    }

    /// Counts whole items that arrived and takes back the rest.
    fn settle(&mut self, arrived: &[bool]) {
        if self.is_settled {
            return;
        }
        self.is_settled = true;
        for (place, item) in self.items.iter_mut().enumerate() {
            match arrived.get(place) {
                Some(true) => item.set(item.bytes),
                Some(false) | None => item.set(0),
            }
        }
    }
}

impl Item {
    fn set(&mut self, left: u64) {
        match left.checked_sub(self.left) {
            Some(0) => {}
            // What an earlier turn still sends arrives nowhere.
            Some(_) if self.moving.turn() != self.turn => {}
            Some(more) => self.moving.sent(more),
            None => self.moving.lost(self.left - left, self.turn),
        }
        self.left = left;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;
    use crate::copy::Progress;

    fn two(progress: &Arc<Progress>) -> (Vec<Arc<Moving>>, Arc<Cargo>) {
        let start = |name: &str, size| Arc::new(progress.start(name.to_owned(), size));
        let moving = vec![start("a", 100), start("b", 50)];
        let cargo = Cargo::new(moving.iter().zip([100, 50]));
        (moving, cargo)
    }

    fn done(progress: &Progress) -> (u64, Vec<u64>) {
        let each = progress.current();
        let each = each.iter().map(|current| current.done()).collect();
        (progress.figures().bytes, each)
    }

    #[tokio::test]
    async fn what_failed_is_taken_back_and_counts_once_when_it_was_tried_again() {
        let progress = Arc::new(Progress::default());
        let moving = Arc::new(progress.start("a".to_owned(), 100));
        let cargo = Cargo::of(&moving, 100);
        let counter = Arc::clone(&cargo);
        let failing = async {
            counter.left(70);
            assert_eq!(done(&progress), (70, vec![70]), "it counts as it goes");
            Err::<(), ()>(())
        };
        assert!(cargo.carry_all(failing).await.is_err());
        assert_eq!(done(&progress), (0, vec![0]));
        cargo.left(30);
        assert_eq!(done(&progress), (0, vec![0]), "who is late was counted");
        let again = Cargo::of(&moving, 100);
        // The endpoint sends it twice, and says how long its own words were.
        again.left(100);
        again.left(40);
        assert_eq!(done(&progress), (100, vec![100]));
        again.came_back(60);
        assert_eq!(done(&progress), (80, vec![80]));
        again.carry_all(ready(Ok::<(), ()>(()))).await.unwrap();
        assert_eq!(done(&progress), (100, vec![100]));
    }

    #[tokio::test]
    async fn what_an_earlier_turn_sends_or_takes_back_counts_no_more() {
        let progress = Arc::new(Progress::default());
        let moving = Arc::new(progress.start("a".to_owned(), 100));
        let [old, late] = [(); 2].map(|()| Cargo::of(&moving, 100));
        old.left(70);
        moving.start_over();
        let new = Cargo::of(&moving, 100);
        new.left(20);
        old.give_up();
        late.left(50);
        late.give_up();
        assert_eq!(done(&progress), (20, vec![20]));
    }

    #[tokio::test]
    async fn a_bundle_fills_its_files_in_order_and_keeps_those_that_arrived() {
        let progress = Arc::new(Progress::default());
        let (_moving, cargo) = two(&progress);
        cargo.left(60);
        cargo.left(60);
        assert_eq!(done(&progress), (120, vec![100, 20]));
        cargo.came_back(30);
        assert_eq!(done(&progress), (90, vec![90, 0]));
        cargo.carry(ready(()), |()| vec![false, true]).await;
        assert_eq!(done(&progress), (50, vec![0, 50]));
    }

    #[tokio::test]
    async fn an_attempt_that_is_dropped_counts_if_all_of_it_had_left() {
        for (left, counted) in [(120, 0), (150, 150)] {
            let progress = Arc::new(Progress::default());
            let (_moving, cargo) = two(&progress);
            {
                let attempt = cargo.carry_all(pending::<Result<(), ()>>());
                tokio::pin!(attempt);
                assert!((&mut attempt).now_or_never().is_none());
                cargo.left(left);
            }
            assert_eq!(progress.figures().bytes, counted);
        }
    }

    #[tokio::test]
    async fn an_attempt_that_is_given_up_counts_nothing() {
        let progress = Arc::new(Progress::default());
        let (_moving, cargo) = two(&progress);
        cargo.left(150);
        cargo.give_up();
        assert_eq!(done(&progress), (0, vec![0, 0]));
    }
}
