//! Choice of the code of a request with a durability instead of a code
//! (`docs/algorithms/redundancy.md`).

use alloc::vec::Vec;
use posthaste_plan::redundancy::{CERTAIN, Candidate, Choice, Wish, choices};
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Mind,
    admission::Verdict,
    books::{Depot, Request},
    contract::{GIGABYTE, Happening, Outbox, Reason, Survive},
    outlook::Promised,
};

/// Certain chance, in the units of wishes.
const CERTAIN_PPB: u128 = 1_000_000_000;

impl Mind {
    /// Weighs a newcomer. If its code is to be chosen, it gets the cheapest one with which its
    /// deadline can be kept. If none can, the cheapest one speaks for all.
    pub(crate) fn weigh_newcomer(&self, request: &mut Request, left: &Promised) -> Verdict {
        let Some(wish) = wish(request.wishes.survive) else {
            return self.weigh_lighter(request, left);
        };
        let lanes = self.candidates(request);
        let candidates: Vec<Candidate> = lanes.iter().map(|(_, candidate)| *candidate).collect();
        let mut choices = choices(wish, &candidates);
        let is_pinned = |place: &usize| request.is_pinned(lanes[*place].0);
        let pinned = request.pinned_lanes().count_ones() as usize;
        choices
            .retain(|choice| choice.on.iter().filter(|place| is_pinned(place)).count() == pinned);
        let mut first = None;
        for choice in &choices {
            self.take_choice(request, choice, &lanes);
            let verdict = self.weigh_within(request, left);
            if matches!(
                &verdict,
                Verdict::Admit {
                    is_leftover: false,
                    ..
                }
            ) {
                first = Some((choice, verdict));
                break;
            }
            first = first.or(Some((choice, verdict)));
        }
        let Some((choice, verdict)) = first else {
            if let Some(why) = self.find_pin_in_way(request) {
                return Verdict::Refuse(Reason::Pinned { why });
            }
            let depots = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
            let survive = request.wishes.survive;
            return Verdict::Refuse(Reason::CannotSurvive { survive, depots });
        };
        self.take_choice(request, choice, &lanes);
        request.uncommon.loss_ppb = Some(ppb(choice.loss));
        request.recode();
        verdict
    }

    /// Reports the chosen code, before the acceptance of the request.
    pub(crate) fn say_code(&mut self, id: RequestId, out: &mut Outbox) {
        let request = self.requests.get(&id);
        let Some((code, loss_ppb)) =
            request.and_then(|request| Some((request.spec.code, request.uncommon.loss_ppb?)))
        else {
            return;
        };
        let reason = Reason::Redundancy { code, loss_ppb };
        self.tell(out, Some(id), None, Happening::CodeChosen { code }, reason);
    }

    /// Returns the cost for the request of a gigabyte of fragments there, in millionths of a
    /// dollar. It covers sending, keeping, and reading the needed part once.
    pub(crate) fn price(&self, request: &Request, depot: &Depot) -> u64 {
        let keeps = request.keeps(self.now).as_secs();
        let (chunk, code) = (request.spec.chunk_size, request.spec.code);
        let fragment = code.fragment_size(chunk.min(request.spec.bytes));
        let requests = GIGABYTE.pieces(fragment.max(Bytes::new(1)));
        let to = request.lead_depot().and_then(|to| self.depots.get(&to));
        let places = to.map(|to| (to.name.as_str(), to.terms.domain.as_str()));
        let put = depot.prices.put().micro_usd().saturating_mul(requests);
        let get = depot.prices.get().micro_usd().saturating_mul(requests);
        let leaves = depot.prices.egress(places).of(GIGABYTE).micro_usd();
        let read = u128::from(get.saturating_add(leaves)) * u128::from(code.data());
        let read = read.div_ceil(u128::from(code.total().max(1)));
        let kept = depot.terms.cost(GIGABYTE, keeps).micro_usd();
        kept.saturating_add(put)
            .saturating_add(u64::try_from(read).unwrap_or(u64::MAX))
    }

    /// Returns the lanes that could hold fragments, and what is known of them.
    fn candidates(&self, request: &Request) -> Vec<(usize, Candidate)> {
        let keeps = request.keeps(self.now);
        let candidate = |lane: usize, depot: &Depot| Candidate {
            loss: depot.history.chance(self.now, keeps),
            // A pinned one is paid whatever the code.
            micro_usd: match request.is_pinned(lane) {
                true => 0,
                false => self.price(request, depot),
            },
            kin: request.lanes[lane].kin,
        };
        let lanes = (0..request.lanes.len())
            .filter(|&lane| !request.is_destination(lane) && self.can_use(request, lane));
        let mut all: Vec<(usize, Candidate)> = lanes
            .filter_map(|lane| {
                let depot = self.depots.get(&request.lanes[lane].depot)?;
                Some((lane, candidate(lane, depot)))
            })
            .collect();
        // Candidates refer to each other by place.
        let lanes: Vec<usize> = all.iter().map(|(lane, _)| *lane).collect();
        for (_, candidate) in &mut all {
            let of = core::mem::take(&mut candidate.kin);
            let kin = lanes.iter().enumerate();
            let kin = kin.filter(|(_, lane)| of >> **lane & 1 == 1);
            candidate.kin = kin.fold(0, |mask, (place, _)| mask | 1 << place);
        }
        all
    }

    /// Gives the request a code, on the depots with which it keeps the wish.
    fn take_choice(&self, request: &mut Request, choice: &Choice, lanes: &[(usize, Candidate)]) {
        let on = choice.on.iter().map(|&place| lanes[place].0);
        let on = on
            .chain(request.destinations())
            .fold(0u64, |mask, lane| mask | 1 << lane);
        // If only a number of depots counts, any depot will do.
        request.uncommon.barred = match request.wishes.survive {
            Survive::Chance { .. } => !on,
            Survive::AsCoded | Survive::Losses { .. } => 0,
        };
        request.spec.code = choice.code;
        request.set_kin(self.kin(request));
    }

    /// Judges the loss of a depot by its inventory afterwards.
    pub(crate) fn judge_loss(&mut self, depot: DepotId, has_all: bool) {
        if let Some(depot) = self.depots.get_mut(&depot) {
            depot.history.on_back(has_all);
        }
    }
}

fn wish(survive: Survive) -> Option<Wish> {
    match survive {
        Survive::AsCoded => None,
        Survive::Losses { depots } => {
            let depots = usize::try_from(depots).unwrap_or(usize::MAX);
            Some(Wish::Losses(depots))
        }
        Survive::Chance { loss_ppb_max } => {
            let most = u128::from(CERTAIN) * u128::from(loss_ppb_max) / CERTAIN_PPB;
            Some(Wish::Chance(u64::try_from(most).unwrap_or(CERTAIN)))
        }
    }
}

/// Returns a chance in billionths, rounded up.
fn ppb(chance: u64) -> u32 {
    let ppb = (u128::from(chance) * CERTAIN_PPB).div_ceil(u128::from(CERTAIN));
    u32::try_from(ppb).unwrap_or(u32::MAX)
}
