//! Turns: the right to move a body now.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Length of a turn: short enough that the tenth in line gets its own before it suspects a stall,
/// long enough to fill a path.
const TURN: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Active {
    number: u64,
    slots: u32,
    until: Instant,
}

#[derive(Debug, Default)]
struct Books {
    active: Vec<Active>,
    turns: u64,
}

/// Bounded number of turns at once, in the order of asking. A turn ends by itself, so a client that
/// has one and reads nothing stops nobody else.
#[derive(Debug)]
pub(super) struct Turns {
    slots_max: u32,
    first_in_line: tokio::sync::Mutex<()>,
    books: Mutex<Books>,
    ended: Notify,
}

impl Turns {
    pub(super) fn new(slots_max: u32) -> Arc<Self> {
        Arc::new(Self {
            slots_max,
            first_in_line: tokio::sync::Mutex::default(),
            books: Mutex::default(),
            ended: Notify::new(),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the next turn, which counts for so many.
    pub(super) async fn begin(self: &Arc<Self>, slots: u32) -> Turn {
        let slots = slots.min(self.slots_max);
        let _line = self.first_in_line.lock().await;
        loop {
            let now = Instant::now();
            let next = {
                let mut books = self.books();
                books.active.retain(|active| active.until > now);
                let used: u32 = books.active.iter().map(|active| active.slots).sum();
                if used + slots <= self.slots_max {
                    let (number, until) = (books.turns, now + TURN);
                    books.turns += 1;
                    books.active.push(Active {
                        number,
                        slots,
                        until,
                    });
                    let turns = Arc::clone(self);
                    return Turn {
                        turns,
                        number,
                        until,
                    };
                }
                books.active.iter().map(|active| active.until).min()
            };
            tokio::select! {
                () = self.ended.notified() => {}
                () = sleep_until(next.unwrap_or(now)) => {}
            }
        }
    }
}

/// Right to move a body, for a while.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    number: u64,
    until: Instant,
}

impl Turn {
    pub(super) fn is_over(&self) -> bool {
        self.until <= Instant::now()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut books = self.turns.books();
        books.active.retain(|active| active.number != self.number);
        drop(books);
        self.turns.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_have_a_turn_than_may_and_who_holds_one_forever_stops_nobody() {
        let turns = Turns::new(2);
        let start = Instant::now();
        let stuck = turns.begin(1).await;
        let mut last = None;
        for number in 0..4u32 {
            let turn = turns.begin(1).await;
            assert!(turns.books().active.len() <= 2);
            // The stuck one costs nobody more than its own turn.
            assert!(start.elapsed() <= TURN * number, "{number}");
            last = Some(turn);
        }
        assert!(stuck.is_over());
        drop(last);
        let begun = Instant::now();
        let all = turns.begin(9).await;
        assert!(begun.elapsed() <= TURN);
        assert_eq!(turns.books().active.len(), 1);
        let waits = tokio::time::timeout(TURN / 2, turns.begin(1)).await;
        assert!(
            waits.is_err(),
            "one that counts for all leaves room for none"
        );
        drop(all);
        let begun = Instant::now();
        let _next = turns.begin(1).await;
        assert_eq!(
            begun.elapsed(),
            Duration::ZERO,
            "what ends early is free at once"
        );
    }
}
