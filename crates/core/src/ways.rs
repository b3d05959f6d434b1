//! Choice among several ways to a depot (`docs/algorithms/ways.md`): through a gateway only if that
//! carries more. The rate of a way shows by sending data over it. A way of unknown recent rate is
//! tried for some seconds while there is much to send. Trials run one at a time for the whole
//! centre, and ever more rarely if they fail.

use alloc::string::String;
use core::time::Duration;
use posthaste_plan::ways::{choose, pays};
use posthaste_types::{ByteRate, CircuitId, DepotId, RequestId, Timestamp, record};

use crate::{
    Mind,
    books::Depot,
    contract::{Command, Happening, Outbox, Reason, WayReason},
};

/// Full-rate measurements by which a way is judged.
const SAMPLES: u32 = 3;
/// Time after the end of earlier flights after which a trial without them ends.
const TRIAL_MAX: Duration = Duration::from_secs(60);
/// Longest wait for earlier flights.
const DRAIN_MAX: Duration = Duration::from_secs(600);
/// Forecast time to the finish below which a request tries nothing: the trial would last as long.
const WORTH_FROM: Duration = Duration::from_secs(60);
/// Age up to which a rate measured by transfers counts as known.
const FRESH: Duration = Duration::from_secs(10);
/// Time from one trial of a way to the next; twice as long after each in vain.
const REST: Duration = Duration::from_secs(600);
/// Doublings until the longest.
const DOUBLINGS_MAX: u32 = 4;

record! {
    /// Way being tried.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Trial {
        depot: DepotId,
        /// Place among the ways.
        way: usize,
        /// Time at which it ends, whatever its result.
        until: Timestamp,
        samples: u32,
        /// Request with whose data it is tried.
        request: RequestId,
    }
}

impl Mind {
    /// Sets the ways that lead to a depot.
    pub(crate) fn on_ways_found(
        &mut self,
        id: DepotId,
        ways: alloc::vec::Vec<String>,
        out: &mut Outbox,
    ) {
        let (now, settings) = (self.now, &self.settings);
        self.trial.take_if(|trial| trial.depot == id);
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let Depot { fork, link, .. } = depot;
        if fork.set_names(ways, link, now, settings) {
            let way = fork.taken();
            let carries = link.rates.p50;
            out.commands
                .push(take(id, way, WayReason::Known { carries }));
        }
    }

    /// Handles data that changes its way by itself, or returns to the chosen way.
    pub(crate) fn on_way_told(&mut self, id: DepotId, way: u8, out: &mut Outbox) {
        let way = usize::from(way);
        if self.trial.is_some_and(|trial| trial.depot == id) {
            self.end_trial(out);
        }
        let (now, settings) = (self.now, &self.settings);
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let Depot { fork, link, .. } = depot;
        if way == fork.taken() || fork.branch(way).is_none() {
            return;
        }
        let other = fork.name(fork.taken());
        fork.divert(way, link, now, settings);
        let name = fork.name(way);
        let why = match fork.is_diverted() {
            true => WayReason::OtherFails { other },
            false => WayReason::OpensAgain,
        };
        let happening = Happening::WayTaken { name };
        self.tell(out, None, Some(id), happening, Reason::Way { why });
    }

    /// Tries a way for the request, if that is worth it and none is tried yet.
    pub(crate) fn try_way_for(&mut self, id: RequestId, out: &mut Outbox) {
        if self.trial.is_some_and(|trial| trial.until <= self.now) {
            self.end_trial(out);
        }
        if self.trial.is_some() {
            return;
        }
        let Some((depot, way)) = self.find_untried(id) else {
            return;
        };
        let Some(book) = self.depots.get(&depot) else {
            return;
        };
        let drains_in = book.link.rates.p50.time_for(book.link.in_flight);
        self.trial = Some(Trial {
            depot,
            way,
            until: self.now + drains_in.min(DRAIN_MAX) + TRIAL_MAX,
            samples: 0,
            request: id,
        });
        let why = WayReason::Untried {
            carries: book.link.rates.p50,
        };
        let name = book.fork.name(way);
        out.commands.push(take(depot, way, why.clone()));
        let happening = Happening::WayTried { name };
        let reason = Reason::Way { why };
        self.tell(out, Some(id), Some(depot), happening, reason);
    }

    /// Returns a way of a depot that carries data of the request and whose recent rate is unknown.
    fn find_untried(&self, id: RequestId) -> Option<(DepotId, usize)> {
        let request = self.requests.get(&id)?;
        // A limited rate shows nothing about the ways.
        if request.wishes.rate_max.is_some() {
            return None;
        }
        let is_long = request
            .finish
            .is_none_or(|finish| finish.p50 > self.now + WORTH_FROM);
        if !is_long {
            return None;
        }
        let lanes = request.lanes.iter().enumerate();
        let mut fed = lanes.filter(|(lane, fed)| fed.is_active && request.is_on_route(*lane));
        fed.find_map(|(_, lane)| Some((lane.depot, self.untried_to(lane.depot)?)))
    }

    fn untried_to(&self, id: DepotId) -> Option<usize> {
        let now = self.now;
        let depot = self.depots.get(&id).filter(|depot| {
            !depot.fork.is_one()
                && !depot.fork.is_diverted()
                && depot.is_up()
                && depot.link.flights > 0
                && !depot.is_draining()
        })?;
        let is_probed = self.probing.is_some_and(|probing| probing.depot == id);
        let is_known = depot.link.is_known_by_transfers(now, FRESH);
        if is_probed || !is_known || self.circuits.may_carry(id, now) {
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

    pub(crate) fn is_trial_of(&self, depot: DepotId) -> bool {
        self.trial.is_some_and(|trial| trial.depot == depot)
    }

    /// Handles a measurement of the depot's rate while another way is tried. Only a full one shows
    /// the rate of the way. One that was short of data, and yet clearly above the rate of the way
    /// before, is enough.
    pub(crate) fn on_trial_carried(
        &mut self,
        id: DepotId,
        rate: ByteRate,
        saturated: bool,
        out: &mut Outbox,
    ) {
        let (now, settings) = (self.now, &self.settings);
        let Some(depot) = self.depots.get_mut(&id) else {
            return;
        };
        let taken = depot.fork.taken();
        let before = depot.fork.rates(&depot.link, now, settings);
        let before = before.get(taken).copied().flatten();
        let is_proof = before.is_some_and(|before| pays(rate, before));
        let Some(trial) = self.trial.as_mut().filter(|_| saturated || is_proof) else {
            return;
        };
        let advert = depot.link.advert();
        let Some(branch) = depot.fork.branch_mut(trial.way) else {
            return;
        };
        let believed = branch.path.forecast(now, settings.forecast_tau);
        let believed = believed.unwrap_or_else(|| settings.prior.quantiles(advert));
        let rate = rate.min(advert.unwrap_or(rate));
        branch.path.observe_transfer(now, rate, false, believed);
        trial.samples += 1;
        if trial.samples >= SAMPLES {
            self.end_trial(out);
        }
    }

    /// Switches to the ways on which a circuit lies, to depots that have others too: rate is
    /// reserved there.
    pub(crate) fn take_ways_of(
        &mut self,
        circuit: CircuitId,
        depots: &[DepotId],
        out: &mut Outbox,
    ) {
        let Some(terms) = self
            .circuits
            .offered
            .get(&circuit)
            .map(|known| &known.terms)
        else {
            return;
        };
        let (ways, why) = (
            terms.ways.clone(),
            WayReason::Reserved {
                circuit: terms.name.clone(),
            },
        );
        for &id in depots {
            let (now, settings) = (self.now, &self.settings);
            let Some(depot) = self.depots.get_mut(&id) else {
                continue;
            };
            let Depot { fork, link, .. } = depot;
            let Some(way) = fork.other_of(&ways) else {
                continue;
            };
            fork.take(way, link, now, settings);
            let name = fork.name(way);
            out.commands.push(take(id, way, why.clone()));
            let happening = Happening::WayTaken { name };
            let reason = Reason::Way { why: why.clone() };
            self.tell(out, None, Some(id), happening, reason);
        }
    }

    /// Ends the trial: the better way is taken.
    pub(crate) fn end_trial(&mut self, out: &mut Outbox) {
        let Some(trial) = self.trial.take() else {
            return;
        };
        let (now, settings) = (self.now, &self.settings);
        let Some(depot) = self.depots.get_mut(&trial.depot) else {
            return;
        };
        let Depot { fork, link, .. } = depot;
        let rates = fork.rates(link, now, settings);
        let (taken, straight) = (fork.taken(), fork.straight());
        let chosen = match trial.samples {
            0 => taken,
            _ => choose(&rates, taken, straight),
        };
        let rate = |way: usize| rates.get(way).copied().flatten();
        let (carries, other) = (rate(chosen), rate(taken).unwrap_or_default());
        let why = if chosen == taken {
            if let Some(branch) = fork.branch_mut(trial.way) {
                branch.tried_at = Some(now);
                branch.fruitless = branch.fruitless.saturating_add(1);
            }
            WayReason::OtherNoBetter {
                tried: fork.name(trial.way),
                carries: rate(trial.way).filter(|_| trial.samples > 0),
            }
        } else if chosen == straight {
            WayReason::NeedsNoGateway {
                carries: carries.unwrap_or_default(),
                gateway: fork.name(taken),
                other,
            }
        } else {
            WayReason::CarriesMore {
                carries: carries.unwrap_or_default(),
                than: fork.name(taken),
                other,
            }
        };
        fork.take(chosen, link, now, settings);
        let name = fork.name(chosen);
        if chosen != trial.way {
            out.commands.push(take(trial.depot, chosen, why.clone()));
        }
        let happening = Happening::WayTaken { name };
        let request = self.requests.get(&trial.request).map(|_| trial.request);
        let reason = Reason::Way { why };
        self.tell(out, request, Some(trial.depot), happening, reason);
    }
}

fn take(depot: DepotId, way: usize, why: WayReason) -> Command {
    Command::Take {
        depot,
        way: u8::try_from(way).unwrap_or(u8::MAX),
        reason: Reason::Way { why },
    }
}
