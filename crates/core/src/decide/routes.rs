//! Choice among several ways to a depot (`docs/algorithms/ways.md`): through a gateway only if that
//! carries more. The rate of a way shows by sending data over it. A way of unknown recent rate is
//! tried for some seconds while there is much to send. Trials run one at a time for the whole
//! centre, and ever more rarely if they fail.

use core::time::Duration;
use posthaste_types::{DepotId, RequestId};

use crate::{
    contract::{Command, Reason, WayReason},
    state::State,
};

/// Full-rate measurements by which a way is judged.
pub(crate) const SAMPLES: u32 = 3;

/// Time after the end of earlier flights after which a trial without them ends.
pub(crate) const TRIAL_MAX: Duration = Duration::from_secs(60);

/// Longest wait for earlier flights.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(600);

/// Forecast time to the finish below which a request tries nothing: the trial would last as long.
const WORTH_FROM: Duration = Duration::from_secs(60);

/// Age up to which a rate measured by transfers counts as known.
const FRESH: Duration = Duration::from_secs(10);

/// Time from one trial of a way to the next; twice as long after each in vain.
const REST: Duration = Duration::from_secs(600);

/// Doublings until the longest.
const DOUBLINGS_MAX: u32 = 4;

/// Returns a way of a depot that carries data of the request and whose recent rate is unknown.
pub(crate) fn find_untried(state: &State, id: RequestId) -> Option<(DepotId, usize)> {
    let request = state.requests.get(&id)?;
    // A limited rate shows nothing about the ways.
    if request.wishes.rate_max.is_some() {
        return None;
    }
    let is_long = request
        .finish
        .is_none_or(|finish| finish.p50 > state.now + WORTH_FROM);
    if !is_long {
        return None;
    }
    let lanes = request.lanes.iter().enumerate();
    let mut fed = lanes.filter(|(lane, fed)| fed.is_active && request.is_on_route(*lane));
    fed.find_map(|(_, lane)| Some((lane.depot, untried_to(state, lane.depot)?)))
}

fn untried_to(state: &State, id: DepotId) -> Option<usize> {
    let now = state.now;
    let depot = state.depots.get(&id).filter(|depot| {
        !depot.fork.is_one()
            && !depot.fork.is_diverted()
            && depot.is_up()
            && depot.link.flights > 0
            && !depot.is_draining()
    })?;
    let is_probed = state.probing.is_some_and(|probing| probing.depot == id);
    let is_known = depot.link.is_known_by_transfers(now, FRESH);
    if is_probed || !is_known || state.circuits.may_carry(id, now) {
        return None;
    }
    let mut others = (0..depot.fork.branches().len()).filter(|way| *way != depot.fork.taken());
    others.find(|way| {
        let branch = depot.fork.branch(*way);
        branch.is_some_and(|branch| {
            let doublings = branch.fruitless.saturating_sub(1).min(DOUBLINGS_MAX);
            let rest = REST * 2_u32.pow(doublings);
            let heard_at = branch.tried_at.max(branch.path.measured_at());
            heard_at.is_none_or(|at| at + rest <= now)
        })
    })
}

pub(crate) fn is_trial_of(state: &State, depot: DepotId) -> bool {
    state.trial.is_some_and(|trial| trial.depot == depot)
}

pub(crate) fn take(depot: DepotId, way: usize, why: WayReason) -> Command {
    Command::Take {
        depot,
        way: u8::try_from(way).unwrap_or(u8::MAX),
        reason: Reason::Way { why },
    }
}
