//! Free capacity, slot by slot.
//!
//! Each resource has an array with a number for each slot: arrays beat trees where intervals are
//! scanned, and a week of minutes is 80 KiB (`docs/algorithms/time-expanded-plan.md`).

use alloc::vec::Vec;
use posthaste_types::Bytes;

/// Free capacity of each resource in each slot. Takes never exceed it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calendar {
    free: Vec<Vec<u64>>,
}

impl Calendar {
    /// Returns a calendar without resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource with this capacity in each slot and none after them. Returns its place.
    pub fn add(&mut self, capacity: &[Bytes]) -> usize {
        self.free
            .push(capacity.iter().map(|bytes| bytes.get()).collect());
        self.free.len() - 1
    }

    /// Returns the capacity free in a slot on all resources of `path`; unlimited for an empty path.
    #[must_use]
    pub fn room(&self, path: &[usize], slot: usize) -> Bytes {
        let free = |resource: &usize| {
            let slots = self.free.get(*resource);
            slots
                .and_then(|slots| slots.get(slot))
                .copied()
                .unwrap_or(0)
        };
        Bytes::new(path.iter().map(free).min().unwrap_or(u64::MAX))
    }

    /// Takes as much of `bytes` as is free in a slot and returns that amount.
    pub fn take(&mut self, path: &[usize], slot: usize, bytes: Bytes) -> Bytes {
        let taken = bytes.min(self.room(path, slot));
        if taken > Bytes::ZERO {
            for &resource in path {
                self.free[resource][slot] -= taken.get();
            }
        }
        taken
    }

    /// Gives back bytes that were taken.
    pub fn give(&mut self, path: &[usize], slot: usize, bytes: Bytes) {
        for &resource in path {
            if let Some(free) = self
                .free
                .get_mut(resource)
                .and_then(|free| free.get_mut(slot))
            {
                *free = free.saturating_add(bytes.get());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn calendar(resources: &[&[u64]]) -> Calendar {
        let mut calendar = Calendar::new();
        for capacity in resources {
            let capacity: Vec<Bytes> = capacity.iter().map(|&bytes| Bytes::new(bytes)).collect();
            calendar.add(&capacity);
        }
        calendar
    }

    #[test]
    fn what_the_fullest_of_a_path_has_free_is_all_that_is_taken() {
        let mut book = calendar(&[&[5, 5], &[9, 2]]);
        assert_eq!(book.take(&[0, 1], 1, Bytes::new(7)), Bytes::new(2));
        assert_eq!(book.room(&[0, 1], 1), Bytes::ZERO);
        assert_eq!(book.room(&[0], 1), Bytes::new(3));
        assert_eq!(book.room(&[0, 1], 0), Bytes::new(5), "another slot");
        book.give(&[0, 1], 1, Bytes::new(2));
        assert_eq!(book, calendar(&[&[5, 5], &[9, 2]]));
    }

    proptest! {
        #[test]
        fn nothing_exceeds_capacity_and_giving_back_restores_exactly(
            capacities in proptest::collection::vec(proptest::collection::vec(0u64..50, 8), 3),
            asked in proptest::collection::vec((0usize..3, 0usize..3, 0usize..10, 0u64..90), 0..40),
        ) {
            let slices: Vec<&[u64]> = capacities.iter().map(Vec::as_slice).collect();
            let fresh = calendar(&slices);
            let mut book = fresh.clone();
            let mut held: Vec<(Vec<usize>, usize, Bytes)> = Vec::new();
            let used = |held: &[(Vec<usize>, usize, Bytes)], place: usize, slot: usize| {
                let of = held.iter().filter(|(path, at, _)| path.contains(&place) && *at == slot);
                of.map(|(_, _, bytes)| bytes.get()).sum::<u64>()
            };
            for (from, to, slot, bytes) in asked {
                let path = if from == to { vec![from] } else { vec![from, to] };
                // After the last slot nothing is free.
                let free = |place: &usize| {
                    let most = capacities[*place].get(slot).copied();
                    most.map_or(0, |most| most - used(&held, *place, slot))
                };
                let oracle = path.iter().map(free).min().unwrap_or(0).min(bytes);
                let taken = book.take(&path, slot, Bytes::new(bytes));
                prop_assert_eq!(taken.get(), oracle);
                held.push((path, slot, taken));
            }
            for (place, capacity) in capacities.iter().enumerate() {
                for (slot, &most) in capacity.iter().enumerate() {
                    let used = used(&held, place, slot);
                    prop_assert!(used <= most);
                    prop_assert_eq!(book.room(&[place], slot).get(), most - used);
                }
            }
            for (path, slot, bytes) in held {
                book.give(&path, slot, bytes);
            }
            prop_assert_eq!(book, fresh);
        }
    }
}
