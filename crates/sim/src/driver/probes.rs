//! Probes: blocks of no meaning that flow to a depot like fragments, one after the other.

use std::time::Duration;

use posthaste_core::contract::{Input, Probe};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

use super::{CONNECT_TIMEOUT, Pending, Run};
use crate::{
    report::What,
    world::{Condition, Node, Sending},
};

/// Stands for a probe where a request is named; users' requests are counted from one.
const NOBODY: RequestId = RequestId::new(0);
/// Blocks a probe is cut into at least.
const BLOCKS_MIN: u64 = 200;
/// Largest block.
const BLOCK_BYTES_MAX: Bytes = Bytes::mebi(1);
/// A probe of which nothing is heard for this long is given up.
pub(super) const OVERDUE: Duration = Duration::from_secs(30);

/// A probe under way.
#[derive(Debug)]
pub(super) struct UnderWay {
    depot: DepotId,
    place: usize,
    probe: Probe,
    since: Timestamp,
    budget: Bytes,
    block: Bytes,
    carried: Bytes,
    /// Which one it is.
    number: u64,
}

impl Run<'_> {
    pub(super) fn start_probe(&mut self, depot: DepotId, budget: Bytes, is_asked: bool) {
        let found = self
            .checkers
            .probes
            .on_command(self.now, depot, budget, is_asked);
        self.checkers.note(self.now, found);
        let Some(place) = self.world.place(depot) else {
            return;
        };
        let site = &self.world.sites[place];
        let what = format!("{} is probed with {budget} at most", site.name);
        let latency = Duration::from_micros(site.latency_micros);
        let is_dead = site.condition() == Condition::Dead;
        self.log(None, Some(depot), What::Driver(what));
        if is_dead {
            self.tell_after(CONNECT_TIMEOUT, nothing(depot, Bytes::ZERO));
            return;
        }
        self.sequence += 1;
        let (number, epoch) = (self.sequence, self.epoch);
        self.probing = Some(UnderWay {
            depot,
            place,
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

    /// Sends the next block.
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
        let to = Node::site(under_way.place);
        self.world.send(Node::CENTRE, to, sending);
    }

    /// A block of the probe is there. Whether it was one.
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

    /// The probe is over, and the mind hears of it after `span` and half a round trip.
    pub(super) fn end_probe(&mut self, span: Duration) {
        let Some(under_way) = self.probing.take() else {
            return;
        };
        let (depot, place) = (under_way.depot, under_way.place);
        self.world.drop_sends(place, is_block);
        let finding = under_way.probe.finding();
        let input = Input::Probed {
            depot,
            sent: under_way.carried,
            bytes: finding.bytes,
            window: finding.window,
            is_bound: finding.is_bound,
        };
        let latency = Duration::from_micros(self.world.sites[place].latency_micros);
        self.tell_after(span + latency, input);
    }

    /// Nothing was heard of this probe for long.
    pub(super) fn on_overdue(&mut self, epoch: u32, number: u64) {
        let is_there = self.probing.as_ref().is_some_and(|it| it.number == number);
        if is_there && epoch == self.epoch {
            self.end_probe(Duration::ZERO);
        }
    }

    /// The driver died, and its probe with it.
    pub(super) fn forget_probe(&mut self) {
        if let Some(under_way) = self.probing.take() {
            self.world.drop_sends(under_way.place, is_block);
        }
        self.checkers.probes.on_crash();
    }

    /// Whether a probe ran to the site since the last measurement, and what else there was is not
    /// known.
    pub(super) fn is_probed(&self, place: usize) -> bool {
        let is_now = self.probing.as_ref().is_some_and(|it| it.place == place);
        is_now || self.was_probed == Some(place)
    }

    /// What the checker of probes must know of an input.
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
        if let Input::Probed { depot, sent, .. } = input {
            let found = probes.on_probed(now, *depot, *sent);
            self.checkers.note(now, found);
        }
    }

    /// A measurement ends here.
    pub(super) fn measure_probe(&mut self) {
        self.was_probed = self.probing.as_ref().map(|it| it.place);
    }
}

/// Whether it belongs to a probe.
pub(super) fn is_block(sending: &Sending) -> bool {
    sending.request == NOBODY
}

/// A probe that showed nothing.
fn nothing(depot: DepotId, sent: Bytes) -> Input {
    Input::Probed {
        depot,
        sent,
        bytes: Bytes::ZERO,
        window: Duration::ZERO,
        is_bound: true,
    }
}
