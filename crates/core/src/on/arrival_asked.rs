use alloc::{boxed::Box, vec::Vec};
use posthaste_types::{RequestId, Timestamp};

use crate::{
    Mind,
    arrival::Quantile,
    books::{Account, Arrival},
    contract::{ArrivalSpec, Happening, Holding, HopeReason, Outbox, Reason, WouldBuy},
};

impl Mind {
    /// Accepts a stage-in of a user, or refuses it with the reason. A known number is ignored, so
    /// that a replay does no harm.
    pub(crate) fn on_arrival_asked(
        &mut self,
        id: RequestId,
        spec: ArrivalSpec,
        holdings: &[Holding],
        out: &mut Outbox,
    ) {
        if self.arrivals.requests.contains_key(&id) || self.requests.contains_key(&id) {
            return;
        }
        let purse = self.arrivals.purses.remove(&id);
        let Some(spec) = self.keep_onward(id, spec) else {
            return;
        };
        let mut arrival = self.new_arrival(spec, holdings);
        if let Some(purse) = purse {
            arrival.set_purse(purse);
        }
        let from = self.readable_from(id, Quantile::P10);
        match self.judge_within(&mut arrival, from) {
            Err(reason) => self.refuse_dear_arrival(id, arrival, reason, out),
            Ok(is_leftover) => {
                arrival.is_leftover = is_leftover;
                self.take_arrival(id, arrival, out);
            }
        }
    }

    /// Builds a stage-in to be weighed, from what is known of its sources now.
    pub(crate) fn new_arrival(&mut self, spec: ArrivalSpec, holdings: &[Holding]) -> Arrival {
        let mut arrival = Arrival::new(spec, holdings, self.now);
        let sources = &self.arrivals.sources;
        arrival.keep_sources(|source| sources.contains_key(&source));
        self.look_at_inbound_links();
        arrival
    }

    /// Accepts a stage-in that was weighed.
    pub(crate) fn take_arrival(&mut self, id: RequestId, arrival: Arrival, out: &mut Outbox) {
        let is_leftover = arrival.is_leftover;
        let from = self.readable_from(id, Quantile::P10);
        let hoped = self.weigh_arrival(&arrival, from, Quantile::Hopeful).0;
        self.arrivals.requests.insert(id, Box::new(arrival));
        self.look_at_arrivals();
        self.answer_arrival(id, hoped, out);
        // A stage-in accepted in hope is known to be at risk.
        let arrival = self.arrivals.requests.get(&id);
        let is_late = arrival.is_some_and(|arrival| {
            let finish = arrival.finish;
            finish.is_some_and(|finish| finish.p90 > arrival.spec.deadline)
        });
        if is_leftover || is_late {
            self.say_arrival_at_risk(id, out);
        }
        self.look_at_arrivals_now();
    }

    /// Returns whether it is accepted although it can't be on time, from when it can be read. As
    /// over depots, nothing is refused for want of knowledge. An error is the reason of a refusal.
    pub(crate) fn judge(&self, arrival: &Arrival, from: Option<Timestamp>) -> Result<bool, Reason> {
        let spec = &arrival.spec;
        let deadline = spec.deadline;
        if !arrival.can_be_had() {
            return Err(Reason::NoSourceKnown);
        }
        if deadline <= self.now {
            return Err(Reason::DeadlinePast { deadline });
        }
        let (p90, binding) = self.weigh_arrival(arrival, from, Quantile::P10);
        let hoped = self.weigh_arrival(arrival, from, Quantile::Hopeful).0;
        let mut finishes = p90.into_iter().chain(hoped);
        if finishes.any(|finish| finish <= deadline) {
            return Ok(false);
        }
        if spec.best_effort {
            return Ok(true);
        }
        let mut would_buy = self.bargain_arrival(arrival, from);
        would_buy.extend(p90.map(|deadline| WouldBuy::Later { deadline }));
        Err(match binding {
            Some(binding) => Reason::OnlyThere {
                binding,
                finish: p90,
                deadline,
                would_buy,
            },
            None => Reason::Infeasible {
                earliest: p90,
                deadline,
                would_buy,
            },
        })
    }

    fn answer_arrival(&mut self, id: RequestId, hoped: Option<Timestamp>, out: &mut Outbox) {
        let Some(arrival) = self.arrivals.requests.get_mut(&id) else {
            return;
        };
        let deadline = arrival.spec.deadline;
        let finish = arrival.finish.map(|finish| finish.p90);
        arrival.account = Account::open(deadline, finish);
        let sources = u32::try_from(arrival.lanes.len()).unwrap_or(u32::MAX);
        let begin_by = arrival.begin_by.filter(|_| !arrival.is_due);
        let reason = match (finish, arrival.binding.clone()) {
            (Some(finish), Some(binding)) if finish <= deadline => Reason::InboundBound {
                sources,
                begin_by,
                finish,
                deadline,
                binding,
            },
            (Some(finish), None) if finish <= deadline => Reason::Inbound {
                sources,
                begin_by,
                finish,
                deadline,
            },
            (finish, binding) => match (hoped.filter(|hoped| *hoped <= deadline), binding) {
                (Some(hoped), _) => Reason::Hoped {
                    why: HopeReason::Inbound {
                        sources,
                        hoped,
                        deadline,
                    },
                },
                (None, Some(binding)) => Reason::OnlyThere {
                    binding,
                    finish,
                    deadline,
                    would_buy: Vec::new(),
                },
                (None, None) => Reason::Infeasible {
                    earliest: finish,
                    deadline,
                    would_buy: Vec::new(),
                },
            },
        };
        self.tell(out, Some(id), None, Happening::Admitted, reason);
    }
}
