//! Policy of file transfer services: point to point, no deadlines, concurrency found by trial.

use std::collections::BTreeMap;

use posthaste_types::{DepotId, FragmentIndex, RequestId};

use super::{Ledger, Pick, Policy};

/// Transfers in parallel at the start.
const BEGIN: usize = 2;
const MOST: usize = 32;
/// Seconds between two adjustments of the concurrency.
const PERIOD_S: u32 = 10;

/// State of one destination.
#[derive(Debug, Default)]
struct Channel {
    at_once: usize,
    stored: u64,
    failed: u64,
    before: u64,
    /// Request of the last turn. Requests proceed in parallel.
    last: Option<RequestId>,
}

#[derive(Debug, Default)]
pub(super) struct Adaptive {
    channels: BTreeMap<DepotId, Channel>,
    looks: u32,
}

impl Policy for Adaptive {
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick> {
        let ours = ledger
            .moving()
            .filter(|(_, order)| order.spec.destinations.contains(&depot));
        let open: Vec<(RequestId, usize)> = ours
            .filter_map(|(request, order)| Some((request, order.next_whole()?)))
            .collect();
        let channel = self.channels.entry(depot).or_default();
        let after =
            |(request, _): &&(RequestId, usize)| channel.last.is_none_or(|last| *request > last);
        let (request, chunk) = *open.iter().find(after).or(open.first())?;
        channel.last = Some(request);
        Some(Pick {
            request,
            chunk,
            fragment: FragmentIndex::WHOLE,
        })
    }

    fn flights_max(&self, depot: DepotId) -> usize {
        self.channels
            .get(&depot)
            .map_or(BEGIN, |channel| channel.at_once.max(BEGIN))
    }

    /// Raises the concurrency by one while more arrives than before. Halves it after failures, and
    /// lowers it by one if less arrives.
    fn look(&mut self, _ledger: &Ledger) {
        self.looks += 1;
        if !self.looks.is_multiple_of(PERIOD_S) {
            return;
        }
        for channel in self.channels.values_mut() {
            let now = channel.at_once.max(BEGIN);
            channel.at_once = if channel.failed > 0 {
                now / 2
            } else if channel.stored >= channel.before {
                now + 1
            } else {
                now - 1
            }
            .clamp(BEGIN, MOST);
            channel.before = channel.stored;
            (channel.stored, channel.failed) = (0, 0);
        }
    }

    fn on_answer(&mut self, depot: DepotId, is_stored: bool) {
        let channel = self.channels.entry(depot).or_default();
        channel.stored += u64::from(is_stored);
        channel.failed += u64::from(!is_stored);
    }
}
