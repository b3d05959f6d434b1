//! Accepts a request, or refuses it at once with the reason and what would make it possible.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::{Offer, Proposal, Scene, Supplies, choose, offers};
use posthaste_types::{Bytes, Timestamp};

use crate::{
    contract::{Reason, WouldBuy},
    decide,
    decide::verdict::{Verdict, Way},
    forecast, state,
    state::completion::belief::Belief,
    state::completion::{Places, Promised},
    state::failure_domain::apart::apart,
    state::{Request, Route, State},
};

/// Weighs a request that is not registered yet, or that moves and may take another way.
pub(crate) fn weigh(state: &State, request: &Request, left: &Promised) -> Verdict {
    if let Some(refusal) = find_flaw(state, request) {
        return Verdict::Refuse(refusal);
    }
    if request.spec.chunks() == 0 {
        let reason = Reason::AllSafe {
            losses: u32::from(request.spec.code.parity()),
        };
        return Verdict::Admit {
            route: Route::Staged,
            active: Vec::new(),
            reason,
            finish: Some(state.now),
            is_leftover: false,
        };
    }
    let careful = way(state, request, Belief::P10, left);
    if let Some(verdict) = try_way(
        state,
        request,
        &careful,
        forecast::completion::margin(state, request.aim()),
    ) {
        return verdict;
    }
    let hopeful = way(state, request, Belief::Hopeful, left);
    if let Some(mut verdict) = try_way(state, request, &hopeful, Duration::ZERO) {
        if let Verdict::Admit { reason, .. } = &mut verdict {
            reason.doubt();
        }
        return verdict;
    }
    if let Some(why) = decide::pins::find_full_pin(state, request, &hopeful) {
        return Verdict::Refuse(Reason::Pinned { why });
    }
    weigh_infeasible(request, &hopeful)
}

/// Returns the flaw of a request that no rate could mend.
pub(crate) fn find_flaw(state: &State, request: &Request) -> Option<Reason> {
    let spec = &request.spec;
    if spec.deadline <= state.now {
        return Some(Reason::DeadlinePast {
            deadline: spec.deadline,
        });
    }
    if let Some(flaw) = decide::delivery::promise::find_flaw_of_delivery(state, request) {
        return Some(flaw);
    }
    let named = request.uncommon.pinned.iter().chain(&spec.via);
    let mut named = named.chain(&spec.destinations);
    if let Some(&depot) = named.find(|depot| !state.depots.contains_key(depot)) {
        return Some(Reason::UnknownDepot { depot });
    }
    // Others that it may not use are left out; without these it is not what was asked for.
    let mut needed = request.uncommon.pinned.iter().chain(&spec.destinations);
    if let Some(&depot) = needed.find(|depot| decide::owned::is_foreign(state, request, **depot)) {
        return Some(Reason::UnknownDepot { depot });
    }
    if let Some(why) = decide::pins::find_flaw_of_pins(state, request) {
        return Some(Reason::Pinned { why });
    }
    if !Request::is_cut(spec) {
        let (earliest, deadline) = (None, spec.deadline);
        return Some(Reason::Infeasible {
            earliest,
            deadline,
            would_buy: Vec::new(),
        });
    }
    let depots = decide::candidates::hoped_lanes(state, request);
    let available = state::failure_domain::holders_with(state, request, depots.len());
    let needed = usize::from(spec.code.total());
    let is_direct = request.lead().is_some_and(|lane| {
        let is_free = request.is_safe_whole() && request.uncommon.pinned.is_empty();
        is_free && state::usable::may_use(state, request, lane)
    });
    if spec.bytes == Bytes::ZERO || is_direct {
        return None;
    }
    if available < needed {
        return Some(Reason::TooFewDepots {
            code: spec.code,
            needed: u32::try_from(needed).unwrap_or(u32::MAX),
            available: u32::try_from(available).unwrap_or(u32::MAX),
        });
    }
    (!request.is_spread()).then(|| Reason::TooFewDomains {
        code: spec.code,
        available: domains(request, &depots),
    })
}

fn try_way(state: &State, request: &Request, way: &Way, margin: Duration) -> Option<Verdict> {
    let (deadline, aim) = (request.spec.deadline, request.aim());
    let (chosen, finish) = choose(&way.scene, &way.proposal, aim - margin);
    let finish = finish.filter(|&finish| finish <= aim)?;
    let (chosen, finish) = decide::spares::with_spares(state, request, way, chosen, finish);
    let (chosen, finish) = decide::room::with_room(state, request, way, chosen, finish);
    let fan_out = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
    let reason = if chosen.is_empty() {
        Reason::DirectSuffices { finish, deadline }
    } else {
        Reason::Admitted {
            fan_out,
            finish,
            deadline,
        }
    };
    Some(Verdict::Admit {
        route: way.route(chosen.len()),
        active: way.lanes[..chosen.len()].to_vec(),
        reason,
        finish: Some(finish),
        is_leftover: false,
    })
}

/// Returns when the request would be safe with what is left, if that is in time by the most
/// hopeful belief used for admission.
pub(crate) fn try_hopeful(state: &State, request: &Request, left: &Promised) -> Option<Timestamp> {
    let way = way(state, request, Belief::Hopeful, left);
    match try_way(state, request, &way, Duration::ZERO)? {
        Verdict::Admit { finish, .. } => finish,
        Verdict::Refuse(_) => None,
    }
}

/// Returns when the request would be safe by the careful belief, if that is well before its
/// deadline.
pub(crate) fn try_careful(state: &State, request: &Request, left: &Promised) -> Option<Timestamp> {
    let way = way(state, request, Belief::P10, left);
    let margin = forecast::completion::margin(state, request.aim());
    match try_way(state, request, &way, margin)? {
        Verdict::Admit { finish, .. } => finish.filter(|at| *at <= request.aim() - margin),
        Verdict::Refuse(_) => None,
    }
}

/// Builds the question to the planner: the request's destination, and enough depots for its
/// code or none.
fn way(state: &State, request: &Request, belief: Belief, left: &Promised) -> Way {
    let spec = &request.spec;
    let is_placed = |lane: &usize| left.places.contains_key(&request.lanes[*lane].depot);
    let mut lanes = match belief {
        Belief::Hopeful => decide::candidates::hoped_lanes(state, request),
        Belief::P10 | Belief::P50 | Belief::P90 => {
            decide::candidates::staging_lanes(state, request)
        }
    };
    lanes.retain(is_placed);
    let pinned = request.pinned_lanes().count_ones() as usize;
    let named = lanes.iter().filter(|lane| request.is_pinned(**lane));
    let has_pinned = named.count() == pinned;
    // If all depots would fail together, only the destination is left.
    let is_spread = request.is_spread();
    let stands_in = state::failure_domain::stands_in(state, request, lanes.len()).filter(is_placed);
    let count = lanes.len() + usize::from(stands_in.is_some());
    if count < usize::from(spec.code.total()) || !has_pinned || !is_spread {
        lanes.clear();
    }
    let destination = request.lead().filter(is_placed);
    let destination = destination.filter(|&lane| !request.is_barred(lane));
    let destination = destination.filter(|_| request.is_safe_whole());
    let destination = destination.or(stands_in.filter(|_| !lanes.is_empty()));
    // Each depot is needed if a destination stands in for one.
    let pinned = match stands_in {
        Some(_) => lanes.len(),
        None => pinned,
    };
    let all = left.scene(belief);
    let named: Vec<usize> = lanes.iter().copied().chain(destination).collect();
    let places = places_of(&named, request, &left.places);
    // Fragments can't be divided: if space binds, a depot's last place is not counted on. A
    // pinned depot takes its column.
    let depots = named.iter().zip(&places).map(|(&lane, &place)| {
        let mut supply = all.supplies.depots[place].clone();
        let room = if request.is_destination(lane) {
            spec.bytes
        } else {
            request.replica.room(lane)
        };
        if supply.space < room && !request.is_pinned(lane) {
            supply.space -= request.piece(lane);
        }
        supply
    });
    let scene = Scene {
        now: all.now,
        supplies: Supplies {
            depots: depots.collect(),
            way_out: all.supplies.way_out.clone(),
            pace: None,
        },
    };
    let proposal = Proposal {
        bytes: spec.bytes,
        chunk_size: spec.chunk_size,
        code: spec.code,
        deadline: request.aim(),
        candidates: (0..lanes.len()).collect(),
        destination: destination.map(|_| lanes.len()),
        rate_max: request.wishes.rate_max,
        pinned,
        shut: state::usable::shut(state, request, |depot| {
            let mut named = named.iter();
            named.position(|&lane| request.lanes[lane].depot == depot)
        }),
    };
    Way {
        lanes,
        scene,
        proposal,
    }
}

/// Returns the verdict on a request that can't be on time, with what would help.
fn weigh_infeasible(request: &Request, way: &Way) -> Verdict {
    if let Some(reason) = want_of_space(way) {
        return Verdict::Refuse(reason);
    }
    let deadline = request.spec.deadline;
    let (earliest, would_buy) = counter_offer(way);
    let reason = Reason::Infeasible {
        earliest,
        deadline,
        would_buy,
    };
    if !request.spec.best_effort {
        return Verdict::Refuse(reason);
    }
    Verdict::Admit {
        finish: way.scene.finish(&way.proposal, &way.proposal.candidates),
        route: way.route(way.lanes.len()),
        active: way.lanes.clone(),
        reason,
        is_leftover: true,
    }
}

/// Returns what would make the way feasible, and the earliest finish among that.
pub(crate) fn counter_offer(way: &Way) -> (Option<Timestamp>, Vec<WouldBuy>) {
    let mut earliest = None;
    let mut would_buy = Vec::new();
    for offer in offers(&way.scene, &way.proposal) {
        would_buy.push(match offer {
            Offer::Later(deadline) => {
                earliest = Some(deadline);
                WouldBuy::Later { deadline }
            }
            Offer::LighterCode(code) => WouldBuy::LighterCode { code },
            Offer::MoreRate(rate) => WouldBuy::MoreRate { rate },
        });
    }
    (earliest, would_buy)
}

/// Returns the refusal if space is missing and not rate.
fn want_of_space(way: &Way) -> Option<Reason> {
    let all = &way.proposal.candidates;
    let roomy = way.scene.with_endless_space();
    let never = way.scene.finish(&way.proposal, all).is_none();
    if !never || roomy.finish(&way.proposal, all).is_none() {
        return None;
    }
    let load = way.proposal.load(all);
    let whole = load.whole.map(|whole| whole.lane);
    let there = (load.lanes.iter().copied().chain(whole))
        .map(|lane| way.scene.supplies.depots[lane.supply].space.min(lane.room));
    let available = there.sum::<Bytes>();
    Some(Reason::NoSpace {
        needed: load.bytes,
        available,
    })
}

/// Returns the lanes of a load that a request may use, as places in their list.
fn places_of(lanes: &[usize], request: &Request, places: &Places) -> Vec<usize> {
    let place = |&lane: &usize| places.get(&request.lanes[lane].depot);
    lanes
        .iter()
        .filter_map(place)
        .map(|&place| place as usize)
        .collect()
}

/// Counts depots among the lanes of which no two fail together.
fn domains(request: &Request, lanes: &[usize]) -> u32 {
    let groups = &request.uncommon.groups;
    if !groups.is_empty() {
        let all = lanes.iter().fold(0, |mask, lane| mask | 1 << lane);
        return apart(groups, 0, all, 1, u32::MAX).count_ones();
    }
    let masks: alloc::collections::BTreeSet<u64> =
        lanes.iter().map(|&lane| request.lanes[lane].kin).collect();
    u32::try_from(masks.len()).unwrap_or(u32::MAX)
}
