use posthaste_types::Bytes;

use crate::{depots::Depot, monotonic};

/// Counts a send in its depot's meter, even if the send is aborted.
pub(crate) struct Metered<'a> {
    depot: &'a Depot,
    gives_way: bool,
    by_mover: bool,
    stored: Bytes,
}

impl<'a> Metered<'a> {
    pub(crate) fn start(depot: &'a Depot, gives_way: bool) -> Self {
        depot.meter.on_start(monotonic(), gives_way);
        Self {
            depot,
            gives_way,
            by_mover: false,
            stored: Bytes::ZERO,
        }
    }

    /// Meters a send by a mover.
    pub(crate) fn by_mover(depot: &'a Depot, gives_way: bool) -> Self {
        depot.meter.on_told(true);
        let mut metered = Self::start(depot, gives_way);
        metered.by_mover = true;
        metered
    }

    pub(crate) fn end(mut self, stored: Bytes) {
        self.stored = stored;
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        self.depot
            .meter
            .on_end(monotonic(), self.gives_way, self.stored);
        if self.by_mover {
            self.depot.meter.on_told(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::depots::tests::depot;

    #[test]
    fn what_a_mover_sends_is_on_its_way_until_it_has_ended() {
        let depot = depot();
        let sent = Metered::by_mover(&depot, false);
        assert!(!depot.meter.is_idle());
        sent.end(Bytes::mebi(1));
        assert!(depot.meter.is_idle());
        assert_eq!(depot.meter.stored(), Bytes::mebi(1));
    }
}
