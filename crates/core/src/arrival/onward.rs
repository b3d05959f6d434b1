//! What goes on to an address from the depots that hold it: a stage-out of its own, which is read there. It is answered
//! together with the request whose depots these are, begins when that is safe, and depots need not keep anything once it
//! has arrived.

use posthaste_types::{RequestId, Timestamp};

use super::outlook::Quantile;
use crate::{
    Mind,
    books::{Arrival, Onward, Outward},
    contract::{
        ArrivalSpec, ArrivalState, DeliveryReason, Happening, Outbox, Reason, RequestState,
    },
};

/// What goes on, weighed with what it comes from and not taken yet.
pub(crate) struct Weighed {
    id: RequestId,
    arrival: Arrival,
}

impl Mind {
    /// A stage-in that is asked for next goes out, and is read from the depots of a request.
    pub(crate) fn on_goes_on(&mut self, id: RequestId, of: RequestId) {
        let is_taken = self.arrivals.onward.contains_key(&of);
        if is_taken || self.arrivals.requests.contains_key(&id) {
            return;
        }
        let outward = Outward {
            of: Some(of),
            ..Outward::new(false)
        };
        self.arrivals.outward.entry(id).or_insert(outward);
        let onward = Onward { id, spec: None };
        self.arrivals.onward.insert(of, onward);
    }

    /// The request from whose depots it is read, of what goes on from some.
    pub(crate) fn comes_of(&self, id: RequestId) -> Option<RequestId> {
        self.arrivals.outward.get(&id)?.of
    }

    /// As which request one goes on from its depots to an address.
    #[must_use]
    pub fn goes_on_as(&self, of: RequestId) -> Option<RequestId> {
        self.arrivals.onward.get(&of).map(|onward| onward.id)
    }

    /// Whether all of a request is at the address that it went on to.
    pub(crate) fn has_gone_on(&self, of: RequestId) -> bool {
        let arrival = self
            .goes_on_as(of)
            .and_then(|id| self.arrivals.requests.get(&id));
        let is_all = |arrival: &Arrival| arrival.left_out.files == 0;
        arrival.is_some_and(|arrival| arrival.state == ArrivalState::Arrived && is_all(arrival))
    }

    /// Whether somebody still brings a request on to its address.
    pub(crate) fn is_going_on(&self, of: RequestId) -> bool {
        let arrival = self
            .goes_on_as(of)
            .and_then(|id| self.arrivals.requests.get(&id));
        arrival.is_some_and(|arrival| arrival.state.is_live())
    }

    /// When what is asked for can be read at all; none while that is not in sight.
    pub(crate) fn readable_from(&self, id: RequestId, quantile: Quantile) -> Option<Timestamp> {
        let Some(of) = self.comes_of(id) else {
            return Some(self.now);
        };
        let request = self.requests.get(&of)?;
        if request.safe_at.is_some() {
            return Some(self.now);
        }
        let finish = request.finish?;
        let finish = match quantile {
            // The slow case of one is that of the other.
            Quantile::P10 | Quantile::Hopeful => finish.p90,
            Quantile::P50 => finish.p50,
            Quantile::P90 => finish.p10,
        };
        Some(finish.max(self.now))
    }

    /// Whether nothing of it can be read yet: what depots hold is not safe so far.
    pub(super) fn waits_for_depots(&self, id: RequestId) -> bool {
        let Some(of) = self.comes_of(id) else {
            return false;
        };
        let request = self.requests.get(&of);
        request.is_none_or(|request| request.safe_at.is_none())
    }

    /// Keeps what is asked for until the request whose depots it comes from is answered. Gives it back where that is so.
    pub(crate) fn keep_onward(&mut self, id: RequestId, spec: ArrivalSpec) -> Option<ArrivalSpec> {
        let Some(of) = self.comes_of(id) else {
            return Some(spec);
        };
        if self.requests.contains_key(&of) {
            return Some(spec);
        }
        if let Some(onward) = self.arrivals.onward.get_mut(&of) {
            onward.spec = Some(spec);
        }
        None
    }

    /// Weighs what a newcomer that would be safe then goes on as. None where it does not.
    ///
    /// # Errors
    /// Why that can't be on time.
    pub(crate) fn weigh_onward(
        &mut self,
        of: RequestId,
        safe_at: Option<Timestamp>,
    ) -> Result<Option<Weighed>, Reason> {
        let onward = self.arrivals.onward.get(&of);
        let Some((id, spec)) = onward.and_then(|onward| Some((onward.id, onward.spec.clone()?)))
        else {
            return Ok(None);
        };
        let mut arrival = self.new_arrival(spec, &[]);
        arrival.is_leftover = self.judge(&arrival, safe_at)?;
        Ok(Some(Weighed { id, arrival }))
    }

    /// Takes what was weighed: the request that it comes from is taken.
    pub(crate) fn take_onward(&mut self, of: RequestId, weighed: Weighed, out: &mut Outbox) {
        let Weighed { id, arrival } = weighed;
        if let Some(onward) = self.arrivals.onward.get_mut(&of) {
            onward.spec = None;
        }
        self.take_arrival(id, arrival, out);
        let why = DeliveryReason::GoesOn { by: id };
        self.remember(
            of,
            "goes on to its address".into(),
            Reason::Delivery { why },
        );
    }

    /// A request is not taken: neither is what it was to go on as.
    pub(crate) fn refuse_onward(&mut self, of: RequestId, out: &mut Outbox) {
        let onward = self.arrivals.onward.get_mut(&of);
        let Some((id, spec)) = onward.and_then(|onward| Some((onward.id, onward.spec.take()?)))
        else {
            return;
        };
        let arrival = self.new_arrival(spec, &[]);
        let why = DeliveryReason::StaysBehind { of };
        self.refuse_arrival(id, arrival, Reason::Delivery { why }, out);
    }

    /// A request is over before all of it is at its address: nothing can be read any more.
    pub(crate) fn end_onward(&mut self, of: RequestId, state: ArrivalState, out: &mut Outbox) {
        if let Some(id) = self.goes_on_as(of)
            && self.is_going_on(of)
        {
            let why = DeliveryReason::StaysBehind { of };
            self.end_arrival(id, state, Reason::Delivery { why }, out);
        }
    }

    /// All of it is at its address: the request whose depots it came from is delivered. What was left out is at those depots alone, and
    /// they keep it.
    pub(crate) fn onward_arrived(&mut self, id: RequestId, out: &mut Outbox) {
        let arrival = self.arrivals.requests.get(&id);
        if arrival.is_some_and(|arrival| arrival.left_out.files > 0) {
            self.onward_ended(id);
        } else if let Some(of) = self.comes_of(id) {
            let why = DeliveryReason::AtAddress { by: id };
            self.end_delivered(of, Reason::Delivery { why }, out);
        }
    }

    /// Depots need not keep what is at its address: their source was waited for, and is removed or stays for good.
    pub(crate) fn forget_if_gone_on(&mut self, of: RequestId) {
        if self.has_gone_on(of)
            && let Some(by) = self.goes_on_as(of)
        {
            let why = DeliveryReason::AtAddress { by };
            self.begin_forgetting(of, Reason::Delivery { why });
        }
    }

    /// It ended before all of it was at its address: what depots hold is there for whoever pulls it.
    pub(crate) fn onward_ended(&mut self, id: RequestId) {
        let Some(of) = self.comes_of(id) else {
            return;
        };
        let request = self.requests.get(&of);
        if request
            .is_some_and(|request| request.is_kept() && request.state != RequestState::Delivered)
        {
            let why = DeliveryReason::NotBrought { by: id };
            self.remember(of, "stays on depots".into(), Reason::Delivery { why });
        }
    }

    /// What is not taken.
    pub(crate) fn refuse_arrival(
        &mut self,
        id: RequestId,
        mut arrival: Arrival,
        reason: Reason,
        out: &mut Outbox,
    ) {
        arrival.state = ArrivalState::Refused;
        arrival.close_books();
        self.arrivals
            .requests
            .insert(id, alloc::boxed::Box::new(arrival));
        self.tell(out, Some(id), None, Happening::Refused, reason);
    }
}
