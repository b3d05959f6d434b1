//! Attributes that files arrive without.

use std::{
    ops::AddAssign,
    sync::{Mutex, PoisonError},
};

/// Numbers of files, directories and links that arrived without an attribute that the destination
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

/// Count so far.
#[derive(Debug, Default)]
pub(crate) struct UnkeptCount(Mutex<Unkept>);

impl UnkeptCount {
    /// Adds to the count.
    pub(crate) fn add(&self, unkept: Unkept) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += unkept;
    }

    /// Returns the count.
    pub(crate) fn get(&self) -> Unkept {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subtracts the time of the trial file.
    pub(crate) fn without_trial(&self) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.times = counted.times.saturating_sub(1);
    }
}
