//! Failed pushes: which depots rest, for how long, and what is given up.

use alloc::format;
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Mind, Settings,
    books::{FlightKey, Forwarded, is_of_giver},
    contract::{Command, Fault, Outbox, Reason},
    dispatch::backoff,
};

/// Consecutive failures after which a pair of depots, or a coding one, rests for long.
const HOPELESS: u32 = 8;

impl Mind {
    /// Handles a push that ended without the fragment being stored. No depot is lost by that: the
    /// culprit can't be identified, and nothing is less safe than before.
    pub(crate) fn on_push_failed(
        &mut self,
        key: FlightKey,
        flight: Forwarded,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let (to, id) = (key.depot, key.request);
        let givers = flight.givers.iter();
        // A fragment that never came is not the fault of the depot there.
        let did_not_arrive = flight.is_following && fault == Fault::SourceVanished;
        let attempts = match flight.is_blamed || did_not_arrive {
            true => 0,
            false => givers
                .map(|&from| self.back_off(from, to))
                .max()
                .unwrap_or(0),
        };
        let reason = match did_not_arrive {
            true => Reason::DidNotArrive,
            false => Reason::Retry {
                fault,
                attempt: attempts + 1,
            },
        };
        if fault == Fault::Full
            && let Some(depot) = self.depots.get_mut(&to)
        {
            depot.free = Bytes::ZERO;
        }
        if flight.is_piece {
            self.on_piece_failed(key, fault);
        }
        if let [from] = flight.givers[..] {
            if is_of_giver(fault) && !did_not_arrive {
                self.ask_giver(id, from, &reason, out);
            }
            if attempts == 1 || did_not_arrive {
                let (from, to) = (self.name_of(from), self.name_of(to));
                if did_not_arrive {
                    self.remember(id, format!("{from} to {to}: a push is given up"), reason);
                } else {
                    let what = format!("a push from {from} is tried again");
                    self.remember_of(id, to, 1, what, reason);
                }
            }
        }
        self.refresh_stripe(id, key.chunk);
    }

    /// Asks a depot for its inventory, as it no longer holds what is believed.
    pub(crate) fn ask_giver(
        &mut self,
        id: RequestId,
        from: DepotId,
        reason: &Reason,
        out: &mut Outbox,
    ) {
        self.abandon_pushes(id, from, reason, out);
        self.ask_if_used(id, from, reason.clone(), out);
    }

    pub(crate) fn back_off(&mut self, from: DepotId, to: DepotId) -> u32 {
        let (now, settings) = (self.now, &self.settings);
        self.pushes
            .fail(from, to, |failures| now + pause(settings, failures))
    }

    /// Lets a depot rest from coding after a failure. Returns the number of consecutive failures.
    pub(crate) fn rest_coder(&mut self, depot: DepotId) -> u32 {
        let (now, settings) = (self.now, &self.settings);
        self.pushes
            .rest(depot, |failures| now + pause(settings, failures))
    }

    /// Abandons what a lost depot was sending on.
    pub(crate) fn abandon_pushes_from(&mut self, from: DepotId, reason: &Reason, out: &mut Outbox) {
        for (id, to) in self.pushes.ways_from(from) {
            self.abandon_pushes(id, to, reason, out);
        }
    }

    pub(crate) fn abandon_pushes(
        &mut self,
        id: RequestId,
        to: DepotId,
        reason: &Reason,
        out: &mut Outbox,
    ) {
        if self.end_flights(to, Some(id)) > 0 {
            out.commands.push(Command::Abandon {
                request: id,
                depot: to,
                reason: reason.clone(),
            });
        }
    }
}

/// Returns the rest after so many consecutive failures.
fn pause(settings: &Settings, failures: u32) -> Duration {
    match failures > HOPELESS {
        true => settings.hold_max,
        false => backoff(settings, failures),
    }
}
