//! Serialises submissions of an id: of two at once the second finds the record of the first.

use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, PoisonError},
};

/// Ids being submitted.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<BTreeSet<String>>,
    given_back: Condvar,
}

/// Right to submit under an id, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Turns, Option<&'a str>);

impl Turns {
    /// Waits until no other submission uses this id. Without an id it returns at once. Blocking.
    pub(crate) fn wait<'a>(&'a self, id: Option<&'a str>) -> Turn<'a> {
        if let Some(id) = id {
            let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            let free = self
                .given_back
                .wait_while(taken, |taken| taken.contains(id));
            let mut taken = free.unwrap_or_else(PoisonError::into_inner);
            taken.insert(id.to_owned());
        }
        Turn(self, id)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Self(turns, Some(id)) = self else {
            return;
        };
        let taken = turns.taken.lock();
        taken.unwrap_or_else(PoisonError::into_inner).remove(*id);
        turns.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    #[test]
    fn the_second_of_one_id_waits_for_the_first() {
        let (turns, is_written) = (Turns::default(), AtomicBool::new(false));
        let first = turns.wait(Some("a"));
        drop((turns.wait(Some("b")), turns.wait(None)));
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let _turn = turns.wait(Some("a"));
                is_written.load(SeqCst)
            });
            is_written.store(true, SeqCst);
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(turns.taken.lock().unwrap().is_empty());
    }
}
