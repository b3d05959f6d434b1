//! Sends whole chunks to relays that code them and send the fragments on.
//!
//! The digests of all fragments are computed here, from the chunk that was read: a relay's fragment
//! counts only if it matches, so the relay need not be trusted.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use posthaste_core::contract::{Fault, Input};
use posthaste_endpoint::relay::{
    Coded, Scattering,
    wire::{PieceEnd, kind_of},
};
use posthaste_engine::sealed::Sealed;
use posthaste_journal::ChunkRecord;
use posthaste_types::{Bytes, DepotId, FragmentIndex};
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use crate::{
    depots::{Depots, Manner, fault_of, fault_of_kind, fault_of_ours},
    driver::Arrival,
    hands::{Hands, Leg, Metered, tell_of_source},
};

/// End of one fragment: its result, its duration, and the digests of its chunk.
type Told = (Result<(), Fault>, Duration, ChunkRecord);

/// Callers that wait for each fragment.
type Waiting = HashMap<u8, oneshot::Sender<Told>>;

impl Hands {
    /// Lets a depot code a chunk, keep a fragment and send the others on. Each fragment is reported
    /// and cancelled by itself; if the send to the coding depot ends, all end.
    pub(crate) fn scatter(&mut self, own: Leg, to: Vec<(DepotId, FragmentIndex)>, manner: Manner) {
        let mut waiting = Waiting::new();
        let pieces = to.iter().map(|&(depot, fragment)| Leg {
            depot,
            fragment,
            ..own
        });
        for leg in pieces.chain([own]) {
            let (teller, told) = oneshot::channel();
            waiting.insert(leg.fragment.get(), teller);
            let (inputs, is_piece) = (self.inputs.clone(), leg.depot != own.depot);
            let handle = self.running.spawn(async move {
                // The reporter is gone if it was cancelled, or all of it failed.
                if let Ok(told) = told.await {
                    tell(&inputs, leg, is_piece, told).await;
                }
            });
            self.keep_send(leg, handle);
        }
        let sealed = self.sealed(own.request);
        let (depots, inputs) = (Arc::clone(&self.depots), self.inputs.clone());
        let (store, outgoing) = (Arc::clone(&self.store), self.outbound.outgoing());
        let span = self.traced.of_send(own, &depots);
        let handle = self.running.spawn(async move {
            let opened = OnceLock::new();
            let sending = async {
                match sealed.await {
                    Ok(sealed) => {
                        let begun = begin(&sealed, &depots, own, &to, &manner).await;
                        let _ = opened.set(sealed);
                        begun
                    }
                    Err(error) => {
                        outgoing.complaints.note(own.request, &error);
                        Err(fault_of_ours(&error))
                    }
                }
            };
            let begun = sending.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &begun);
            drop(span);
            match begun {
                Ok((scattering, record)) => follow(scattering, &record, waiting).await,
                Err(fault) => {
                    let fault =
                        match tell_of_source(&inputs, &store, own, fault, opened.get()).await {
                            true => Fault::Busy,
                            false => fault,
                        };
                    let failed = Input::ScatterFailed {
                        request: own.request,
                        depot: own.depot,
                        chunk: own.chunk,
                        fault,
                    };
                    // The driver is gone only when the service ends, and then nobody waits for
                    // this.
                    let _ = inputs.send(Arrival::bare(failed)).await;
                }
            }
        });
        self.keep_send(own, handle);
    }
}

/// Sends the chunk. When this returns, it is stored and checked, and its fragments are being sent
/// on.
async fn begin(
    sealed: &Arc<Sealed>,
    depots: &Depots,
    own: Leg,
    to: &[(DepotId, FragmentIndex)],
    manner: &Manner,
) -> Result<(Scattering, ChunkRecord), Fault> {
    let depot = depots.get(own.depot).ok_or(Fault::Unreachable)?;
    if !depot.scatters.load(Ordering::Relaxed) {
        return Err(Fault::Other);
    }
    let read = sealed.fragment(own.chunk, FragmentIndex::WHOLE).await;
    let (whole, _stripe) = read.map_err(|error| fault_of(&error))?;
    let digest = |fragment: FragmentIndex| {
        let digest = whole.digests.get(usize::from(fragment.get()) + 1);
        digest.copied().ok_or(Fault::Other)
    };
    let taker = |&(depot, fragment): &(DepotId, FragmentIndex)| {
        let client = depots.get(depot).ok_or(Fault::Other)?.client.clone();
        Ok((client, fragment, digest(fragment)?))
    };
    let takers = to.iter().map(taker).collect::<Result<Vec<_>, Fault>>()?;
    let size = Bytes::new(whole.bytes.len() as u64);
    tracing::Span::current().record("bytes", size.get());
    let coded = Coded {
        chunk: own.chunk,
        bytes: whole.bytes,
        digest: whole.digest,
        code: sealed.seal().code,
        keep: (own.fragment, digest(own.fragment)?),
    };
    let (client, seal) = (depot.sender(manner), sealed.seal());
    let metered = Metered::start(&depot, manner.gives_way());
    let begun = client.scatter(&seal.dataset, &coded, &takers, seal.expires);
    let begun = begun.await;
    metered.end(if begun.is_ok() { size } else { Bytes::ZERO });
    let begun = begun.map_err(|error| not_of_source(fault_of(&error)))?;
    let record = own.record(whole.digests);
    Ok((begun, record))
}

/// Passes on the relay's report of each fragment; the state of an unreported fragment is unknown.
async fn follow(mut scattering: Scattering, record: &ChunkRecord, mut waiting: Waiting) {
    while !waiting.is_empty()
        && let Ok(Some(end)) = scattering.next().await
    {
        if let Some(teller) = waiting.remove(&end.fragment) {
            let span = Duration::from_micros(end.micros);
            let _ = teller.send((ended(&end), span, record.clone()));
        }
    }
    for (_, teller) in waiting {
        let lost = (Err(Fault::Unreachable), Duration::ZERO, record.clone());
        let _ = teller.send(lost);
    }
}

fn ended(end: &PieceEnd) -> Result<(), Fault> {
    match end.is_stored() {
        true => Ok(()),
        false => Err(not_of_source(fault_of_kind(kind_of(end.status)))),
    }
}

/// Converts a relay's fault to one that does not blame the source, which was read.
fn not_of_source(fault: Fault) -> Fault {
    if fault.is_of_source() {
        Fault::Other
    } else {
        fault
    }
}

async fn tell(inputs: &mpsc::Sender<Arrival>, leg: Leg, is_piece: bool, told: Told) {
    let (ended, span, record) = told;
    if is_piece && ended.is_ok() {
        let told = Input::PieceTold {
            request: leg.request,
            depot: leg.depot,
            chunk: leg.chunk,
            span,
        };
        let _ = inputs.send(Arrival::bare(told)).await;
    }
    let arrival = Arrival {
        chunk: ended.is_ok().then_some(record),
        ..Arrival::bare(leg.ended(ended))
    };
    // The driver is gone only when the service ends, and then nobody waits for this.
    let _ = inputs.send(arrival).await;
}
