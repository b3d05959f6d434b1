//! What a push that failed comes to: who is left alone, and for how long, and what is given up.

use alloc::format;
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, RequestId};

use crate::{
    Mind, Settings,
    books::{FlightKey, Forwarded, is_of_giver},
    contract::{Command, Fault, Outbox, Reason},
    dispatch::backoff,
};

/// Failures in a row after which a pair of depots, or one that codes, is left alone for long.
const HOPELESS: u32 = 8;

impl Mind {
    /// A push ended without the fragment being stored. No depot is lost by that: who is at fault can't
    /// be told, and nothing is less safe than before.
    pub(crate) fn on_push_failed(
        &mut self,
        key: FlightKey,
        flight: Forwarded,
        fault: Fault,
        out: &mut Outbox,
    ) {
        let (to, id) = (key.depot, key.request);
        let givers = flight.givers.iter();
        // What never came is nobody's fault there.
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

    /// A depot no longer holds what is believed: what it does hold, it says itself.
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

    /// A depot did not code a chunk: it is not asked to for a while. Returns how often that was in a row.
    pub(crate) fn rest_coder(&mut self, depot: DepotId) -> u32 {
        let (now, settings) = (self.now, &self.settings);
        self.pushes
            .rest(depot, |failures| now + pause(settings, failures))
    }

    /// A depot is gone: what it was sending on will not arrive.
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

/// How long whoever failed so often in a row is left alone.
fn pause(settings: &Settings, failures: u32) -> Duration {
    match failures > HOPELESS {
        true => settings.hold_max,
        false => backoff(settings, failures),
    }
}
