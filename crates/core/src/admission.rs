//! Takes a request or says at once why not, and what would buy it.

use alloc::{format, vec, vec::Vec};
use core::time::Duration;
use posthaste_plan::{Fit, Offer, Proposal, Scene, choose, offers};
use posthaste_types::{Bytes, Code, Timestamp};

use crate::{
    Mind,
    books::{Request, Route},
    contract::{Reason, WouldBuy},
    outlook::Belief,
};

/// What was decided about a request.
pub(crate) enum Verdict {
    /// It is taken, this way.
    Admit {
        route: Route,
        /// Lanes to feed.
        active: Vec<usize>,
        reason: Reason,
        /// Its deadline can't be met: it gets what the others leave.
        is_leftover: bool,
    },
    /// It is not taken.
    Refuse(Reason),
}

/// A way the request could go: its lanes, best first, and what they were asked.
struct Way {
    route: Route,
    lanes: Vec<usize>,
    scene: Scene,
    proposal: Proposal,
}

impl Mind {
    /// Weighs a request that is not in the books yet, or moves and may go another way.
    pub(crate) fn weigh(&self, request: &Request) -> Verdict {
        if let Some(refusal) = self.find_flaw(request) {
            return Verdict::Refuse(refusal);
        }
        if request.spec.chunks() == 0 {
            let reason = Reason::AllSafe {
                losses: u32::from(request.spec.code.parity()),
            };
            return admit(Route::Staged, Vec::new(), reason);
        }
        let careful_direct = self.way(request, Route::Direct, Belief::P10);
        let careful_staged = self.way(request, Route::Staged, Belief::P10);
        for way in [careful_direct, careful_staged].into_iter().flatten() {
            if let Some(verdict) = self.try_way(request, &way, self.margin(request.spec.deadline)) {
                return verdict;
            }
        }
        let staged = self.way(request, Route::Staged, Belief::Hopeful);
        let direct = self.way(request, Route::Direct, Belief::Hopeful);
        for way in [&staged, &direct].into_iter().flatten() {
            if let Some(verdict) = self.try_way(request, way, Duration::ZERO) {
                return verdict;
            }
        }
        self.weigh_infeasible(request, staged, direct)
    }

    /// What is wrong with the request whatever the rates.
    fn find_flaw(&self, request: &Request) -> Option<Reason> {
        let spec = &request.spec;
        if spec.deadline <= self.now {
            return Some(Reason::DeadlinePast {
                deadline: spec.deadline,
            });
        }
        let mut named = spec.via.iter().chain(&spec.destination);
        if let Some(&depot) = named.find(|depot| !self.depots.contains_key(depot)) {
            return Some(Reason::UnknownDepot { depot });
        }
        if !Request::is_cut(spec) {
            let (earliest, deadline) = (None, spec.deadline);
            return Some(Reason::Infeasible {
                earliest,
                deadline,
                would_buy: Vec::new(),
            });
        }
        let available = self.staging_lanes(request).len();
        let needed = usize::from(spec.code.total());
        let is_direct = request
            .destination()
            .is_some_and(|lane| self.can_use(request, lane));
        (spec.bytes > Bytes::ZERO && available < needed && !is_direct).then(|| {
            Reason::TooFewDepots {
                code: spec.code,
                needed: u32::try_from(needed).unwrap_or(u32::MAX),
                available: u32::try_from(available).unwrap_or(u32::MAX),
            }
        })
    }

    fn try_way(&self, request: &Request, way: &Way, margin: Duration) -> Option<Verdict> {
        let (chosen, fit) = choose(&way.scene, &way.proposal, margin);
        if !fit.holds_by(way.proposal.deadline) {
            return None;
        }
        let deadline = request.spec.deadline;
        let finish = self.now + fit.finish?;
        let fan_out = u32::try_from(chosen.len()).unwrap_or(u32::MAX);
        let reason = match way.route {
            Route::Direct => Reason::DirectSuffices { finish, deadline },
            Route::Staged => Reason::Admitted {
                fan_out,
                finish,
                deadline,
            },
        };
        Some(admit(way.route, way.lanes[..chosen.len()].to_vec(), reason))
    }

    fn weigh_infeasible(
        &self,
        request: &Request,
        staged: Option<Way>,
        direct: Option<Way>,
    ) -> Verdict {
        if let Some(way) = &staged
            && let Some(reason) = self.want_of_space(way)
            && direct.is_none()
        {
            return Verdict::Refuse(reason);
        }
        let fit = |way: &Way| -> Fit { way.scene.fit(&way.proposal, &way.proposal.candidates) };
        let finish = |way: &Way| fit(way).finish.unwrap_or(Duration::MAX);
        let best = staged.into_iter().chain(direct).min_by_key(finish);
        let deadline = request.spec.deadline;
        let Some(way) = best else {
            let (earliest, would_buy) = (None, Vec::new());
            return Verdict::Refuse(Reason::Infeasible {
                earliest,
                deadline,
                would_buy,
            });
        };
        let (earliest, would_buy) = self.counter_offer(&way);
        let reason = Reason::Infeasible {
            earliest,
            deadline,
            would_buy,
        };
        if request.spec.best_effort {
            Verdict::Admit {
                route: way.route,
                active: way.lanes,
                reason,
                is_leftover: true,
            }
        } else {
            Verdict::Refuse(reason)
        }
    }

    fn counter_offer(&self, way: &Way) -> (Option<Timestamp>, Vec<WouldBuy>) {
        let mut earliest = None;
        let mut would_buy = Vec::new();
        for offer in offers(&way.scene, &way.proposal) {
            would_buy.push(match offer {
                Offer::Later(span) => {
                    let deadline = self.now + span;
                    earliest = Some(deadline);
                    WouldBuy::Later { deadline }
                }
                Offer::LighterCode(code) => WouldBuy::LighterCode { code },
                Offer::MoreRate(rate) => WouldBuy::MoreRate { rate },
            });
        }
        (earliest, would_buy)
    }

    /// The refusal, when it is space that is missing and not rate.
    fn want_of_space(&self, way: &Way) -> Option<Reason> {
        let all = &way.proposal.candidates;
        let roomy = way.scene.with_endless_space();
        let never = way.scene.fit(&way.proposal, all).finish.is_none();
        if !never || roomy.fit(&way.proposal, all).finish.is_none() {
            return None;
        }
        let load = way.proposal.load(all);
        let there = load
            .lanes
            .iter()
            .map(|lane| way.scene.supplies[lane.supply].space.min(lane.room));
        let promised: Bytes = way
            .scene
            .promises
            .iter()
            .map(|promise| promise.load.bytes)
            .sum();
        let available = there.sum::<Bytes>() - promised;
        Some(Reason::NoSpace {
            needed: load.bytes,
            available,
        })
    }

    /// The request on one route, as a question to the planner; none when the route is not there.
    fn way(&self, request: &Request, route: Route, belief: Belief) -> Option<Way> {
        let spec = &request.spec;
        let (lanes, code) = match route {
            Route::Direct => {
                let lane = request
                    .destination()
                    .filter(|&lane| self.can_use(request, lane))?;
                (vec![lane], Code::NONE)
            }
            Route::Staged => (self.staging_lanes(request), spec.code),
        };
        if lanes.len() < usize::from(code.total()) {
            return None;
        }
        let (scene, places) = self.scene(belief, None);
        let candidates = lanes
            .iter()
            .filter_map(|&lane| places.get(&request.lanes[lane].depot).copied());
        let proposal = Proposal {
            bytes: spec.bytes,
            chunk_size: spec.chunk_size,
            code,
            deadline: spec.deadline.since(self.now),
            candidates: candidates.collect(),
        };
        Some(Way {
            route,
            lanes,
            scene,
            proposal,
        })
    }

    /// Lanes to depots that can be staged to, the fastest first, then in the user's order.
    pub(crate) fn staging_lanes(&self, request: &Request) -> Vec<usize> {
        let destination = request.destination();
        let mut lanes: Vec<usize> = (0..request.lanes.len())
            .filter(|&lane| destination != Some(lane) && self.can_use(request, lane))
            .collect();
        lanes.sort_by_key(|&lane| {
            let rate = self
                .depots
                .get(&request.lanes[lane].depot)
                .map(|depot| depot.link.rates.p50);
            (core::cmp::Reverse(rate), lane)
        });
        lanes
    }

    /// Whether the depot of a lane is there, not down, and not given up.
    pub(crate) fn can_use(&self, request: &Request, lane: usize) -> bool {
        self.depots
            .get(&request.lanes[lane].depot)
            .is_some_and(|depot| !depot.is_down())
    }

    /// Which depots are kept in reserve, for `explain`.
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
            .filter(|&(place, lane)| !lane.is_active && request.destination() != Some(place))
            .map(|(_, lane)| self.name_of(lane.depot))
            .collect();
        for name in spares {
            self.remember(
                id,
                format!("{name}: kept in reserve"),
                Reason::Spare { name },
            );
        }
    }
}

fn admit(route: Route, active: Vec<usize>, reason: Reason) -> Verdict {
    Verdict::Admit {
        route,
        active,
        reason,
        is_leftover: false,
    }
}
