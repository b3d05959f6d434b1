//! Choice of paths to probe (`docs/algorithms/bandwidth-forecast.md`): only one that a request
//! could use, that was not measured recently and that is idle. Probes run one at a time, for a
//! hundredth of what the request sends and pays. Outside its hours a depot is not probed. Transfers
//! show more, so probes fill gaps.

mod crossing;

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp, record};

use crate::{
    Mind,
    books::{Depot, Request, Route},
    contract::{Command, GIGABYTE, Outbox, Reason},
};

/// Time for which a path is assumed to carry a probe: slow start and three seconds.
const PROBE_SPAN: Duration = Duration::from_secs(5);
/// Time before the end of its hours in which a depot is not probed: no probe takes longer.
const PROBE_SPAN_MAX: Duration = Duration::from_secs(20);

record! {
    /// Probe in progress.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Probing {
        /// Depot that sends; none if the centre does.
        pub(crate) from: Option<DepotId>,
        /// Depot that receives it.
        pub(crate) depot: DepotId,
        pub(crate) since: Timestamp,
        /// Most that it may send.
        pub(crate) budget: Bytes,
        /// Request that pays for it; none when a person asked.
        pub(crate) request: Option<RequestId>,
    }
}

impl Mind {
    /// Starts a probe for the request, if one is due and none is in progress.
    pub(crate) fn probe_for(&mut self, id: RequestId, out: &mut Outbox) {
        if !self.may_probe() {
            return;
        }
        if let Some((depot, budget)) = self.find_stale(id) {
            self.probe(depot, budget, Some(id), out);
        } else if let Some((from, to, budget)) = self.find_stale_crossing(id) {
            self.probe_crossing(from, to, budget, Some(id), out);
        }
    }

    /// Starts a probe for a request that did not use the depot yet, if its link is free and no
    /// other is in progress.
    pub(crate) fn probe_before(
        &mut self,
        id: RequestId,
        to: DepotId,
        budget: Bytes,
        out: &mut Outbox,
    ) {
        if self.may_probe() && self.stale_since(to).is_some() {
            self.probe(to, budget, Some(id), out);
        }
    }

    /// Starts a probe that a person asked for, if its link is free and no other is in progress.
    pub(crate) fn probe_asked(&mut self, out: &mut Outbox) {
        if !self.may_probe() {
            return;
        }
        let now = self.now;
        let asked = self.depots.iter().find(|(_, depot)| {
            depot.link.is_probe_asked
                && depot.is_up()
                && depot.link.flights == 0
                && is_open(depot, now)
        });
        if let Some(depot) = asked.map(|(id, _)| *id) {
            return self.probe(depot, self.settings.probe_bytes_max, None, out);
        }
        self.probe_crossing_asked(out);
    }

    /// Returns whether no probe is in progress, or one that will not be answered any more.
    fn may_probe(&mut self) -> bool {
        let (now, wait) = (self.now, self.settings.probe_wait);
        self.probing.take_if(|probing| probing.since + wait <= now);
        self.probing.is_none()
    }

    fn probe(&mut self, id: DepotId, budget: Bytes, request: Option<RequestId>, out: &mut Outbox) {
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        depot.link.is_probe_asked = false;
        let measured_at = depot.link.path().measured_at();
        let name = depot.name.clone();
        self.probing = Some(Probing {
            from: None,
            depot: id,
            since: self.now,
            budget,
            request,
        });
        let reason = match request {
            None => Reason::Asked,
            Some(payer) => {
                let reason = Reason::PathStale {
                    measured_at,
                    budget,
                };
                self.charge_probe(payer, id, budget, name, reason.clone());
                reason
            }
        };
        out.commands.push(Command::Probe {
            depot: id,
            budget,
            reason,
        });
    }

    /// Charges a probe to the request, and records its path.
    fn charge_probe(
        &mut self,
        payer: RequestId,
        to: DepotId,
        budget: Bytes,
        name: String,
        reason: Reason,
    ) {
        let depot = self.depots.get(&to);
        let price = depot.map_or(0, |depot| depot.terms.sending().of(budget).micro_usd());
        self.remember_of(payer, name, 0, "probed".into(), reason);
        if let Some(payer) = self.requests.get_mut(&payer) {
            payer.uncommon.probed += budget;
            payer.uncommon.probed_micro_usd = payer.uncommon.probed_micro_usd.saturating_add(price);
        }
        if let Some(payer) = self.arrivals.requests.get_mut(&payer) {
            payer.probed += budget;
        }
    }

    /// Returns what a probe for the request may send, and what it may cost in millionths of a
    /// dollar; none if it should send nothing.
    fn probe_allowance(&self, request: &Request) -> Option<(Bytes, u64)> {
        let settings = &self.settings;
        // A probe goes as fast as it can.
        if request.wishes.rate_max.is_some() {
            return None;
        }
        let left = allowance(request, settings.probe_permille) - request.uncommon.probed;
        if left < settings.probe_bytes_min {
            return None;
        }
        let paid = u64::from(settings.probe_permille) * self.cost(request).send_micro_usd / 1000;
        // A budget is for the data.
        let money = match request.wishes.budget_micro_usd {
            Some(_) => 0,
            None => paid.saturating_sub(request.uncommon.probed_micro_usd),
        };
        Some((left, money))
    }

    /// Returns the path of the request that is most worth a probe, and what that may cost.
    fn find_stale(&self, id: RequestId) -> Option<(DepotId, Bytes)> {
        let settings = &self.settings;
        let request = self.requests.get(&id)?;
        let comes_in_time = request
            .finish
            .is_none_or(|finish| finish.p50 > self.now + settings.probe_lead);
        let (left, money) = self.probe_allowance(request).filter(|_| comes_in_time)?;
        let stale: Vec<(Option<Timestamp>, DepotId)> = request
            .lanes
            .iter()
            .enumerate()
            .filter(|(lane, _)| is_candidate(request, *lane))
            .filter_map(|(_, lane)| Some((self.stale_since(lane.depot)?, lane.depot)))
            .collect();
        let affordable = stale.into_iter().filter_map(|(since, id)| {
            let depot = self.depots.get(&id)?;
            let most = left.min(for_money(depot, money));
            (most >= settings.probe_bytes_min).then_some((since, id, most))
        });
        // Never measured comes first, then the oldest.
        let (_, depot, most) = affordable.min()?;
        let rate = self.depots.get(&depot)?.link.rates.p90;
        let wanted = rate.volume(PROBE_SPAN).max(settings.probe_bytes_min);
        Some((depot, wanted.min(most).min(settings.probe_bytes_max)))
    }

    /// Records what a probe for the request sent: the rest of its possible cost is there for
    /// others.
    pub(crate) fn settle_probe(&mut self, probing: &Probing, sent: Bytes) {
        let price = |bytes: Bytes| {
            let depot = self.depots.get(&probing.depot);
            depot.map_or(0, |depot| depot.terms.sending().of(bytes).micro_usd())
        };
        let saved = price(probing.budget).saturating_sub(price(sent));
        let payer = probing.request;
        let waits = payer.and_then(|payer| self.arrivals.requests.get_mut(&payer));
        if let Some(payer) = waits {
            payer.probed -= probing.budget - sent;
        }
        if let Some(request) = probing
            .request
            .and_then(|payer| self.requests.get_mut(&payer))
        {
            request.uncommon.probed -= probing.budget - sent;
            request.uncommon.probed_micro_usd =
                request.uncommon.probed_micro_usd.saturating_sub(saved);
        }
    }

    /// Returns when the idle path to the depot was measured last, if that is too long ago.
    fn stale_since(&self, id: DepotId) -> Option<Option<Timestamp>> {
        let depot = self.depots.get(&id)?;
        let link = &depot.link;
        let measured_at = link.path().measured_at();
        let heard_at = measured_at.max(link.probed_at);
        let is_stale = heard_at.is_none_or(|at| at + self.settings.probe_after <= self.now);
        let is_idle = depot.is_up() && depot.resume_at <= self.now && link.flights == 0;
        let is_free = is_idle && is_open(depot, self.now);
        (is_stale && is_free).then_some(measured_at)
    }
}

/// Returns whether the hours of the depot let a probe begin and end, and its load.
fn is_open(depot: &Depot, now: Timestamp) -> bool {
    depot.is_open(now) && depot.is_open(now + PROBE_SPAN_MAX)
}

/// Returns the bytes of a probe of the depot for so much money.
fn for_money(depot: &Depot, micro_usd: u64) -> Bytes {
    let price = u128::from(depot.terms.send_micro_usd);
    let bytes = u128::from(micro_usd) * u128::from(GIGABYTE.get());
    match bytes.checked_div(price) {
        Some(bytes) => Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX)),
        None => Bytes::new(u64::MAX),
    }
}

/// Returns whether the request may come to use this lane. A lane that it feeds is measured by that.
fn is_candidate(request: &Request, lane: usize) -> bool {
    let is_fed = request.lanes[lane].is_active && request.is_on_route(lane);
    let is_drained = request.uncommon.drained >> lane & 1 == 1;
    !is_fed && !is_drained && request.lanes[lane].asked_at.is_none()
}

/// Returns the bytes of probes for which the request may pay in all.
fn allowance(request: &Request, permille: u32) -> Bytes {
    let code = request.spec.code;
    let planned = match request.route {
        Route::Direct => u128::from(request.spec.bytes.get()),
        Route::Staged => {
            u128::from(request.spec.bytes.get()) * u128::from(code.total())
                / u128::from(code.data().max(1))
        }
    };
    Bytes::new(u64::try_from(planned * u128::from(permille) / 1000).unwrap_or(u64::MAX))
}
