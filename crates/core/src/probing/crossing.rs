//! Choice of paths between depots to probe. Such a path may come to carry a push or delivery of a
//! request, was not measured recently, and is idle. Both ends must be idle; a depot fed from the
//! centre may be the sender while no deadline is in danger.

use alloc::{format, vec::Vec};
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use super::{PROBE_SPAN, Probing, for_money, is_open};
use crate::{
    Mind,
    books::{Depot, Request},
    contract::{Command, Outbox, Reason},
};

/// Most depots of a request that are considered as senders, and as receivers: the first of them.
const ENDS_MAX: usize = 16;

impl Mind {
    pub(super) fn probe_crossing(
        &mut self,
        from: DepotId,
        to: DepotId,
        budget: Bytes,
        payer: Option<RequestId>,
        out: &mut Outbox,
    ) {
        self.crossings.begin_probe(from, to);
        self.probing = Some(Probing {
            from: Some(from),
            depot: to,
            since: self.now,
            budget,
            request: payer,
        });
        let known = self.crossings.get(from, to);
        let measured_at = known.and_then(|known| known.path().measured_at());
        let reason = match payer {
            None => Reason::Asked,
            Some(payer) => {
                let reason = Reason::PathStale {
                    measured_at,
                    budget,
                };
                let name = format!("{} to {}", self.name_of(from), self.name_of(to));
                self.charge_probe(payer, to, budget, name, reason.clone());
                reason
            }
        };
        out.commands.push(Command::ProbeCrossing {
            from,
            to,
            budget,
            reason,
        });
    }

    /// Starts a probe that a person asked for, if neither end sends or receives anything.
    pub(super) fn probe_crossing_asked(&mut self, out: &mut Outbox) {
        let is_idle = |id: DepotId| {
            let depot = self.depots.get(&id);
            depot.is_some_and(|depot| {
                let gets = depot.link.flights > 0 || depot.arriving > Bytes::ZERO;
                depot.is_up() && !gets && is_open(depot, self.now) && !self.pushes.is_sending(id)
            })
        };
        let mut asked = self.crossings.asked();
        if let Some((from, to)) = asked.find(|&(from, to)| is_idle(from) && is_idle(to)) {
            drop(asked);
            self.probe_crossing(from, to, self.settings.probe_bytes_max, None, out);
        }
    }

    /// Returns the path between two depots that is most worth a probe for the request, and what
    /// that may cost.
    pub(super) fn find_stale_crossing(&self, id: RequestId) -> Option<(DepotId, DepotId, Bytes)> {
        let settings = &self.settings;
        let request = self.requests.get(&id)?;
        if request.push.is_none() && request.delivery.is_none() {
            return None;
        }
        let takers = self.takers(request);
        if takers.is_empty() {
            return None;
        }
        let (left, money) = self.probe_allowance(request)?;
        let givers = self.givers(request);
        let pairs = givers.iter().flat_map(|from| {
            let takers = takers.iter().filter(|to| {
                let is_further = request.push.is_some() && to.level > from.level;
                from.depot != to.depot && (to.is_destination || is_further)
            });
            takers.map(|to| (from.depot, to.depot))
        });
        let stale = pairs.filter_map(|(from, to)| {
            let since = self.crossings.stale_since(from, to, self.now, settings)?;
            let most = left.min(for_money(self.depots.get(&to)?, money));
            (most >= settings.probe_bytes_min).then_some((since, from, to, most))
        });
        // Never measured comes first, then the oldest.
        let (_, from, to, most): (Option<Timestamp>, _, _, _) = stale.min()?;
        let known = self.crossings.rates(from, to, self.now, settings);
        let rate = known.unwrap_or_else(|| settings.prior.quantiles(None)).p90;
        let wanted = rate.volume(PROBE_SPAN).max(settings.probe_bytes_min);
        Some((from, to, wanted.min(most).min(settings.probe_bytes_max)))
    }

    /// Returns depots from which something of the request goes on, or will, and that send nothing
    /// now.
    fn givers(&self, request: &Request) -> Vec<End> {
        let ends = self.probe_ends(request, |lane, depot| {
            let is_fed = request.lanes[lane].is_active && request.is_on_route(lane);
            let holds = request.replica.stored(lane).0 > 0;
            let is_calm = depot.link.flights == 0 || !request.at_risk;
            (is_fed || holds) && is_calm && !request.is_destination(lane) && !depot.stores
        });
        let ends = ends.filter(|end| !self.pushes.is_sending(end.depot));
        ends.take(ENDS_MAX).collect()
    }

    /// Returns depots to which something of the request should go from others, and that receive
    /// nothing now.
    fn takers(&self, request: &Request) -> Vec<End> {
        let is_delivered = request.delivery.is_some();
        let first = request
            .depot_lanes()
            .map(|lane| self.level_at(request, lane))
            .min();
        let ends = self.probe_ends(request, |lane, depot| {
            let is_wanted = match request.is_destination(lane) {
                true => is_delivered,
                false => request.push.is_some() && Some(self.level_at(request, lane)) > first,
            };
            let is_idle = depot.link.flights == 0 && depot.arriving == Bytes::ZERO;
            is_wanted && is_idle && !depot.is_draining()
        });
        ends.take(ENDS_MAX).collect()
    }

    fn level_at(&self, request: &Request, lane: usize) -> u8 {
        let id = request.lanes[lane].depot;
        let depot = self.depots.get(&id);
        depot.map_or(u8::MAX, |depot| {
            self.crossings.level(id, depot, request.lead_depot())
        })
    }

    /// Returns depots of the request that are up and open for as long as a probe takes.
    fn probe_ends(
        &self,
        request: &Request,
        is_one: impl Fn(usize, &Depot) -> bool,
    ) -> impl Iterator<Item = End> {
        let lanes = request.lanes.iter().enumerate();
        lanes.filter_map(move |(place, lane)| {
            let depot = self.depots.get(&lane.depot)?;
            let is_there = depot.is_up() && lane.asked_at.is_none() && depot.resume_at <= self.now;
            let is_end = is_there && is_open(depot, self.now) && is_one(place, depot);
            is_end.then_some(End {
                depot: lane.depot,
                level: self.level_at(request, place),
                is_destination: request.is_destination(place),
            })
        })
    }
}

/// End of a path between depots.
struct End {
    depot: DepotId,
    level: u8,
    is_destination: bool,
}
