//! Coded fragments over depots, placed without regard to time or rates.

use std::collections::BTreeMap;

use posthaste_types::{DepotId, FragmentIndex, RequestId};

use super::{Ledger, Pick, Policy, ledger::Order};

/// Chunks of a request examined for one depot. As many are encoded at once.
const CHUNKS_MAX: usize = 32;

/// Policy that sends fragment i of every chunk to the i-th depot of the request.
#[derive(Debug, Default)]
pub(super) struct StaticSplit {
    cursors: Cursors,
}

/// Policy that sends the fragments of one chunk after the other to the reachable depots, in turn.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    cursors: Cursors,
}

/// First chunk of each request that still lacks a fragment a depot could get.
#[derive(Debug, Default)]
pub(super) struct Cursors {
    first: BTreeMap<(RequestId, DepotId), usize>,
    losses: u64,
}

impl Cursors {
    /// Returns the next chunks of a request that lack fragments and have none at the depot.
    pub(super) fn open<'a>(
        &mut self,
        ledger: &Ledger,
        request: RequestId,
        order: &'a Order,
        depot: DepotId,
    ) -> impl Iterator<Item = usize> + 'a {
        if self.losses != ledger.losses {
            self.losses = ledger.losses;
            self.first.clear();
        }
        let is_open = move |chunk: &usize| {
            !order.has(*chunk, depot) && order.missing(*chunk).next().is_some()
        };
        let first = self.first.entry((request, depot)).or_default();
        let mut open = (*first..order.chunks.len()).filter(is_open).peekable();
        *first = open.peek().copied().unwrap_or(order.chunks.len());
        open.take(CHUNKS_MAX)
    }
}

impl Policy for StaticSplit {
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick> {
        ledger.moving().find_map(|(request, order)| {
            let all = usize::from(order.spec.code.total());
            let index = order
                .spec
                .via
                .iter()
                .take(all)
                .position(|id| *id == depot)?;
            let index = u8::try_from(index).ok()?;
            let mut open = self.cursors.open(ledger, request, order, depot);
            let chunk = open.find(|&chunk| order.missing(chunk).any(|other| other == index))?;
            Some(Pick {
                request,
                chunk,
                fragment: FragmentIndex::new(index),
            })
        })
    }
}

impl Policy for RoundRobin {
    fn next(&mut self, ledger: &Ledger, depot: DepotId) -> Option<Pick> {
        ledger.moving().find_map(|(request, order)| {
            if !order.spec.via.contains(&depot) {
                return None;
            }
            let mut open = self.cursors.open(ledger, request, order, depot);
            open.find_map(|chunk| {
                let via = order.spec.via.iter().copied();
                let is_free =
                    |other: &DepotId| ledger.is_usable(*other) && !order.has(chunk, *other);
                let free: Vec<DepotId> = via.filter(is_free).collect();
                let all = usize::from(order.spec.code.total());
                let turn = |index: u8| (chunk * all + usize::from(index)) % free.len();
                let index = order
                    .missing(chunk)
                    .find(|index| free.get(turn(*index)) == Some(&depot));
                index.map(|index| Pick {
                    request,
                    chunk,
                    fragment: FragmentIndex::new(index),
                })
            })
        })
    }
}
