//! Copies to an address from the depots of a request. Such a copy is answered together with that
//! request, and begins when it is safe. Once it has arrived, the depots need not keep anything.

use posthaste_types::{RequestId, Timestamp};

use super::outlook::Quantile;
use crate::{
    Mind,
    books::{Arrival, Onward, Outward},
    contract::{
        ArrivalSpec, ArrivalState, DeliveryReason, Happening, Outbox, Reason, RequestState,
    },
};

/// Onward copy, weighed with its request and not accepted yet.
pub(crate) struct Weighed {
    id: RequestId,
    arrival: Arrival,
}

impl Mind {
    /// Makes the stage-in that is submitted next an outgoing copy, read from the depots of a
    /// request.
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

    /// Returns the request from whose depots an onward copy is read.
    pub(crate) fn comes_of(&self, id: RequestId) -> Option<RequestId> {
        self.arrivals.outward.get(&id)?.of
    }

    /// Returns the number under which a request goes on from its depots to an address.
    #[must_use]
    pub fn goes_on_as(&self, of: RequestId) -> Option<RequestId> {
        self.arrivals.onward.get(&of).map(|onward| onward.id)
    }

    /// Returns whether all of a request is at the address to which it went on.
    pub(crate) fn has_gone_on(&self, of: RequestId) -> bool {
        let arrival = self
            .goes_on_as(of)
            .and_then(|id| self.arrivals.requests.get(&id));
        let is_all = |arrival: &Arrival| arrival.left_out.files == 0;
        arrival.is_some_and(|arrival| arrival.state == ArrivalState::Arrived && is_all(arrival))
    }

    /// Returns whether a request is still going on to its address.
    pub(crate) fn is_going_on(&self, of: RequestId) -> bool {
        let arrival = self
            .goes_on_as(of)
            .and_then(|id| self.arrivals.requests.get(&id));
        arrival.is_some_and(|arrival| arrival.state.is_live())
    }

    /// Returns when the copy can be read at all; none while that is not in sight.
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
            // The slow case of the request is the slow case of its copy.
            Quantile::P10 | Quantile::Hopeful => finish.p90,
            Quantile::P50 => finish.p50,
            Quantile::P90 => finish.p10,
        };
        Some(finish.max(self.now))
    }

    /// Returns whether nothing of it can be read yet, as the depots' data is not safe so far.
    pub(super) fn waits_for_depots(&self, id: RequestId) -> bool {
        let Some(of) = self.comes_of(id) else {
            return false;
        };
        let request = self.requests.get(&of);
        request.is_none_or(|request| request.safe_at.is_none())
    }

    /// Keeps a copy until the request from whose depots it comes is answered. Returns it if that
    /// has happened.
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

    /// Weighs the onward copy of a newcomer that would be safe then. None if it has none.
    ///
    /// # Errors
    ///
    /// Reason why the copy can't be on time.
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

    /// Accepts the weighed copy, as its request is accepted.
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

    /// Refuses the onward copy of a refused request.
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

    /// Ends the onward copy of a request that is over before all of it is at its address: nothing
    /// can be read any more.
    pub(crate) fn end_onward(&mut self, of: RequestId, state: ArrivalState, out: &mut Outbox) {
        if let Some(id) = self.goes_on_as(of)
            && self.is_going_on(of)
        {
            let why = DeliveryReason::StaysBehind { of };
            self.end_arrival(id, state, Reason::Delivery { why }, out);
        }
    }

    /// Marks a request as delivered once all of it is at its address. Depots keep what was left
    /// out, which lies there alone.
    pub(crate) fn onward_arrived(&mut self, id: RequestId, out: &mut Outbox) {
        let arrival = self.arrivals.requests.get(&id);
        if arrival.is_some_and(|arrival| arrival.left_out.files > 0) {
            self.onward_ended(id);
        } else if let Some(of) = self.comes_of(id) {
            let why = DeliveryReason::AtAddress { by: id };
            self.end_delivered(of, Reason::Delivery { why }, out);
        }
    }

    /// Lets depots drop what is at its address, once the source was removed or stays for good.
    pub(crate) fn forget_if_gone_on(&mut self, of: RequestId) {
        if self.has_gone_on(of)
            && let Some(by) = self.goes_on_as(of)
        {
            let why = DeliveryReason::AtAddress { by };
            self.begin_forgetting(of, Reason::Delivery { why });
        }
    }

    /// Handles an onward copy that ended before all of it was at its address: depots keep their
    /// data for pulls.
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

    /// Refuses a stage-in.
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
