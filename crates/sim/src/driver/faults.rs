use std::time::Duration;

use posthaste_core::contract::{Drain, Fault, Input};
use posthaste_types::{Bytes, DepotId};

use super::{Blow, Pending, Run};
use crate::{
    checkers::End,
    report::What,
    rivals::Decider,
    scenario::FaultKind,
    world::{Condition, Strike},
};

/// Longest time until a broken connection is noticed.
pub(super) const BREAK_NOTICED_MAX: Duration = Duration::from_millis(BREAK_NOTICED_MS_MAX);
/// Longest time until a broken connection is noticed, in milliseconds.
pub(super) const BREAK_NOTICED_MS_MAX: u64 = 1500;

impl Run<'_> {
    /// Applies a fault that occurs by itself, possibly at several places at once.
    pub(super) fn on_strike(&mut self, strike: &Strike) {
        for &place in &strike.places {
            let blow = Blow {
                kind: strike.kind,
                rate: None,
                takes: None,
                lasts: Some(strike.lasts),
                is_routine: true,
            };
            self.strike(place, blow);
        }
    }

    /// Applies a fault in the world.
    pub(super) fn strike(&mut self, place: usize, blow: Blow) {
        self.last_change = self.now + blow.lasts.unwrap_or_default();
        if blow.kind == FaultKind::DriverCrash {
            self.strike_driver(place, blow);
        } else if place < self.world.sites.len() {
            // A shrunk scenario may have lost its depots.
            self.strike_site(place, blow);
        }
    }

    fn strike_site(&mut self, place: usize, blow: Blow) {
        let Blow { kind, lasts, .. } = blow;
        let site = &mut self.world.sites[place];
        let name = site.name.clone();
        site.ordeal += u32::from(is_outage(kind));
        site.is_told_gone &= !is_outage(kind);
        let ordeal = site.ordeal;
        let what = match kind {
            FaultKind::Dies | FaultKind::Wiped => {
                self.break_off(place);
                format!("{name} dies")
            }
            FaultKind::Offline => {
                self.break_off(place);
                format!("{name} goes offline")
            }
            FaultKind::Vanishes => {
                self.world.set_condition(place, Condition::Vanished);
                format!("{name} vanishes")
            }
            FaultKind::Hangs => {
                self.world.set_condition(place, Condition::Hung);
                format!("{name} hangs")
            }
            FaultKind::Slows => {
                let rate = blow.rate.unwrap_or(0);
                self.world.cut(place, Some(rate));
                let rate = posthaste_types::ByteRate::new(rate);
                format!("the link to {name} carries {rate}")
            }
            FaultKind::Full => {
                site.says_full = true;
                format!("{name} is full")
            }
            FaultKind::Neighbour => {
                let got = site.let_others(self.now, Bytes::new(blow.takes.unwrap_or(0)));
                format!("somebody else takes {got} of {name}")
            }
            FaultKind::Drains | FaultKind::Empties => {
                let drain = if kind == FaultKind::Drains {
                    Drain::Keep
                } else {
                    Drain::Move
                };
                let input = drained(site.id, drain);
                self.tell_after(Duration::from_millis(1), input);
                format!("somebody drains {name}")
            }
            // Handled above, because it belongs to no depot.
            FaultKind::DriverCrash => return,
            FaultKind::SourceChanges => {
                self.source_changed = true;
                String::from("a source file changes")
            }
            FaultKind::FileChanges => {
                self.omissions.has_changed = true;
                String::from("one file of each source changes")
            }
        };
        self.log_world(kind, place, what);
        if let Some(lasts) = lasts {
            self.after(
                lasts,
                Pending::Heal {
                    kind,
                    place,
                    ordeal,
                    is_routine: blow.is_routine,
                },
            );
        }
    }

    /// Kills the service. The rest of the world is unaffected, so no depot need exist.
    fn strike_driver(&mut self, place: usize, blow: Blow) {
        let kind = FaultKind::DriverCrash;
        self.crash();
        self.log(
            None,
            None,
            What::World(String::from("the service is killed")),
        );
        if let Some(lasts) = blow.lasts {
            let is_routine = blow.is_routine;
            self.after(
                lasts,
                Pending::Heal {
                    kind,
                    place,
                    ordeal: 0,
                    is_routine,
                },
            );
        }
    }

    /// Ends a fault.
    pub(super) fn heal(
        &mut self,
        kind: FaultKind,
        place: usize,
        ordeal: u32,
        inputs: &mut Vec<Input>,
    ) {
        if kind == FaultKind::DriverCrash {
            self.restart(inputs);
            self.last_change = self.now;
            let what = What::World(String::from("the service starts again"));
            self.log(None, None, what);
            return;
        }
        if is_outage(kind) && self.is_out_still(kind, place, ordeal) {
            return;
        }
        let site = &mut self.world.sites[place];
        let name = site.name.clone();
        let what = match kind {
            FaultKind::Dies | FaultKind::Wiped | FaultKind::Offline => {
                // Its connections broke, so no running driver overlooks that.
                if !site.is_told_gone && self.mind.is_some() {
                    site.is_told_gone = true;
                    inputs.push(Input::DepotDown {
                        depot: site.id,
                        fault: Fault::Unreachable,
                    });
                }
                let with = if kind == FaultKind::Wiped {
                    site.wipe();
                    if let Some(seen) = &mut self.seen {
                        seen.on_wiped(place);
                    }
                    "empty"
                } else {
                    "with its data"
                };
                self.world.set_condition(place, Condition::Well);
                format!("{name} is back {with}")
            }
            FaultKind::Vanishes | FaultKind::Hangs => {
                self.world.set_condition(place, Condition::Well);
                format!("{name} is well again")
            }
            FaultKind::Slows => {
                self.world.cut(place, None);
                format!("the link to {name} is as before")
            }
            FaultKind::Full => {
                site.says_full = false;
                format!("{name} has space again")
            }
            FaultKind::Neighbour => {
                site.neighbour = Bytes::ZERO;
                format!("nobody else has anything at {name}")
            }
            FaultKind::Drains | FaultKind::Empties => {
                // A driver that is down receives no report.
                if self.mind.is_some() {
                    let depot = site.id;
                    self.checkers.drains.on_told(depot, Drain::Off);
                    inputs.push(drained(depot, Drain::Off));
                }
                format!("{name} is used again")
            }
            // Handled above.
            FaultKind::DriverCrash => return,
            FaultKind::SourceChanges | FaultKind::FileChanges => {
                String::from("the source stays changed")
            }
        };
        self.last_change = self.now;
        self.log_world(kind, place, what);
    }

    /// Returns whether another fault hit the depot meanwhile, or nobody lends it yet. A fault
    /// outside its hours ends when they begin.
    fn is_out_still(&mut self, kind: FaultKind, place: usize, ordeal: u32) -> bool {
        let site = &self.world.sites[place];
        if site.ordeal != ordeal || site.hours.is_open(self.now) {
            return site.ordeal != ordeal;
        }
        if let Some(next) = site.hours.next_change(self.now) {
            let pending = Pending::Heal {
                kind,
                place,
                ordeal,
                is_routine: true,
            };
            self.after(next.since(self.now), pending);
        }
        true
    }

    fn log_world(&mut self, kind: FaultKind, place: usize, what: String) {
        let depot = is_of_depot(kind).then(|| self.world.sites[place].id);
        self.log(None, depot, What::World(what));
    }

    /// Breaks every connection to the depot. The driver notices that soon.
    fn break_off(&mut self, place: usize) {
        self.world.set_condition(place, Condition::Dead);
        let depot = self.world.sites[place].id;
        let span = Duration::from_millis(self.dice.between(1, BREAK_NOTICED_MS_MAX));
        self.lose_gathers(depot, span);
        let lost = self.world.drop_all(place);
        self.lose(lost);
        self.break_off_near(depot);
        // A fragment stored a moment before may still be answered; then it is believed until the
        // depot is known to be gone.
        let span = Duration::from_millis(self.dice.between(1, BREAK_NOTICED_MS_MAX));
        let input = Input::DepotDown {
            depot: self.world.sites[place].id,
            fault: Fault::Unreachable,
        };
        self.tell_after(span, input);
    }

    /// Kills the driver. Its sends and pending answers are lost.
    fn crash(&mut self) {
        if self.mind.is_none() {
            return;
        }
        self.forget_probe();
        self.crash_follows();
        for place in 0..self.world.sites.len() {
            let depot = self.world.sites[place].id;
            for sending in self.world.drop_sends(place, |_| true) {
                if self.checkers.arrivals.is_known(sending.request) {
                    continue;
                }
                let send = (depot, sending.request, sending.chunk, sending.fragment);
                self.end_send(send, End::Dropped);
            }
        }
        self.forget_answers(|_| true);
        self.crash_inbound();
        self.crash_scatters();
        self.orphan_forwards();
        self.checkers.capacity.forget_all();
        self.checkers.ways.on_crash();
        self.epoch += 1;
        self.blind_since = Some(self.now);
        let mind = self.mind.take();
        self.journal.lose(mind.and_then(Decider::into_mind));
    }

    /// Restarts the driver from its journal. Snapshot and replay must give the mind that was lost.
    fn restart(&mut self, inputs: &mut Vec<Input>) {
        let Some(blind_since) = self.blind_since.take() else {
            return;
        };
        self.checkers.deadlines.on_blind(blind_since, self.now);
        self.checkers.dues.on_blind(blind_since, self.now);
        let (mind, found) = self.journal.recover();
        self.checkers.note(self.now, found);
        self.mind = mind.map(Decider::mind);
        inputs.extend(self.found_ways());
        inputs.push(Input::DriverStarted);
        for load in self.loads_now() {
            self.on_asked(&load);
            inputs.push(load);
        }
        self.start_routine();
        for place in 0..self.world.sites.len() {
            let (span, input) = self.probe_one(place);
            self.tell_after(span, input);
        }
    }
}

/// Returns an operator's input about a depot.
fn drained(depot: DepotId, drain: Drain) -> Input {
    Input::DepotDrained {
        depot,
        drain,
        is_own: false,
    }
}

/// Returns whether the fault belongs to a depot or its link.
fn is_of_depot(kind: FaultKind) -> bool {
    is_outage(kind)
        || matches!(
            kind,
            FaultKind::Slows
                | FaultKind::Full
                | FaultKind::Neighbour
                | FaultKind::Drains
                | FaultKind::Empties
        )
}

/// Returns whether the depot itself is down during the fault.
fn is_outage(kind: FaultKind) -> bool {
    match kind {
        FaultKind::Dies
        | FaultKind::Wiped
        | FaultKind::Vanishes
        | FaultKind::Hangs
        | FaultKind::Offline => true,
        FaultKind::Slows
        | FaultKind::Full
        | FaultKind::Neighbour
        | FaultKind::DriverCrash
        | FaultKind::SourceChanges
        | FaultKind::FileChanges
        | FaultKind::Drains
        | FaultKind::Empties => false,
    }
}
