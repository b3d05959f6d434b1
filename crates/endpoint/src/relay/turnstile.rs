//! Queue for a few connections: the request that is due first goes first, not the one that asked
//! first.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use posthaste_types::Timestamp;
use tokio::sync::oneshot;

/// Urgency of a request among those that wait for a connection to the same relay. Equal ones are
/// served in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Haste {
    /// Before all that have a time: it is small, or somebody waits for it.
    #[default]
    Now,
    /// Due by this moment.
    By(Timestamp),
    /// After all others.
    Whenever,
}

/// Semaphore with priorities.
#[derive(Debug)]
pub(super) struct Turnstile {
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    free: usize,
    /// Waiting requests, by urgency, then by arrival.
    waiting: BTreeMap<(Haste, u64), oneshot::Sender<Pass>>,
    came: u64,
}

/// Permit of the semaphore. Dropping it admits the next request.
#[derive(Debug)]
pub(super) struct Pass {
    turnstile: Arc<Turnstile>,
}

impl Queue {
    /// Releases one permit. Returns the next request that still waits.
    fn leave(&mut self) -> Option<oneshot::Sender<Pass>> {
        while let Some((_, next)) = self.waiting.pop_first() {
            if !next.is_closed() {
                return Some(next);
            }
        }
        self.free += 1;
        None
    }
}

impl Turnstile {
    pub(super) fn new(at_once: usize) -> Arc<Self> {
        let queue = Queue {
            free: at_once,
            waiting: BTreeMap::new(),
            came: 0,
        };
        Arc::new(Self {
            queue: Mutex::new(queue),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. A caller that stops waiting is skipped.
    pub(super) async fn pass(self: &Arc<Self>, haste: Haste) -> Pass {
        loop {
            let turn = {
                let mut queue = self.queue();
                if queue.free > 0 {
                    queue.free -= 1;
                    return Pass {
                        turnstile: Arc::clone(self),
                    };
                }
                let (sender, turn) = oneshot::channel();
                let place = (haste, queue.came);
                queue.came += 1;
                queue.waiting.insert(place, sender);
                turn
            };
            // A sender is only dropped once its permit was sent.
            if let Ok(pass) = turn.await {
                return pass;
            }
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let next = self.turnstile.queue().leave();
        if let Some(next) = next {
            // A caller that stops waiting just now drops the permit, which admits the next one.
            let _ = next.send(Self {
                turnstile: Arc::clone(&self.turnstile),
            });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on fails")]
mod tests {
    use super::*;
    use tokio::{
        sync::mpsc,
        task::{AbortHandle, JoinSet, yield_now},
    };

    fn by(second: u64) -> Haste {
        Haste::By(Timestamp::from_micros(second * 1_000_000))
    }

    /// Waits for a permit and reports it.
    async fn comes(
        waiting: &mut JoinSet<()>,
        turnstile: &Arc<Turnstile>,
        haste: Haste,
        name: &'static str,
        through: &mpsc::Sender<&'static str>,
    ) -> AbortHandle {
        let (turnstile, through) = (Arc::clone(turnstile), through.clone());
        let waits = waiting.spawn(async move {
            let _pass = turnstile.pass(haste).await;
            through.send(name).await.unwrap();
        });
        yield_now().await;
        waits
    }

    #[tokio::test]
    async fn who_is_due_first_is_next_and_those_alike_as_they_came() {
        let turnstile = Turnstile::new(1);
        let (mut waiting, (through, mut seen)) = (JoinSet::new(), mpsc::channel(8));
        let pass = turnstile.pass(Haste::Whenever).await;
        for (haste, name) in [
            (Haste::Whenever, "last"),
            (by(9), "late"),
            (by(5), "early"),
            (by(5), "early too"),
            (Haste::Now, "first"),
        ] {
            comes(&mut waiting, &turnstile, haste, name, &through).await;
        }
        drop((pass, through));
        let mut order = Vec::new();
        while let Some(name) = seen.recv().await {
            order.push(name);
        }
        assert_eq!(order, ["first", "early", "early too", "late", "last"]);
    }

    #[tokio::test]
    async fn as_many_are_through_as_may_be_and_who_gives_up_costs_none_of_them() {
        let turnstile = Turnstile::new(2);
        let (mut waiting, (through, mut seen)) = (JoinSet::new(), mpsc::channel(8));
        let passes = [
            turnstile.pass(Haste::Now).await,
            turnstile.pass(Haste::Now).await,
        ];
        for second in 1..3 {
            comes(&mut waiting, &turnstile, by(second), "gives up", &through)
                .await
                .abort();
            let ended = waiting.join_next().await;
            assert!(ended.unwrap().unwrap_err().is_cancelled());
        }
        comes(&mut waiting, &turnstile, by(3), "stays", &through).await;
        assert!(seen.try_recv().is_err(), "two are through");
        drop(passes);
        assert_eq!(seen.recv().await, Some("stays"));
        let again = [
            turnstile.pass(by(1)).await,
            turnstile.pass(Haste::Whenever).await,
        ];
        comes(&mut waiting, &turnstile, Haste::Now, "third", &through).await;
        assert!(seen.try_recv().is_err(), "two are through again");
        drop(again);
        assert_eq!(seen.recv().await, Some("third"));
    }
}
