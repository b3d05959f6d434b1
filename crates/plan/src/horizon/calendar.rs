//! The book of what is free, slot by slot.
//!
//! An array a resource, a number a slot: arrays beat trees where intervals are scanned, and a week of
//! minutes is 80 KiB (`docs/algorithms/time-expanded-plan.md`).

use alloc::vec::Vec;
use core::ops::Range;
use posthaste_types::Bytes;

/// What was taken for somebody over some resources in a row, the same amount of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reservation {
    /// The resources.
    pub path: Vec<usize>,
    /// The slots it may use.
    pub window: Range<usize>,
    /// How much in each slot, by slot.
    pub slots: Vec<(usize, Bytes)>,
}

impl Reservation {
    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> Bytes {
        self.slots.iter().map(|(_, bytes)| *bytes).sum()
    }

    /// The slot after which it is complete; none when it is empty.
    #[must_use]
    pub fn finish(&self) -> Option<usize> {
        self.slots.last().map(|(slot, _)| slot + 1)
    }
}

/// What is free of each resource in each slot. Nothing taken ever exceeds what is free.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calendar {
    free: Vec<Vec<u64>>,
}

impl Calendar {
    /// A book without resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource with this much in each slot, and nothing behind them. Returns its place.
    pub fn add(&mut self, capacity: &[Bytes]) -> usize {
        self.free
            .push(capacity.iter().map(|bytes| bytes.get()).collect());
        self.free.len() - 1
    }

    /// What is free in a slot over all resources of `path` in a row; endless over none.
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

    /// Takes as much of `bytes` as is free in a slot and returns how much that was.
    pub fn take(&mut self, path: &[usize], slot: usize, bytes: Bytes) -> Bytes {
        let taken = bytes.min(self.room(path, slot));
        if taken > Bytes::ZERO {
            for &resource in path {
                self.free[resource][slot] -= taken.get();
            }
        }
        taken
    }

    /// Gives back what was taken.
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

    /// Reserves `bytes` as early as possible within `window`; none, and nothing taken, when they don't
    /// fit. One visit a slot.
    pub fn earliest(
        &mut self,
        path: &[usize],
        window: Range<usize>,
        bytes: Bytes,
    ) -> Option<Reservation> {
        let slots = window.clone();
        self.fill(path, window, bytes, slots)
    }

    /// Reserves `bytes` as late as possible within `window`; none, and nothing taken, when they don't
    /// fit. With [`Calendar::pull_back`] this is how requests are admitted one by one: whoever comes
    /// later finds the early slots free, and none of them stays idle.
    pub fn latest(
        &mut self,
        path: &[usize],
        window: Range<usize>,
        bytes: Bytes,
    ) -> Option<Reservation> {
        let slots = window.clone().rev();
        self.fill(path, window, bytes, slots)
    }

    fn fill(
        &mut self,
        path: &[usize],
        window: Range<usize>,
        bytes: Bytes,
        slots: impl Iterator<Item = usize>,
    ) -> Option<Reservation> {
        let mut made = Reservation {
            path: path.to_vec(),
            window,
            slots: Vec::new(),
        };
        let mut left = bytes;
        for slot in slots {
            if left == Bytes::ZERO {
                break;
            }
            let taken = self.take(path, slot, left);
            if taken > Bytes::ZERO {
                left -= taken;
                made.slots.push((slot, taken));
            }
        }
        made.slots.sort_unstable();
        if left > Bytes::ZERO {
            self.cancel(&made);
            return None;
        }
        Some(made)
    }

    /// Undoes a reservation: all is as if it had never been.
    pub fn cancel(&mut self, reservation: &Reservation) {
        for &(slot, bytes) in &reservation.slots {
            self.give(&reservation.path, slot, bytes);
        }
    }

    /// Fills what is idle in `slot` from later slots: each reservation, in the given order, brings
    /// forward what it has last, as far as its window and the resources allow. Nobody ends later.
    /// One visit for each slot that is emptied and each reservation.
    pub fn pull_back(&mut self, slot: usize, reservations: &mut [Reservation]) {
        for reservation in reservations {
            if !reservation.window.contains(&slot) {
                continue;
            }
            let mut brought = Bytes::ZERO;
            while let Some((last, bytes)) = reservation.slots.pop() {
                if last <= slot {
                    reservation.slots.push((last, bytes));
                    break;
                }
                let taken = self.take(&reservation.path, slot, bytes);
                self.give(&reservation.path, last, taken);
                brought += taken;
                if taken < bytes {
                    reservation.slots.push((last, bytes - taken));
                    break;
                }
            }
            if brought > Bytes::ZERO {
                let place = reservation.slots.partition_point(|(at, _)| *at < slot);
                match reservation.slots.get_mut(place) {
                    Some((at, bytes)) if *at == slot => *bytes += brought,
                    _ => reservation.slots.insert(place, (slot, brought)),
                }
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

    fn in_slots(reservation: &Reservation) -> Vec<(usize, u64)> {
        let plain = |&(slot, bytes): &(usize, Bytes)| (slot, bytes.get());
        reservation.slots.iter().map(plain).collect()
    }

    #[test]
    fn early_is_from_the_left_and_late_from_the_right() {
        let mut book = calendar(&[&[5, 5, 5, 5], &[9, 2, 9, 9]]);
        let late = book.latest(&[0, 1], 0..4, Bytes::new(7)).unwrap();
        assert_eq!(in_slots(&late), [(2, 2), (3, 5)]);
        let early = book.earliest(&[0, 1], 0..4, Bytes::new(8)).unwrap();
        assert_eq!(in_slots(&early), [(0, 5), (1, 2), (2, 1)]);
        assert_eq!(early.finish(), Some(3));
        assert_eq!(book.earliest(&[0, 1], 0..4, Bytes::new(3)), None);
    }

    #[test]
    fn idle_slots_are_filled_from_behind() {
        let mut book = calendar(&[&[5, 5, 5, 5]]);
        let mut held = vec![
            book.latest(&[0], 0..4, Bytes::new(7)).unwrap(),
            book.latest(&[0], 1..3, Bytes::new(4)).unwrap(),
        ];
        assert_eq!(in_slots(&held[1]), [(1, 1), (2, 3)]);
        book.pull_back(0, &mut held);
        assert_eq!(in_slots(&held[0]), [(0, 5), (2, 2)]);
        assert_eq!(in_slots(&held[1]), [(1, 1), (2, 3)], "its window is later");
        book.pull_back(1, &mut held);
        assert_eq!(in_slots(&held[0]), [(0, 5), (1, 2)]);
        assert_eq!(in_slots(&held[1]), [(1, 3), (2, 1)]);
    }

    /// The oracle: the first slot after which all that fits is enough, or none.
    fn first_enough(free: &[u64], window: Range<usize>, bytes: u64) -> Option<usize> {
        (window.start..=window.end)
            .find(|&end| free[window.start..end].iter().sum::<u64>() >= bytes)
    }

    proptest! {
        #[test]
        fn the_earliest_finish_is_that_of_brute_force(
            one in proptest::collection::vec(0u64..20, 1..=12),
            other in proptest::collection::vec(0u64..20, 12),
            bytes in 1u64..120, first in 0usize..12, end in 0usize..=12,
        ) {
            let window = first.min(one.len())..end.min(one.len());
            prop_assume!(window.start <= window.end);
            let other = &other[..one.len()];
            let free: Vec<u64> = one.iter().zip(other).map(|(a, b)| *a.min(b)).collect();
            let mut book = calendar(&[&one, other]);
            let early = book.earliest(&[0, 1], window.clone(), Bytes::new(bytes));
            let oracle = first_enough(&free, window.clone(), bytes);
            prop_assert_eq!(early.as_ref().and_then(Reservation::finish), oracle);
            // As late as possible fits when as early as possible does.
            let late = calendar(&[&one, other]).latest(&[0, 1], window.clone(), Bytes::new(bytes));
            prop_assert_eq!(late.is_some(), oracle.is_some());
            if let Some(late) = late {
                // No later start would do.
                let start = late.slots[0].0;
                let after: u64 = free[start + 1..window.end].iter().sum();
                prop_assert!(after < bytes);
            }
        }

        #[test]
        fn nothing_exceeds_capacity_and_cancelling_restores_exactly(
            capacities in proptest::collection::vec(proptest::collection::vec(0u64..50, 8), 3),
            asked in proptest::collection::vec((0usize..3, 0usize..3, 0usize..8, 0usize..=8, 0u64..90, any::<bool>()), 0..10),
            pulls in proptest::collection::vec(0usize..8, 0..8),
        ) {
            let slices: Vec<&[u64]> = capacities.iter().map(Vec::as_slice).collect();
            let fresh = calendar(&slices);
            let mut book = fresh.clone();
            let mut held: Vec<Reservation> = Vec::new();
            for (from, to, first, end, bytes, is_late) in asked {
                let path = if from == to { vec![from] } else { vec![from, to] };
                let window = first.min(end)..end;
                let bytes = Bytes::new(bytes);
                let before = book.clone();
                let made = if is_late {
                    book.latest(&path, window, bytes)
                } else {
                    book.earliest(&path, window, bytes)
                };
                match made {
                    Some(made) => {
                        prop_assert_eq!(made.bytes(), bytes);
                        held.push(made);
                    }
                    None => prop_assert_eq!(&book, &before, "a refusal takes nothing"),
                }
            }
            let before: Vec<(Bytes, Option<usize>)> =
                held.iter().map(|held| (held.bytes(), held.finish())).collect();
            for slot in pulls {
                book.pull_back(slot, &mut held);
            }
            for (held, (bytes, finish)) in held.iter().zip(before) {
                prop_assert_eq!(held.bytes(), bytes);
                prop_assert!(held.finish() <= finish, "nobody ends later");
                prop_assert!(held.slots.iter().all(|(slot, _)| held.window.contains(slot)));
            }
            for (place, capacity) in capacities.iter().enumerate() {
                for (slot, &most) in capacity.iter().enumerate() {
                    let used: u64 = held.iter()
                        .filter(|held| held.path.contains(&place))
                        .flat_map(|held| &held.slots)
                        .filter(|(at, _)| *at == slot)
                        .map(|(_, bytes)| bytes.get())
                        .sum();
                    prop_assert!(used <= most);
                    prop_assert_eq!(book.room(&[place], slot).get(), most - used);
                }
            }
            for held in &held {
                book.cancel(held);
            }
            prop_assert_eq!(book, fresh);
        }
    }
}
