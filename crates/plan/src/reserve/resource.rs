//! One resource of the calendar.

use posthaste_types::{ByteRate, Timestamp, record};

use super::{Amount, Kind, NOT_OVERBOOKED_PERMILLE};
use crate::Curve;

record! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct Resource {
        pub(super) kind: Kind,
        pub(super) capacity: Amount,
        /// Of the capacity, how much is sold.
        pub(super) overbooked_permille: u64,
        /// What is taken. Of the capacity it is only ever subtracted when somebody asks, so that a capacity that
        /// changes changes nothing here.
        pub(super) used: Curve,
        /// What is taken besides.
        pub(super) outside: Curve,
    }
}

impl Resource {
    pub(super) fn sold(&self) -> Amount {
        let sold = self
            .capacity
            .rate()
            .scaled(self.overbooked_permille, NOT_OVERBOOKED_PERMILLE);
        Amount::of_link(sold)
    }

    pub(super) fn free_at(&self, at: Timestamp) -> Amount {
        let taken = [&self.used, &self.outside].map(|curve| curve.rate_at(at).get());
        let sold = self.sold().rate().get();
        let free = sold.saturating_sub(taken[0].saturating_add(taken[1]));
        Amount::of_link(ByteRate::new(free))
    }

    pub(super) fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        let changes = [&self.used, &self.outside].map(|curve| curve.next_change(at));
        changes.into_iter().flatten().min()
    }
}
