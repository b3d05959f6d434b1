//! Rest of one stage-in at each of its sources, for views of its transfers.

use alloc::{collections::BTreeMap, vec::Vec};
use posthaste_types::{Bytes, RequestId, SourceId, Timestamp};

use crate::{
    contract::Forecast,
    forecast,
    forecast::stage_in::inbound::{Inbound, Share},
    forecast::stage_in::{Quantile, starts_at},
    state::{Arrival, State},
};

/// Most stage-ins that are visited before one: some milliseconds.
const LOOKS_MAX: usize = 128;

/// Data still to come from one source.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Coming {
    /// Bytes of the chunks that come here, in the median.
    pub(crate) bytes: Bytes,
    /// Time at which the last of them is here.
    pub(crate) finish: Option<Forecast>,
}

/// Bytes that each source gives, and when the last of them is here.
pub(crate) type Given = BTreeMap<SourceId, (Bytes, Option<Timestamp>)>;

impl Inbound {
    /// Lets one stage-in take its share, and returns what comes from each source.
    pub(crate) fn give(&mut self, arrival: &Arrival, from: impl Fn(Share) -> Timestamp) -> Given {
        let sources: Vec<SourceId> = self.places.keys().copied().collect();
        let mut given = Given::new();
        self.fill(arrival, |supplies, share, load| {
            let outcome = supplies.early(load, from(share));
            for (supply, bytes, end) in load.ends(&outcome) {
                let Some(source) = sources.get(supply) else {
                    continue;
                };
                let sum = given.entry(*source).or_default();
                *sum = (sum.0 + bytes, sum.1.max(end));
            }
            outcome
        });
        given
    }
}

/// Returns the rest of a stage-in at each of its sources, after the more urgent ones: the look
/// at all stage-ins, up to this one. None if it is over, or too many are more urgent for a
/// quick look.
pub(crate) fn coming(state: &State, id: RequestId) -> Option<BTreeMap<SourceId, Coming>> {
    let now = state.now;
    let order = state.arrivals.in_turn();
    let before = order.iter().position(|other| *other == id);
    let before = before.filter(|before| *before < LOOKS_MAX)?;
    let arrival = state.arrivals.requests.get(&id)?;
    let given = [Quantile::P90, Quantile::P50, Quantile::P10].map(|quantile| {
        let mut inbound = forecast::stage_in::inbound(state, quantile);
        let others = order[..before].iter();
        let others = others.filter_map(|other| state.arrivals.requests.get(other));
        for other in others.filter(|other| !other.is_paused() && !other.is_whole()) {
            inbound.early(other, |share| starts_at(other, share, now));
        }
        inbound.give(arrival, |share| starts_at(arrival, share, now))
    });
    let of = |(source, (bytes, _)): (&SourceId, &(Bytes, Option<Timestamp>))| {
        let ends = [0, 1, 2].map(|at: usize| given[at].get(source)?.1);
        let coming = Coming {
            bytes: *bytes,
            finish: Forecast::ordered(ends).and_then(|finish| {
                let quantiles = [finish.p10, finish.p50, finish.p90];
                forecast::stage_in::forecast(arrival, now, quantiles.map(Some))
            }),
        };
        (*source, coming)
    };
    Some(given[1].iter().map(of).collect())
}
