//! Memory that the lists of all scans of a process take together.
//!
//! No owner's lists take more than what is free for those of others: one alone has half of it, two have a third each, and so on. So
//! something is always free, and whoever fills what they may keeps nobody else from a list of their own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::Bound;

/// Most bytes of all lists, of which one owner has half: the entries and the names that a list may have at most.
const BYTES_MAX: u64 = 16 << 30;
/// The least, on a machine with little memory.
const BYTES_MIN: u64 = 1 << 30;

/// Memory for lists.
#[derive(Debug)]
pub struct Room {
    most: u64,
    held: AtomicU64,
    freed: Notify,
}

/// Memory that the lists of one owner hold.
#[derive(Debug)]
pub struct Portion {
    room: Arc<Room>,
    held: AtomicU64,
}

/// Memory that one scan holds of its owner's portion, until this is dropped.
#[derive(Debug)]
pub struct Lent {
    portion: Arc<Portion>,
    held: AtomicU64,
    was_refused: AtomicBool,
}

impl Room {
    /// Half of what this machine has, 1 GiB at least and 16 GiB at most.
    #[must_use]
    pub fn of_machine() -> Arc<Self> {
        let machine = rustix::system::sysinfo();
        let all = machine.totalram.saturating_mul(machine.mem_unit.into());
        Self::new((all / 2).clamp(BYTES_MIN, BYTES_MAX))
    }

    /// So many bytes.
    #[must_use]
    pub fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            most,
            held: AtomicU64::new(0),
            freed: Notify::new(),
        })
    }

    /// Returns the portion of one more owner, which holds nothing yet.
    #[must_use]
    pub fn portion(self: &Arc<Self>) -> Arc<Portion> {
        Arc::new(Portion {
            room: Arc::clone(self),
            held: AtomicU64::new(0),
        })
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

impl Portion {
    /// Returns the share of one more scan, which holds nothing yet.
    #[must_use]
    pub fn lend(self: &Arc<Self>) -> Arc<Lent> {
        Arc::new(Lent {
            portion: Arc::clone(self),
            held: AtomicU64::new(0),
            was_refused: AtomicBool::new(false),
        })
    }
}

impl Lent {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// [`Bound::Memory`] where one alone could not have them either, else [`Bound::Others`].
    pub(super) fn take(&self, bytes: u64) -> Result<(), Bound> {
        let room = &self.portion.room;
        let add = |held: &AtomicU64| held.fetch_add(bytes, Relaxed).saturating_add(bytes);
        let (own, of_owner, all) = (add(&self.held), add(&self.portion.held), add(&room.held));
        if of_owner <= room.most.saturating_sub(all) {
            return Ok(());
        }
        if own > room.most / 2 {
            return Err(Bound::Memory);
        }
        self.was_refused.store(true, Relaxed);
        Err(Bound::Others)
    }

    /// Gives back what it took: its list is gone. Whether that was so because others held too much.
    pub fn give_back(&self) -> bool {
        let held = self.held.swap(0, Relaxed);
        self.portion.held.fetch_sub(held, Relaxed);
        self.portion.room.held.fetch_sub(held, Relaxed);
        self.portion.room.freed.notify_waiters();
        self.was_refused.swap(false, Relaxed)
    }

    /// Waits until others gave something back, or so long.
    pub async fn wait(&self, most: Duration) {
        // Late is another try as well.
        let _ = timeout(most, self.portion.room.freed.notified()).await;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the room a byte at a time; returns the bytes got and the bound that ended it.
    fn fill(lent: &Lent) -> (u64, Bound) {
        let mut got = 0;
        loop {
            match lent.take(1) {
                Ok(()) => got += 1,
                Err(bound) => return (got, bound),
            }
        }
    }

    #[test]
    fn nobody_fills_what_is_for_all() {
        let room = Room::new(1200);
        let owners = [(); 4].map(|()| room.portion());
        let first = owners[0].lend();
        assert_eq!(fill(&first), (600, Bound::Memory), "one alone has half");
        assert!(!first.give_back());
        let two = [owners[0].lend(), owners[0].lend()];
        two.iter()
            .for_each(|lent| (0..300).for_each(|_| lent.take(1).unwrap()));
        assert_eq!(two[0].take(1), Err(Bound::Others), "its owner has half");
        let (other, _) = fill(&owners[1].lend());
        assert_eq!(other, 299);
        let held: Vec<_> = owners[1..].iter().map(Portion::lend).collect();
        let got: Vec<u64> = held.iter().map(|lent| fill(lent).0).collect();
        assert!(got.iter().all(|got| *got > 70), "{got:?}");
        drop((first, two, held));
        assert_eq!(room.held(), 0);
    }

    #[tokio::test]
    async fn who_was_refused_hears_when_something_is_given_back() {
        let room = Room::new(100);
        let (one, other) = (room.portion().lend(), room.portion().lend());
        (0..40).for_each(|_| one.take(1).unwrap());
        let (got, bound) = fill(&other);
        assert_eq!((got, bound), (30, Bound::Others));
        assert!(other.give_back());
        let wait = other.wait(Duration::from_secs(3600));
        tokio::pin!(wait);
        assert!(futures_util::poll!(&mut wait).is_pending());
        drop(one);
        wait.await;
        assert_eq!(fill(&other), (50, Bound::Memory));
    }
}
