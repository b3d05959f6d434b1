use posthaste_types::Timestamp;

use crate::{Curve, Supplies, Windows};

/// A depot that one load alone may not use at all times, though others may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shut {
    /// Place of the depot among the supplies.
    pub supply: usize,
    /// When the load may use it.
    pub windows: Windows,
    /// It is planned with from then on.
    pub from: Timestamp,
    /// The load may not use it before this, whatever the hours.
    pub closed_until: Timestamp,
    /// Beyond this it counts as open.
    pub until: Timestamp,
}

impl Shut {
    /// Takes from what the depot carries the times in which the load may not use it.
    pub fn close(&self, curve: &mut Curve) {
        self.windows.close(curve, self.from, self.until);
        if self.closed_until > self.from {
            curve.close(self.from, self.closed_until);
        }
    }
}

impl Supplies {
    /// What there is for a load that may not use all of it at all times.
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
