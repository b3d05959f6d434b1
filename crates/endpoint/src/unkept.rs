//! Counts of attributes that files arrived without.

use std::{
    ops::AddAssign,
    sync::{Mutex, PoisonError},
};

/// Number of files, directories and links that arrived without something that the destination
/// refuses to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unkept {
    /// Number without their mode.
    pub modes: u64,
    /// Number without their modification time.
    pub times: u64,
}

impl AddAssign for Unkept {
    fn add_assign(&mut self, other: Self) {
        self.modes += other.modes;
        self.times += other.times;
    }
}

/// Running counts of [`Unkept`].
#[derive(Debug, Default)]
pub(crate) struct UnkeptCount(Mutex<Unkept>);

impl UnkeptCount {
    /// Adds to the count.
    pub(crate) fn add(&self, unkept: Unkept) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += unkept;
    }

    /// Returns all counts.
    pub(crate) fn get(&self) -> Unkept {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Discounts the time of a file that was made to learn whether times are kept.
    pub(crate) fn without_trial(&self) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.times = counted.times.saturating_sub(1);
    }
}
