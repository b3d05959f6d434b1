//! Sends, as inputs answer them, and transfers stored among relays.

use posthaste_core::contract::{Fault, Input, RequestSpec};
use posthaste_types::{Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId};

use super::{Run, follows::SOON};
use crate::world::Sending;

/// Fragment on its way to a depot.
pub(super) type Send = (DepotId, RequestId, ChunkIndex, FragmentIndex);

impl Run<'_> {
    /// Takes a send back if it still waits for a connection.
    pub(super) fn recall(&mut self, (depot, request, chunk, fragment): Send) {
        let is_it = |sending: &Sending| {
            (sending.request, sending.chunk, sending.fragment) == (request, chunk, fragment)
        };
        let Some(place) = self.world.place(depot) else {
            return;
        };
        if self.world.recall(place, is_it) {
            self.left -= self.bytes_of(request, chunk, fragment);
            let input = Input::Recalled {
                request,
                depot,
                chunk,
                fragment,
            };
            self.tell_after(SOON, input);
        }
    }

    /// Stores a fragment that the centre did not send. Returns the fault that the driver learns, if
    /// any, because an answer may be lost; none if there is no such depot.
    pub(super) fn store_among_relays(&mut self, send: Send) -> Option<Option<Fault>> {
        let (depot, request, chunk, fragment) = send;
        let bytes = self.bytes_of(request, chunk, fragment);
        let chunks = self.world.specs.get(&request);
        let chunks = chunks.map_or(0, posthaste_core::contract::RequestSpec::chunks);
        let is_unheard = self.dice.chance(self.scenario.answer_lost_permille);
        let sending = Sending {
            request,
            chunk,
            fragment,
            bytes,
        };
        let site = self.world.site(depot)?;
        let is_stored = site.store(&sending, chunks);
        let (used, capacity) = (site.used, site.capacity);
        let found = self.checkers.capacity.on_stored(depot, used, capacity);
        self.checkers.note(self.now, found);
        if is_stored && is_unheard {
            *self.surplus.entry((depot, request)).or_default() += 1;
        }
        Some(match (is_stored, is_unheard) {
            (false, _) => Some(Fault::Full),
            (true, true) => Some(Fault::Unreachable),
            (true, false) => None,
        })
    }

    /// Returns the size of a fragment.
    pub(super) fn bytes_of(
        &self,
        request: RequestId,
        chunk: ChunkIndex,
        fragment: FragmentIndex,
    ) -> Bytes {
        self.world
            .specs
            .get(&request)
            .map_or(Bytes::ZERO, |spec: &RequestSpec| {
                let size = spec.chunk_bytes(chunk.get());
                if fragment == FragmentIndex::WHOLE {
                    size
                } else {
                    spec.code.fragment_size(size)
                }
            })
    }
}

/// Returns the driver's input about a send.
pub(super) fn answer((depot, request, chunk, fragment): Send, fault: Option<Fault>) -> Input {
    match fault {
        None => Input::FragmentStored {
            request,
            depot,
            chunk,
            fragment,
        },
        Some(fault) => Input::FragmentFailed {
            request,
            depot,
            chunk,
            fragment,
            fault,
        },
    }
}

/// Returns the send an input answers, and whether it was stored.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "nothing else answers a send"
)]
pub(super) fn answered(input: &Input) -> Option<(Send, bool)> {
    match input {
        Input::FragmentStored {
            request,
            depot,
            chunk,
            fragment,
        } => Some(((*depot, *request, *chunk, *fragment), true)),
        Input::FragmentFailed {
            request,
            depot,
            chunk,
            fragment,
            ..
        }
        | Input::Recalled {
            request,
            depot,
            chunk,
            fragment,
        } => Some(((*depot, *request, *chunk, *fragment), false)),
        _ => None,
    }
}
