//! Accepts a request, or refuses it at once with the reason and what would make it possible.

mod bargain;
mod pinned;
pub(crate) mod room;
mod spares;

pub(crate) use bargain::{LATER_MIN, RATE_BITS, least, least_later};

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_plan::{Load, Offer, Proposal, Scene, Supplies, choose, offers};
use posthaste_types::{Bytes, Timestamp};

use crate::{
    Mind,
    books::{Depot, Request, Route},
    contract::{Reason, WouldBuy},
    domains::apart,
    outlook::{Belief, Places, Promised},
};

/// Multiple of what a request may put on a depot from which its space is ample.
const AMPLE: u64 = 2;

/// Decision about a request.
pub(crate) enum Verdict {
    /// Accepted on this route.
    Admit {
        route: Route,
        /// Lanes to feed.
        active: Vec<usize>,
        reason: Reason,
        /// Forecast time at which it is done, so far.
        finish: Option<Timestamp>,
        /// True if its deadline can't be met: it gets what the others leave.
        is_leftover: bool,
    },
    /// Refused.
    Refuse(Reason),
}

/// Possible ways of a request: its depots, best first, and the planner's question about them and
/// the destination.
struct Way {
    lanes: Vec<usize>,
    scene: Scene,
    proposal: Proposal,
}

impl Way {
    /// Returns the route that feeds so many depots.
    fn route(&self, depots: usize) -> Route {
        if depots == 0 && self.proposal.destination.is_some() {
            Route::Direct
        } else {
            Route::Staged
        }
    }
}

impl Mind {
    /// Weighs a request that is not registered yet, or that moves and may take another way.
    pub(crate) fn weigh(&self, request: &Request, left: &Promised) -> Verdict {
        if let Some(refusal) = self.find_flaw(request) {
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
                finish: Some(self.now),
                is_leftover: false,
            };
        }
        let careful = self.way(request, Belief::P10, left);
        if let Some(verdict) = self.try_way(request, &careful, self.margin(request.aim())) {
            return verdict;
        }
        let hopeful = self.way(request, Belief::Hopeful, left);
        if let Some(mut verdict) = self.try_way(request, &hopeful, Duration::ZERO) {
            if let Verdict::Admit { reason, .. } = &mut verdict {
                reason.doubt();
            }
            return verdict;
        }
        if let Some(why) = self.find_full_pin(request, &hopeful) {
            return Verdict::Refuse(Reason::Pinned { why });
        }
        weigh_infeasible(request, &hopeful)
    }

    /// Returns the flaw of a request that no rate could mend.
    pub(crate) fn find_flaw(&self, request: &Request) -> Option<Reason> {
        let spec = &request.spec;
        if spec.deadline <= self.now {
            return Some(Reason::DeadlinePast {
                deadline: spec.deadline,
            });
        }
        if let Some(flaw) = self.find_flaw_of_delivery(request) {
            return Some(flaw);
        }
        let named = request.uncommon.pinned.iter().chain(&spec.via);
        let mut named = named.chain(&spec.destinations);
        if let Some(&depot) = named.find(|depot| !self.depots.contains_key(depot)) {
            return Some(Reason::UnknownDepot { depot });
        }
        if let Some(why) = self.find_flaw_of_pins(request) {
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
        let depots = self.hoped_lanes(request);
        let available = self.holders_with(request, depots.len());
        let needed = usize::from(spec.code.total());
        let is_direct = request.lead().is_some_and(|lane| {
            let is_free = request.is_safe_whole() && request.uncommon.pinned.is_empty();
            is_free && self.may_use(request, lane)
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

    fn try_way(&self, request: &Request, way: &Way, margin: Duration) -> Option<Verdict> {
        let (deadline, aim) = (request.spec.deadline, request.aim());
        let (chosen, finish) = choose(&way.scene, &way.proposal, aim - margin);
        let finish = finish.filter(|&finish| finish <= aim)?;
        let (chosen, finish) = self.with_spares(request, way, chosen, finish);
        let (chosen, finish) = self.with_room(request, way, chosen, finish);
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
    pub(crate) fn try_hopeful(&self, request: &Request, left: &Promised) -> Option<Timestamp> {
        let way = self.way(request, Belief::Hopeful, left);
        match self.try_way(request, &way, Duration::ZERO)? {
            Verdict::Admit { finish, .. } => finish,
            Verdict::Refuse(_) => None,
        }
    }

    /// Returns when the request would be safe by the careful belief, if that is well before its
    /// deadline.
    pub(crate) fn try_careful(&self, request: &Request, left: &Promised) -> Option<Timestamp> {
        let way = self.way(request, Belief::P10, left);
        let margin = self.margin(request.aim());
        match self.try_way(request, &way, margin)? {
            Verdict::Admit { finish, .. } => finish.filter(|at| *at <= request.aim() - margin),
            Verdict::Refuse(_) => None,
        }
    }

    /// Builds the question to the planner: the request's destination, and enough depots for its
    /// code or none.
    fn way(&self, request: &Request, belief: Belief, left: &Promised) -> Way {
        let spec = &request.spec;
        let is_placed = |lane: &usize| left.places.contains_key(&request.lanes[*lane].depot);
        let mut lanes = match belief {
            Belief::Hopeful => self.hoped_lanes(request),
            Belief::P10 | Belief::P50 | Belief::P90 => self.staging_lanes(request),
        };
        lanes.retain(is_placed);
        let pinned = request.pinned_lanes().count_ones() as usize;
        let has_pinned = lanes
            .iter()
            .filter(|lane| request.is_pinned(**lane))
            .count()
            == pinned;
        // If all depots would fail together, only the destination is left.
        let is_spread = request.is_spread();
        let stands_in = self.stands_in(request, lanes.len()).filter(is_placed);
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
            shut: self.shut(request, |depot| {
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

    /// Returns the load that a request just accepted puts on the depots, which no newcomer gets.
    pub(crate) fn promised_load(&self, request: &Request, left: &Promised) -> Load {
        self.load(request, &left.places, request.route, |lane| {
            request.lanes[lane].is_active
        })
    }

    /// Returns lanes to depots that can be staged to, best first.
    ///
    /// The order puts pinned depots first, then those that open in time, the user's before
    /// landmarks, and those open now. Next come those near the centre before those of a higher
    /// level, and one of each failure domain before a second. Next come cheap ones, if money or
    /// redundancy was wished, those with ample space, and fast ones. Depots alike in all that go by
    /// price, then in the user's order.
    pub(crate) fn staging_lanes(&self, request: &Request) -> Vec<usize> {
        self.best_first(request, |lane| self.can_use(request, lane))
    }

    /// Returns the staging lanes and those of lost depots that may come back.
    fn hoped_lanes(&self, request: &Request) -> Vec<usize> {
        self.best_first(request, |lane| self.may_use(request, lane))
    }

    fn best_first(&self, request: &Request, may: impl Fn(usize) -> bool) -> Vec<usize> {
        let lanes =
            (0..request.lanes.len()).filter(|&lane| !request.is_destination(lane) && may(lane));
        let to = request.lead_depot();
        let mut lanes: Vec<_> = lanes
            .filter_map(|lane| {
                let id = request.lanes[lane].depot;
                let depot = self.depots.get(&id)?;
                let level = self.crossings.level(id, depot, to);
                let rate = core::cmp::Reverse(depot.link.rates.p50);
                let is_open = depot.is_open_to(request, lane, self.now);
                let is_closed = !depot.is_expected() || !is_open;
                let cost = self.price(request, depot);
                let price = if request.is_thrifty() { cost } else { 0 };
                let opens_at = depot.next_turn_of(request, lane, self.now);
                let is_too_late = !is_open && opens_at.is_none_or(|at| at >= request.spec.deadline);
                let is_pinned = request.is_pinned(lane);
                let reach = (
                    !is_pinned,
                    is_too_late,
                    depot.terms.is_landmark,
                    is_closed,
                    level,
                );
                // With one fragment of a chunk a depot, the next request needs space on several.
                let ample = request.replica.room(lane).times(AMPLE);
                let space = core::cmp::Reverse((depot.space() - self.index.kept(id)).min(ample));
                Some((reach, price, (space, rate), cost, lane))
            })
            .collect();
        let along = self.along(request);
        lanes.sort_unstable_by_key(|&(reach, price, rate, cost, lane)| {
            (reach, price, rate, along.get(lane).copied(), cost, lane)
        });
        let (mut first, mut more, mut taken) = (Vec::new(), Vec::new(), 0);
        let most = request.domain_max;
        for &(reach, _, _, _, lane) in &lanes {
            // The rest of a chunk finds its places among depots that are no worse.
            let among = match request.uncommon.groups.is_empty() {
                true => u64::MAX,
                false => {
                    let no_worse = lanes.iter().filter(|other| other.0 <= reach);
                    no_worse.fold(0, |mask, other| mask | 1 << other.4)
                }
            };
            if request.is_pinned(lane) || request.is_free_among(taken, lane, most, among) {
                first.push(lane);
                taken |= 1 << lane;
            } else {
                more.push(lane);
            }
        }
        first.extend(more);
        first
    }

    /// Returns whether the depot of a lane is up or expected, and was not given up.
    pub(crate) fn can_use(&self, request: &Request, lane: usize) -> bool {
        let depot = self.depots.get(&request.lanes[lane].depot);
        !request.is_barred(lane) && depot.is_some_and(Depot::is_expected)
    }

    /// Returns whether the depot of a lane is up or expected, and gives what it holds: a drained
    /// one does.
    pub(crate) fn can_give(&self, request: &Request, lane: usize) -> bool {
        let depot = self.depots.get(&request.lanes[lane].depot);
        !request.is_unwanted(lane) && depot.is_some_and(Depot::is_expected)
    }

    /// Returns whether the depot of a lane is up, expected, or may come back.
    pub(crate) fn may_use(&self, request: &Request, lane: usize) -> bool {
        let depot = self.depots.get(&request.lanes[lane].depot);
        let may_be = |depot: &Depot| depot.is_expected() || depot.is_hoped_for(&self.settings);
        !request.is_barred(lane) && depot.is_some_and(may_be)
    }

    /// Returns whether the depot of a lane is up and within its hours.
    pub(crate) fn is_there(&self, request: &Request, lane: usize) -> bool {
        let depot = self.depots.get(&request.lanes[lane].depot);
        let is_there =
            |depot: &Depot| !depot.is_down() && depot.is_open_to(request, lane, self.now);
        !request.is_barred(lane) && depot.is_some_and(is_there)
    }

    /// Records the depots kept in reserve, for `explain`.
    pub(crate) fn remember_spares(&mut self, id: posthaste_types::RequestId) {
        let Some(request) = self
            .requests
            .get(&id)
            .filter(|request| request.route == Route::Staged)
        else {
            return;
        };
        let spares: Vec<_> = request
            .lanes
            .iter()
            .enumerate()
            .filter(|&(place, lane)| !lane.is_active && !request.is_destination(place))
            .map(|(_, lane)| self.name_of(lane.depot))
            .collect();
        for name in spares {
            let reason = Reason::Spare { name: name.clone() };
            self.remember_of(id, name, 0, "kept in reserve".into(), reason);
        }
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
fn counter_offer(way: &Way) -> (Option<Timestamp>, Vec<WouldBuy>) {
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
