//! Probes: meaningless blocks that flow to a depot like fragments, one after the other, from the
//! centre or another depot.

use std::time::Duration;

use posthaste_core::contract::{Input, Probe};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{CONNECT_TIMEOUT, Pending, Run};
use crate::{
    report::What,
    world::{Condition, Node, Sending},
};

/// Request id of a probe. Ids of users' requests start at one.
const NOBODY: RequestId = RequestId::new(0);
/// Smallest number of blocks of a probe.
const BLOCKS_MIN: u64 = 200;
/// Largest block.
const BLOCK_BYTES_MAX: Bytes = Bytes::mebi(1);
/// Time without news after which a probe is given up.
pub(super) const OVERDUE: Duration = Duration::from_secs(30);

/// Running probe.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// Depot that sends, with its place; none if the centre sends.
    from: Option<(DepotId, usize)>,
    depot: DepotId,
    place: usize,
    round_trip: Duration,
    probe: Probe,
    since: Timestamp,
    budget: Bytes,
    block: Bytes,
    carried: Bytes,
    number: u64,
}

impl UnderWay {
    fn begins(&self) -> Node {
        self.from
            .map_or(Node::CENTRE, |(_, place)| Node::site(place))
    }
}

impl Run<'_> {
    pub(super) fn start_probe(
        &mut self,
        from: Option<DepotId>,
        depot: DepotId,
        budget: Bytes,
        is_asked: bool,
    ) {
        let path = (from, depot);
        let found = self
            .checkers
            .probes
            .on_command(self.now, path, budget, is_asked);
        self.checkers.note(self.now, found);
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let giver = from.map(|from| (from, self.world.place(from)));
        let site = &self.world.sites[place];
        let by = match giver {
            Some((_, Some(giver))) => format!(" by {}", self.world.sites[giver].name),
            _ => String::new(),
        };
        let what = format!("{} is probed{by} with {budget} at most", site.name);
        let mut latency = Duration::from_micros(site.latency_micros);
        let mut is_dead = site.condition() == Condition::Dead;
        if let Some((_, place)) = giver {
            let giver = place.map(|place| &self.world.sites[place]);
            is_dead |= giver.is_none_or(|giver| giver.condition() == Condition::Dead);
            latency += Duration::from_micros(giver.map_or(0, |giver| giver.latency_micros));
        }
        self.log(None, Some(depot), What::Driver(what));
        if is_dead {
            self.tell_after(CONNECT_TIMEOUT, nothing(path));
            return;
        }
        self.sequence += 1;
        let (number, epoch) = (self.sequence, self.epoch);
        self.probing = Some(UnderWay {
            from: giver.and_then(|(from, place)| Some((from, place?))),
            depot,
            place,
            round_trip: latency * 2,
            probe: Probe::new(latency * 2, budget),
            since: self.now,
            budget,
            block: Bytes::new(budget.get() / BLOCKS_MIN)
                .clamp(Bytes::new(1 << 16), BLOCK_BYTES_MAX)
                .min(budget),
            carried: Bytes::ZERO,
            number,
        });
        self.after(OVERDUE, Pending::Overdue { epoch, number });
        self.send_block();
    }

    fn send_block(&mut self) {
        let Some(under_way) = &mut self.probing else {
            return;
        };
        let sending = Sending {
            request: NOBODY,
            chunk: ChunkIndex::default(),
            fragment: FragmentIndex::WHOLE,
            bytes: under_way.block.min(under_way.budget - under_way.carried),
        };
        let (from, to) = (under_way.begins(), Node::site(under_way.place));
        self.world.send(from, to, sending);
    }

    /// Handles an arrived block. Returns whether it belonged to the probe.
    pub(super) fn on_block(&mut self, sending: &Sending) -> bool {
        if sending.request != NOBODY {
            return false;
        }
        if let Some(under_way) = &mut self.probing {
            let after = self.now.since(under_way.since);
            under_way.carried += sending.bytes;
            under_way.probe.mark(after, under_way.carried);
            if under_way.probe.goes_on(after, under_way.carried) {
                self.send_block();
            } else {
                self.end_probe(Duration::ZERO);
            }
        }
        true
    }

    /// Ends the probe. The mind receives the result after `span` and half a round trip.
    pub(super) fn end_probe(&mut self, span: Duration) {
        let Some(under_way) = self.probing.take() else {
            return;
        };
        let (depot, place) = (under_way.depot, under_way.place);
        self.drop_blocks(&under_way);
        let finding = under_way.probe.finding();
        let input = match under_way.from {
            None => Input::Probed {
                depot,
                sent: under_way.carried,
                bytes: finding.bytes,
                window: finding.window,
                is_bound: finding.is_bound,
            },
            Some((from, _)) => Input::CrossingProbed {
                from,
                to: depot,
                sent: under_way.carried,
                bytes: finding.bytes,
                window: finding.window,
                is_bound: finding.is_bound,
                round_trip: Some(under_way.round_trip),
            },
        };
        let latency = Duration::from_micros(self.world.sites[place].latency_micros);
        self.tell_after(span + latency, input);
    }

    /// Gives up a probe without news.
    pub(super) fn on_overdue(&mut self, epoch: u32, number: u64) {
        let is_there = self.probing.as_ref().is_some_and(|it| it.number == number);
        if is_there && epoch == self.epoch {
            self.end_probe(Duration::ZERO);
        }
    }

    /// Forgets the probe, because the driver died.
    pub(super) fn forget_probe(&mut self) {
        if let Some(under_way) = self.probing.take() {
            self.drop_blocks(&under_way);
        }
        self.checkers.probes.on_crash();
    }

    fn drop_blocks(&mut self, under_way: &UnderWay) {
        match under_way.from {
            None => drop(self.world.drop_sends(under_way.place, is_block)),
            Some((_, from)) => drop(self.world.drop_between(from, under_way.place, is_block)),
        }
    }

    /// Returns whether a probe from the centre to the site ran since the last measurement, so other
    /// traffic on that path is unknown.
    pub(super) fn is_probed(&self, place: usize) -> bool {
        let is_now = self
            .probing
            .as_ref()
            .is_some_and(|it| it.from.is_none() && it.place == place);
        is_now || self.was_probed == Some(place)
    }

    /// Informs the checker of probes about an input.
    pub(super) fn heed_measures(&mut self, input: &Input) {
        let (now, probes) = (self.now, &mut self.checkers.probes);
        if let Input::Throughput {
            depot,
            saturated: true,
            ..
        } = input
        {
            probes.on_measured(now, *depot);
        }
        let ended = if let Input::Probed { depot, sent, .. } = input {
            Some(((None, *depot), *sent))
        } else if let Input::CrossingProbed { from, to, sent, .. } = input {
            Some(((Some(*from), *to), *sent))
        } else {
            None
        };
        if let Some((path, sent)) = ended {
            let found = probes.on_probed(now, path, sent);
            self.checkers.note(now, found);
        }
    }

    /// Ends a measurement interval of the probe.
    pub(super) fn measure_probe(&mut self) {
        let from_centre = self.probing.as_ref().filter(|it| it.from.is_none());
        self.was_probed = from_centre.map(|it| it.place);
    }
}

/// Returns whether the transfer is a block of a probe.
pub(super) fn is_block(sending: &Sending) -> bool {
    sending.request == NOBODY
}

/// Returns the input for a probe that did not begin.
fn nothing(path: (Option<DepotId>, DepotId)) -> Input {
    let (sent, bytes, window, is_bound) = (Bytes::ZERO, Bytes::ZERO, Duration::ZERO, true);
    match path {
        (None, depot) => Input::Probed {
            depot,
            sent,
            bytes,
            window,
            is_bound,
        },
        (Some(from), to) => Input::CrossingProbed {
            from,
            to,
            sent,
            bytes,
            window,
            is_bound,
            round_trip: None,
        },
    }
}
