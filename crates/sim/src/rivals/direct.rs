//! Whole chunks to the destination, and nothing else.

use std::cmp::Reverse;

use posthaste_types::{DepotId, FragmentIndex};

use super::{Ledger, Pick, Policy};

/// Policy that serves requests one by one: in submission order, or by deadline.
pub(super) struct Direct {
    pub(super) by_deadline: bool,
}

impl Policy for Direct {
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick> {
        let ours = ledger
            .moving()
            .filter(|(_, order)| order.spec.destinations.contains(&depot));
        let open = ours.filter_map(|(request, order)| Some((request, order, order.next_whole()?)));
        let (request, _, chunk) = if self.by_deadline {
            // A late request waits until the others are done.
            open.min_by_key(|(_, order, _)| {
                let deadline = order.spec.deadline;
                (Reverse(deadline > ledger.now), deadline)
            })
        } else {
            let mut open = open;
            open.next()
        }?;
        Some(Pick {
            request,
            chunk,
            fragment: FragmentIndex::WHOLE,
        })
    }
}
