//! Looks for what would make a refused request possible, with the state changed for the trial and
//! put back.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "of other reasons nothing would help"
)]

use alloc::vec::Vec;
use posthaste_types::{DepotId, Timestamp};

use crate::{
    contract::{Reason, WouldBuy},
    decide,
    decide::counter_offer::{Bargain, OFFERS_MAX, effort},
    forecast, state,
    state::completion::Promised,
    state::{Request, State},
};

/// Adds to the reason of an infeasible request what would make it feasible, the least effort
/// first. For another reason, returns these offers beside it.
pub(crate) fn bargain(
    state: &mut State,
    request: &Request,
    left: &Promised,
    reason: Reason,
) -> (Reason, Vec<WouldBuy>) {
    match reason {
        Reason::Infeasible {
            earliest,
            deadline,
            would_buy,
        } => {
            let reason = Reason::Infeasible {
                earliest,
                deadline,
                would_buy: offers(state, request, left, would_buy),
            };
            (reason, Vec::new())
        }
        Reason::TooFewDepots { .. } | Reason::TooFewDomains { .. } | Reason::NoSpace { .. } => {
            let offers = offers(state, request, left, Vec::new());
            (reason, offers)
        }
        Reason::OverBudget {
            needed,
            finish: Some(finish),
            ..
        } => {
            let micro_usd = needed;
            (reason, alloc::vec![WouldBuy::Budget { micro_usd, finish }])
        }
        _ => (reason, Vec::new()),
    }
}

pub(crate) fn offers(
    state: &mut State,
    request: &Request,
    left: &Promised,
    would_buy: Vec<WouldBuy>,
) -> Vec<WouldBuy> {
    let mut bargain = Bargain {
        request,
        left,
        trials: 0,
    };
    let mut offers = Vec::from_iter(decide::counter_offer::offer_limit(state, &mut bargain));
    offers.extend(decide::counter_offer::offer_named(state, &mut bargain));
    offers.extend(offer_absent(state, &mut bargain));
    offers.extend(decide::counter_offer::offer_hours(state, &mut bargain));
    offers.extend(decide::counter_offer::offer_circuit(state, &bargain));
    offers.extend(decide::counter_offer::offer_reservations(
        state,
        &mut bargain,
    ));
    offers.extend(decide::counter_offer::offer_slack(state, &mut bargain));
    // A deadline after the purge of the source gains nothing.
    let is_gone = |at: Timestamp| {
        request
            .uncommon
            .purge_at
            .is_some_and(|purge_at| at > purge_at)
    };
    offers.extend(
        would_buy
            .into_iter()
            .filter(|offer| !matches!(offer, WouldBuy::Later { deadline } if is_gone(*deadline))),
    );
    offers.sort_by_key(effort);
    offers
}

/// Returns lost named depots any one of which would suffice, if it were back.
fn offer_absent(state: &mut State, bargain: &mut Bargain<'_>) -> Vec<WouldBuy> {
    let request = bargain.request;
    let lost: Vec<DepotId> = request
        .lanes
        .iter()
        .map(|lane| lane.depot)
        .filter(|id| {
            state
                .depots
                .get(id)
                .is_some_and(|depot| !depot.is_expected())
        })
        .collect();
    let mut offers = Vec::new();
    for id in lost {
        let Some(mut left) = state.depots.get(&id).map(|depot| {
            let mut left = bargain.left.clone();
            left.add(
                id,
                depot,
                forecast::completion::spread::spread(state),
                state.now,
            );
            left
        }) else {
            continue;
        };
        left.is_stale = false;
        let was_away = set_away(state, id, true);
        let trial = decide::counter_offer::with_depots(state, request, &[]);
        let finish = decide::counter_offer::try_offer(state, bargain, &trial, &left);
        set_away(state, id, was_away);
        if let Some(finish) = finish {
            let name = state::names::name_of(state, id);
            offers.push(WouldBuy::DepotBack { name, finish });
        }
        if offers.len() == OFFERS_MAX {
            break;
        }
    }
    offers
}

/// Sets whether plans may count on a depot that is down. Returns the previous setting.
fn set_away(state: &mut State, id: DepotId, is_away: bool) -> bool {
    state
        .depots
        .get_mut(&id)
        .is_some_and(|depot| core::mem::replace(&mut depot.is_away, is_away))
}
