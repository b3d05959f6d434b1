//! Choice of the code of a request with a durability instead of a code
//! (`docs/algorithms/redundancy.md`).

use alloc::vec::Vec;
use posthaste_plan::redundancy::{CERTAIN, Candidate, Choice, Wish, choices};

use crate::{
    contract::{Reason, Survive},
    decide,
    decide::verdict::Verdict,
    state,
    state::completion::Promised,
    state::{Depot, Request, State},
};

/// Certain chance, in the units of wishes.
const CERTAIN_PPB: u128 = 1_000_000_000;

/// Weighs a newcomer. If its code is to be chosen, it gets the cheapest one with which its
/// deadline can be kept. If none can, the cheapest one speaks for all.
pub(crate) fn weigh_newcomer(state: &State, request: &mut Request, left: &Promised) -> Verdict {
    let Some(wish) = wish(request.wishes.survive) else {
        return decide::reduce_redundancy::weigh_lighter(state, request, left);
    };
    let lanes = candidates(state, request);
    let candidates: Vec<Candidate> = lanes.iter().map(|(_, candidate)| *candidate).collect();
    let mut choices = choices(wish, &candidates);
    let is_pinned = |place: &usize| request.is_pinned(lanes[*place].0);
    let pinned = request.pinned_lanes().count_ones() as usize;
    choices.retain(|choice| choice.on.iter().filter(|place| is_pinned(place)).count() == pinned);
    let mut first = None;
    for choice in &choices {
        take_choice(state, request, choice, &lanes);
        let verdict = decide::budget::weigh_within(state, request, left);
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
        if let Some(why) = decide::pins::find_pin_in_way(state, request) {
            return Verdict::Refuse(Reason::Pinned { why });
        }
        let depots = u32::try_from(lanes.len()).unwrap_or(u32::MAX);
        let survive = request.wishes.survive;
        return Verdict::Refuse(Reason::CannotSurvive { survive, depots });
    };
    take_choice(state, request, choice, &lanes);
    request.uncommon.loss_ppb = Some(ppb(choice.loss));
    request.recode();
    verdict
}

/// Returns the lanes that could hold fragments, and what is known of them.
fn candidates(state: &State, request: &Request) -> Vec<(usize, Candidate)> {
    let keeps = request.keeps(state.now);
    let candidate = |lane: usize, depot: &Depot| Candidate {
        loss: depot.history.chance(state.now, keeps),
        // A pinned one is paid whatever the code.
        micro_usd: match request.is_pinned(lane) {
            true => 0,
            false => decide::prices::price(state, request, depot),
        },
        kin: request.lanes[lane].kin,
    };
    let lanes = (0..request.lanes.len()).filter(|&lane| {
        !request.is_destination(lane) && state::usable::can_use(state, request, lane)
    });
    let mut all: Vec<(usize, Candidate)> = lanes
        .filter_map(|lane| {
            let depot = state.depots.get(&request.lanes[lane].depot)?;
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
fn take_choice(
    state: &State,
    request: &mut Request,
    choice: &Choice,
    lanes: &[(usize, Candidate)],
) {
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
    request.set_kin(state::failure_domain::kin(state, request));
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
