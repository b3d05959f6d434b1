//! Keeps the forecasts of stage-ins.

use alloc::vec::Vec;
use posthaste_types::RequestId;

use crate::{
    apply,
    contract::Forecast,
    decide, forecast,
    forecast::stage_in::inbound::Share,
    forecast::stage_in::{Nearby, Quantile, forecast, set_begin, starts_at},
    state::State,
};

/// Ages what is known of the paths from the sources until now.
pub(crate) fn look_at_inbound_links(state: &mut State) {
    let (now, settings) = (state.now, &state.settings);
    for source in state.arrivals.sources.values_mut() {
        source.link.look(now, settings);
    }
}

/// Reviews every live stage-in: its latest start, whether it may move, its finish.
pub(crate) fn look_at_arrivals(state: &mut State) {
    look_at_inbound_links(state);
    let order = state.arrivals.in_turn();
    promise_backward(state, &order);
    forecast_forward(state, &order);
    for (place, id) in order.iter().enumerate() {
        apply::stage_in::slack::keep_account_of_arrival(state, *id, place == 0);
    }
}

fn promise_backward(state: &mut State, order: &[RequestId]) {
    let now = state.now;
    let alone = forecast::stage_in::inbound(state, Quantile::P10);
    let mut left = alone.clone();
    for id in order {
        let until = apply::stage_in::budget::divide_money(state, *id, &alone, &left);
        let Some(arrival) = state.arrivals.requests.get(id) else {
            continue;
        };
        let until = until.unwrap_or_else(|| forecast::stage_in::wanted_by(state, arrival, &alone));
        let edges = if arrival.is_leftover || arrival.is_paused() {
            Vec::new()
        } else {
            left.late(arrival, now, until)
        };
        let onward = alone.late_onward(arrival, now, until);
        let near = arrival.near.iter();
        let mut usable =
            near.filter(|near| decide::stage_in::near::takes_more(state, arrival, near));
        let nearby = match onward {
            _ if usable.clone().next().is_none() => Nearby::Closed,
            _ if usable.any(|near| decide::stage_in::near::is_near_unknown(state, near)) => {
                Nearby::Unknown
            }
            Some(at) => Nearby::From(at),
            None => Nearby::Closed,
        };
        if let Some(arrival) = state.arrivals.requests.get_mut(id) {
            set_begin(arrival, &edges, nearby, until, now);
        }
    }
}

fn forecast_forward(state: &mut State, order: &[RequestId]) {
    let now = state.now;
    let mut all = [Quantile::P10, Quantile::P50, Quantile::P90]
        .map(|quantile| forecast::stage_in::inbound(state, quantile));
    for id in order {
        let Some(arrival) = state.arrivals.requests.get(id) else {
            continue;
        };
        let readable = [Quantile::P10, Quantile::P50, Quantile::P90]
            .map(|quantile| forecast::stage_in::onward::readable_from(state, *id, quantile));
        let [Some(late), Some(likely), Some(soon)] = readable else {
            if let Some(arrival) = state.arrivals.requests.get_mut(id) {
                (arrival.finish, arrival.binding) = (None, None);
            }
            continue;
        };
        let from = |share: Share| starts_at(arrival, share, now);
        if arrival.is_whole() {
            // Its files are getting their names.
            let finish = Some(Forecast::at(now));
            if let Some(arrival) = state.arrivals.requests.get_mut(id) {
                (arrival.finish, arrival.binding) = (finish, None);
                arrival.expect_to_pay(0);
            }
            continue;
        }
        let mut spare = None;
        let [slow, middle, fast] = match arrival.is_paused() {
            // Forecast as if it resumed now; it takes nothing that others find.
            true => spare.insert(all.clone()),
            false => &mut all,
        };
        let coming = decide::stage_in::budget::cost_to_come(state, arrival, middle, |share| {
            from(share).max(likely)
        });
        let p90 = slow.early(arrival, |share| from(share).max(late));
        let p50 = middle.early(arrival, |share| from(share).max(likely)).edge;
        let p10 = fast.early(arrival, |share| from(share).max(soon)).edge;
        let finish = forecast(arrival, now, [p10, p50, p90.edge]);
        let binding = forecast::stage_in::binding(state, arrival, p90);
        if let Some(arrival) = state.arrivals.requests.get_mut(id) {
            (arrival.finish, arrival.binding) = (finish, binding);
            arrival.expect_to_pay(coming);
        }
    }
}
