//! What files arrive without.

use std::ops::AddAssign;

/// How many files, directories and links arrived without something that the destination refuses to keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unkept {
    /// Without their mode.
    pub modes: u64,
    /// Without their modification time.
    pub times: u64,
}

impl AddAssign for Unkept {
    fn add_assign(&mut self, other: Self) {
        self.modes += other.modes;
        self.times += other.times;
    }
}
