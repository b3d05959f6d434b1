use posthaste_types::Timestamp;

use crate::{Curve, Supplies, Windows};

/// A depot that is closed to one load at some times, though others may use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Place of the depot among the supplies.
    pub supply: usize,
    /// Hours at which the load may use it.
    pub windows: Windows,
    /// Moment from which it is planned.
    pub from: Timestamp,
    /// Moment before which the load may not use it, whatever the hours.
    pub closed_until: Timestamp,
    /// Moment after which it counts as open.
    pub until: Timestamp,
}

impl Shut {
    /// Sets the curve to zero where the load may not use the depot.
    pub fn close(&self, curve: &mut Curve) {
        self.windows.close(curve, self.from, self.until);
        if self.closed_until > self.from {
            curve.close(self.from, self.closed_until);
        }
    }
}

impl Supplies {
    /// Returns the supplies as a load with these closed times sees them.
    pub(crate) fn as_shut(&self, shut: &[Shut]) -> Self {
        let mut supplies = self.clone();
        for one in shut {
            if let Some(supply) = supplies.depots.get_mut(one.supply) {
                one.close(&mut supply.curve);
            }
        }
        supplies
    }
}
