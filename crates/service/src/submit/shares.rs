//! Shares of a common limit: no owner keeps others from theirs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// So many places for all together, and fewer for each owner. Nobody gets another while they have as many as are free for all: the more
/// owners want some, the fewer each has, and few owners never have all of them.
#[derive(Debug)]
pub(crate) struct Shares {
    all: usize,
    each: usize,
    owners: Mutex<HashMap<String, Arc<Owner>>>,
    taken: Mutex<usize>,
    /// A place was given back.
    freed: Notify,
}

#[derive(Debug)]
struct Owner {
    /// Owner's own slots: a request beyond them waits here and holds up no other owner.
    places: Arc<Semaphore>,
    has: Mutex<usize>,
}

/// Slot, returned when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Arc<Shares>,
    owner: Arc<Owner>,
    _own: OwnedSemaphorePermit,
}

impl Drop for Share {
    fn drop(&mut self) {
        *locked(&self.shares.taken) -= 1;
        *locked(&self.owner.has) -= 1;
        self.shares.freed.notify_waiters();
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shares {
    /// `all` places, `each` of them for one owner at most.
    pub(crate) fn new(all: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            all,
            each,
            owners: Mutex::default(),
            taken: Mutex::default(),
            freed: Notify::new(),
        })
    }

    fn of(&self, owner: &str) -> Arc<Owner> {
        let mut owners = locked(&self.owners);
        // Who has no place and waits for none is forgotten.
        owners.retain(|_, own| Arc::strong_count(own) > 1);
        let own = owners.entry(owner.to_owned()).or_insert_with(|| {
            Arc::new(Owner {
                places: Arc::new(Semaphore::new(self.each)),
                has: Mutex::default(),
            })
        });
        Arc::clone(own)
    }

    /// A place, once there is one: who has their share waits for their own first, in nobody's way.
    pub(crate) async fn enter(self: &Arc<Self>, owner: &str) -> Share {
        let owner = self.of(owner);
        let mut own = None;
        loop {
            // What is freed from here on is heard of.
            let freed = self.freed.notified();
            let has_own = match own.take() {
                Some(own) => Some(own),
                // They are never closed.
                None => Arc::clone(&owner.places).acquire_owned().await.ok(),
            };
            match has_own.map(|own| self.take(&owner, own)) {
                Some(Ok(share)) => return share,
                Some(Err(kept)) => own = Some(kept),
                None => {}
            }
            freed.await;
        }
    }

    /// Returns a slot if one is free now.
    pub(crate) fn try_enter(self: &Arc<Self>, owner: &str) -> Option<Share> {
        let owner = self.of(owner);
        let own = Arc::clone(&owner.places).try_acquire_owned().ok()?;
        self.take(&owner, own).ok()
    }

    /// Takes a slot for an owner below the own limit, if enough are free.
    fn take(
        self: &Arc<Self>,
        owner: &Arc<Owner>,
        own: OwnedSemaphorePermit,
    ) -> Result<Share, OwnedSemaphorePermit> {
        let (mut taken, mut has) = (locked(&self.taken), locked(&owner.has));
        if *has >= self.all - *taken {
            return Err(own);
        }
        *taken += 1;
        *has += 1;
        Ok(Share {
            shares: Arc::clone(self),
            owner: Arc::clone(owner),
            _own: own,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_their_share_keeps_nobody_from_theirs() {
        let shares = Shares::new(4, 2);
        let first = [shares.try_enter("alice"), shares.try_enter("alice")];
        assert!(first.iter().all(Option::is_some));
        assert!(shares.try_enter("alice").is_none());
        let other = shares.try_enter("bob");
        assert!(other.is_some());
        assert!(shares.try_enter("bob").is_none(), "the last is for another");
        let last = shares.try_enter("carol");
        assert!(last.is_some());
        assert!(shares.try_enter("dave").is_none(), "all are taken");
        drop((first, last));
        assert!(shares.try_enter("bob").is_some());
        drop(other);
        drop(shares.try_enter("carol"));
        assert_eq!(shares.owners.lock().unwrap().len(), 1);
        assert_eq!(*shares.taken.lock().unwrap(), 0);
    }

    #[test]
    fn few_owners_never_have_all_places() {
        let shares = Shares::new(40, 10);
        let mut taken = Vec::new();
        for owner in ["alice", "bob", "carol", "dave"] {
            taken.extend(std::iter::from_fn(|| shares.try_enter(owner)));
        }
        assert_eq!(
            taken.len(),
            35,
            "the last of four has half of what was left"
        );
        assert!(shares.try_enter("erin").is_some());
    }

    #[tokio::test]
    async fn who_waits_gets_what_another_gives_back() {
        let shares = Shares::new(2, 2);
        let first = shares.try_enter("alice").unwrap();
        assert!(shares.try_enter("alice").is_none());
        let wait = shares.enter("alice");
        tokio::pin!(wait);
        assert!(futures_util::poll!(&mut wait).is_pending());
        drop(first);
        drop(wait.await);
        let both = [shares.try_enter("bob"), shares.try_enter("carol")];
        assert!(both.iter().all(Option::is_some));
        let wait = shares.enter("alice");
        tokio::pin!(wait);
        assert!(futures_util::poll!(&mut wait).is_pending());
        drop(both);
        drop(wait.await);
    }
}
