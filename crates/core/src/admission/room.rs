//! Space for who comes next (`docs/algorithms/placement.md`): where it is scarce, a request is fed to as many depots as it
//! takes so that others can use what is left.

use alloc::vec::Vec;
use posthaste_plan::room;
use posthaste_types::{Bytes, RequestId, Timestamp};

use super::Way;
use crate::{
    Mind,
    books::{Depot, Request},
};

/// Space is scarce where it is for less than so many requests like the one in question.
const SCARCE: u64 = 8;

/// Whether space that is left on depots, in bytes each, is scarce for a request that lacks so much of a column.
pub(crate) fn is_scarce(spaces: &[u64], request: &Request, lacks: u64) -> bool {
    let total = usize::from(request.spec.code.total());
    room::column(spaces, total) < lacks.saturating_mul(SCARCE)
}

/// Bytes that each depot of a full stripe still gets of a request.
pub(crate) fn lacks(request: &Request) -> u64 {
    let replica = &request.replica;
    let piece = request.spec.code.fragment_size(request.spec.chunk_size);
    let chunks = u64::from(replica.chunks() - replica.safe());
    piece.times(chunks).get()
}

impl Mind {
    /// The depots chosen for a newcomer, and as many more as it takes so that others can use what is left, where it is
    /// on time with these too.
    pub(super) fn with_room(
        &self,
        request: &Request,
        way: &Way,
        chosen: Vec<usize>,
        finish: Timestamp,
    ) -> (Vec<usize>, Timestamp) {
        if chosen.is_empty() {
            return (chosen, finish);
        }
        let all = &way.proposal.candidates;
        let load = way.proposal.load(all);
        let placed = way.scene.supplies.early(&load, way.scene.now).placed;
        let coded = placed.iter().take(load.lanes.len()).copied().sum();
        let count = self.roomy(request, None, &way.lanes, chosen.len(), coded);
        let more = &all[..count];
        match way.scene.finish(&way.proposal, more) {
            Some(then) if count > chosen.len() && then <= request.aim() => (more.to_vec(), then),
            Some(_) | None => (chosen, finish),
        }
    }

    /// How many of the lanes, the first `least` at least, are to be fed with `coded` bytes of a request so that others can
    /// use what is left. A newcomer has no number yet.
    pub(crate) fn roomy(
        &self,
        request: &Request,
        id: Option<RequestId>,
        lanes: &[usize],
        least: usize,
        coded: Bytes,
    ) -> usize {
        let total = usize::from(request.spec.code.total());
        if least < total || least >= lanes.len() {
            return least;
        }
        let space = |&lane: &usize| {
            let at = request.lanes[lane].depot;
            let space = self.depots.get(&at).map_or(Bytes::ZERO, Depot::space);
            let left = match id {
                Some(id) => self.index.space_for(id, at, space),
                None => space - self.index.kept(at) - self.index.held(at),
            };
            left.get()
        };
        let spaces: Vec<u64> = lanes.iter().map(space).collect();
        let lacks = lacks(request);
        if !is_scarce(&spaces, request, lacks) {
            return least;
        }
        room::fewest(&spaces, least, lacks, coded.get(), total)
    }

    /// Whether one depot less would leave others less of the space: `fed` are the lanes fed, the one that would go last.
    pub(crate) fn needs_room_on_all(
        &self,
        id: RequestId,
        request: &Request,
        fed: &[usize],
    ) -> bool {
        let Some(less) = fed.len().checked_sub(1) else {
            return false;
        };
        let others = self.staging_lanes(request);
        let others = others.into_iter().filter(|lane| !fed.contains(lane));
        let lanes: Vec<usize> = fed.iter().copied().chain(others).collect();
        let kept = |&lane: &usize| request.piece(lane).times(request.lanes[lane].kept.into());
        let coded = fed.iter().map(kept).sum();
        self.roomy(request, Some(id), &lanes, less, coded) > less
    }
}
