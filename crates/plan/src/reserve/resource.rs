//! A resource of the calendar.

use posthaste_types::{ByteRate, Timestamp, record};

use super::{Amount, Kind, NOT_OVERBOOKED_PERMILLE};
use crate::Curve;

record! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(super) struct Resource {
        pub(super) kind: Kind,
        pub(super) capacity: Amount,
        /// Thousandths of the capacity that are sold.
        pub(super) overbooked_permille: u64,
        /// Reserved amount. It is subtracted from the capacity only on demand, so that a change of
        /// the capacity changes nothing here.
        pub(super) used: Curve,
        /// Amount used without a reservation.
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
