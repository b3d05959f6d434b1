//! Shares of a common limit: no owner keeps others from theirs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Slots with a total limit and a lower limit for each owner.
#[derive(Debug)]
pub(crate) struct Shares {
    all: Arc<Semaphore>,
    each: usize,
    owners: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Slot, returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Shares {
    /// Creates `all` slots, of which one owner gets `each` at most.
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            each,
            owners: Mutex::default(),
        }
    }

    fn of(&self, owner: &str) -> Arc<Semaphore> {
        let owners = self.owners.lock();
        let mut owners = owners.unwrap_or_else(PoisonError::into_inner);
        // An owner without slots and waiters is forgotten.
        owners.retain(|_, own| Arc::strong_count(own) > 1);
        let own = owners.entry(owner.to_owned());
        Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(self.each))))
    }

    /// Waits for a slot: an owner at its share waits for its own first, in nobody's way.
    pub(crate) async fn enter(&self, owner: &str) -> Share {
        let of_own = self.of(owner);
        loop {
            let own = Arc::clone(&of_own).acquire_owned().await;
            let all = Arc::clone(&self.all).acquire_owned().await;
            // Neither is ever closed.
            if let (Ok(own), Ok(all)) = (own, all) {
                return Share {
                    _all: all,
                    _own: own,
                };
            }
        }
    }

    /// Returns a slot if one is free now.
    pub(crate) fn try_enter(&self, owner: &str) -> Option<Share> {
        let own = self.of(owner).try_acquire_owned().ok()?;
        let all = Arc::clone(&self.all).try_acquire_owned().ok()?;
        Some(Share {
            _all: all,
            _own: own,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_their_share_keeps_nobody_from_theirs() {
        let shares = Shares::new(3, 2);
        let first = [shares.try_enter("alice"), shares.try_enter("alice")];
        assert!(first.iter().all(Option::is_some));
        assert!(shares.try_enter("alice").is_none());
        let other = shares.try_enter("bob");
        assert!(other.is_some());
        assert!(shares.try_enter("bob").is_none(), "all are taken");
        drop(first);
        assert!(shares.try_enter("bob").is_some());
        drop(other);
        drop(shares.try_enter("carol"));
        assert_eq!(shares.owners.lock().unwrap().len(), 1);
    }
}
