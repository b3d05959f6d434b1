//! Accepts a stage-in, or refuses it with the reason.

use posthaste_types::Timestamp;

use crate::{
    contract::{Reason, WouldBuy},
    decide, forecast,
    forecast::stage_in::Quantile,
    state::{Arrival, State},
};

/// Returns whether it is accepted although it can't be on time, from when it can be read. As
/// over depots, nothing is refused for want of knowledge. An error is the reason of a refusal.
pub(crate) fn judge(
    state: &State,
    arrival: &Arrival,
    from: Option<Timestamp>,
) -> Result<bool, Reason> {
    let spec = &arrival.spec;
    let deadline = spec.deadline;
    if !arrival.can_be_had() {
        return Err(Reason::NoSourceKnown);
    }
    if deadline <= state.now {
        return Err(Reason::DeadlinePast { deadline });
    }
    let (p90, binding) = forecast::stage_in::weigh_arrival(state, arrival, from, Quantile::P10);
    let hoped = forecast::stage_in::weigh_arrival(state, arrival, from, Quantile::Hopeful).0;
    let mut finishes = p90.into_iter().chain(hoped);
    if finishes.any(|finish| finish <= deadline) {
        return Ok(false);
    }
    if spec.best_effort {
        return Ok(true);
    }
    let mut would_buy = decide::stage_in::counter_offer::bargain_arrival(state, arrival, from);
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
