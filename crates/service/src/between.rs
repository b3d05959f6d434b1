//! Lets relays send their fragments to each other; no bytes pass through here.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use posthaste_core::contract::{Command, Fault, GiverEnd, Input};
use posthaste_endpoint::relay::{
    Rebuilt,
    wire::{SenderEnd, kind_of},
};
use posthaste_journal::Scan;
use posthaste_types::{Bytes, DepotId, FragmentIndex, encrypted_sizes};
use tokio::sync::watch;
use tracing::Instrument;

use crate::{
    depots::{Depot, Depots, Manner, fault_of_forward, fault_of_kind},
    driver::Arrival,
    follow::{self, Lead},
    hands::{Hands, Leg},
    store::Store,
};

/// Fragment requested from a depot.
type Asked = (DepotId, FragmentIndex);

impl Hands {
    /// Carries out commands between relays.
    pub(crate) fn relay(&mut self, command: Command, manner: Manner) {
        match command {
            Command::Forward {
                request,
                from,
                to: depot,
                chunk,
                fragment,
                reason: _,
            } => self.forward(from, Leg::new(request, depot, chunk, fragment)),
            Command::Follow {
                request,
                from,
                to: depot,
                chunk,
                fragment,
                reason: _,
            } => self.follow(from, Leg::new(request, depot, chunk, fragment)),
            Command::Gather {
                request,
                to: depot,
                chunk,
                from,
                reason: _,
            } => {
                let leg = Leg::new(request, depot, chunk, FragmentIndex::WHOLE);
                self.gather(from, leg);
            }
            Command::Mend {
                request,
                to: depot,
                chunk,
                fragment,
                from,
                reason: _,
            } => self.gather(from, Leg::new(request, depot, chunk, fragment)),
            Command::Scatter {
                request,
                depot,
                chunk,
                fragment,
                to,
                reason: _,
            } => {
                let leg = Leg::new(request, depot, chunk, fragment);
                self.scatter(leg, to, manner);
            }
            Command::Send { .. }
            | Command::Abandon { .. }
            | Command::Recall { .. }
            | Command::Inventory { .. }
            | Command::Release { .. }
            | Command::LeaveOut { .. }
            | Command::Renew { .. }
            | Command::Forget { .. }
            | Command::Fetch { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }
            | Command::Probe { .. }
            | Command::ProbeCrossing { .. }
            | Command::Reserve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }
            | Command::ReserveSpace { .. }
            | Command::ReleaseSpace { .. }
            | Command::Take { .. }
            | Command::Solve { .. } => {}
        }
    }

    /// Lets one depot push a fragment to another; no bytes pass through here.
    fn forward(&mut self, from: DepotId, leg: Leg) {
        let (depots, store, inputs) = (
            Arc::clone(&self.depots),
            Arc::clone(&self.store),
            self.inputs.clone(),
        );
        let span = self.traced.of_push(from, leg, &depots);
        let handle = self.running.spawn(async move {
            let sending = forward_fragment(&store, &depots, from, leg);
            let ended = sending.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &ended);
            drop(span);
            let _ = inputs.send(Arrival::bare(leg.ended(ended))).await;
        });
        self.keep_send(leg, handle);
    }

    /// Forwards a fragment that is still on its way there from here.
    fn follow(&mut self, from: DepotId, leg: Leg) {
        let (depots, store, inputs) = (
            Arc::clone(&self.depots),
            Arc::clone(&self.store),
            self.inputs.clone(),
        );
        let lead = self.leads.of(Leg { depot: from, ..leg });
        let span = self.traced.of_push(from, leg, &depots);
        let handle = self.running.spawn(async move {
            let sending = async {
                match lead {
                    Some(lead) => follow_fragment(&store, &depots, from, leg, lead).await,
                    // The send that it was to follow has already ended.
                    None => forward_fragment(&store, &depots, from, leg).await,
                }
            };
            let ended = sending.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &ended);
            drop(span);
            let _ = inputs.send(Arrival::bare(leg.ended(ended))).await;
        });
        self.keep_send(leg, handle);
    }

    /// Lets a destination gather a chunk from depots that hold fragments of it, or lets a depot
    /// rebuild one of them.
    fn gather(&mut self, from: Vec<Asked>, leg: Leg) {
        let (depots, store, inputs) = (
            Arc::clone(&self.depots),
            Arc::clone(&self.store),
            self.inputs.clone(),
        );
        let span = self.traced.of_gather(leg, &depots);
        let handle = self.running.spawn(async move {
            let Leg {
                request,
                depot,
                chunk,
                ..
            } = leg;
            let gathering = gather_chunk(&store, &depots, &from, leg);
            let (givers, ended) = gathering.instrument(span.clone()).await;
            posthaste_trace::ended(&span, &ended);
            drop(span);
            if !givers.is_empty() {
                let told = Input::GatherTold {
                    request,
                    depot,
                    chunk,
                    givers,
                };
                let _ = inputs.send(Arrival::bare(told)).await;
            }
            let _ = inputs.send(Arrival::bare(leg.ended(ended))).await;
        });
        self.keep_send(leg, handle);
    }
}

/// Lets a relay push a fragment. A relay of an older release can't: then nothing moves, and the
/// mind retries ever more rarely. Copying it through the service would take the centre's uplink
/// from data that is not safe yet.
async fn forward_fragment(
    store: &Store,
    depots: &Depots,
    from: DepotId,
    leg: Leg,
) -> Result<(), Fault> {
    let giver = depots.get(from).ok_or(Fault::Unreachable)?;
    let taker = depots.get(leg.depot).ok_or(Fault::Unreachable)?;
    if giver.lets_through.load(Ordering::Relaxed) {
        return take_fragment(store, &giver, &taker, leg).await;
    }
    if !giver.forwards.load(Ordering::Relaxed) {
        return Err(Fault::Other);
    }
    let dataset = store.dataset(leg.request).map_err(|_| Fault::Other)?;
    let expires = store.expires(leg.request).map_err(|_| Fault::Other)?;
    let sent =
        giver
            .client
            .forward_fragment(&dataset, leg.chunk, leg.fragment, &taker.client, expires);
    sent.await.map_err(|error| fault_of_forward(&error))
}

/// Lets the other depot copy a fragment from a store, which can't send, with a presigned URL from
/// the store's relay. Nobody copies from store to store.
async fn take_fragment(store: &Store, giver: &Depot, taker: &Depot, leg: Leg) -> Result<(), Fault> {
    if !taker.takes.load(Ordering::Relaxed) {
        return Err(Fault::Other);
    }
    let whole = Leg {
        fragment: FragmentIndex::WHOLE,
        ..leg
    };
    let (chunk, digests) = rebuilt(store, whole).ok_or(Fault::Other)?;
    let (size, digest) = match leg.fragment {
        FragmentIndex::WHOLE => (chunk.size, chunk.digest),
        fragment => {
            let digest = digests.get(usize::from(fragment.get()) + 1);
            let size = chunk.code.fragment_size(Bytes::new(chunk.size));
            (size.get(), *digest.ok_or(Fault::Other)?)
        }
    };
    let (Ok(dataset), Ok(expires)) = (store.dataset(leg.request), store.expires(leg.request))
    else {
        return Err(Fault::Other);
    };
    let piece = (leg.chunk, leg.fragment);
    let taken = taker
        .client
        .take(&dataset, piece, (size, digest), &giver.client, expires);
    let end = taken.await.map_err(|error| fault_of_kind(error.kind()))?;
    if end.is_stored() {
        return Ok(());
    }
    let of_giver = end.senders.first().and_then(fault_of_sender);
    Err(of_giver.unwrap_or_else(|| fault_of_kind(kind_of(end.status))))
}

/// Lets a relay push a fragment that is on its way to it. The push ends after the send that it
/// follows, and fails with it.
async fn follow_fragment(
    store: &Store,
    depots: &Depots,
    from: DepotId,
    leg: Leg,
    mut lead: watch::Receiver<Lead>,
) -> Result<(), Fault> {
    let giver = depots.get(from).ok_or(Fault::Unreachable)?;
    let taker = depots.get(leg.depot).ok_or(Fault::Unreachable)?;
    let mut stored = lead.clone();
    let mut stored = pin!(follow::stored(&mut stored));
    // A store receives only fragments known to be complete.
    if !giver.follows.load(Ordering::Relaxed) || taker.lets_through.load(Ordering::Relaxed) {
        stored.await?;
        return forward_fragment(store, depots, from, leg).await;
    }
    let dataset = store.dataset(leg.request).map_err(|_| Fault::Other)?;
    let expires = store.expires(leg.request).map_err(|_| Fault::Other)?;
    let followed = async {
        let digest = follow::begun(&mut lead).await?;
        let Some(digest) = digest else {
            return forward_fragment(store, depots, from, leg).await;
        };
        let piece = (leg.chunk, leg.fragment);
        let sent = giver
            .client
            .follow_fragment(&dataset, piece, digest, &taker.client, expires);
        sent.await.map_err(|error| fault_of_forward(&error))
    };
    let mut followed = pin!(followed);
    tokio::select! {
        ended = &mut followed => {
            stored.await?;
            ended
        }
        led = &mut stored => {
            led?;
            followed.await
        }
    }
}

/// Gathers a chunk for a relay that can't. Returns how each depot that was asked did, and the
/// result.
async fn gather_chunk(
    store: &Store,
    depots: &Depots,
    from: &[Asked],
    leg: Leg,
) -> (Vec<GiverEnd>, Result<(), Fault>) {
    let Some(taker) = depots.get(leg.depot) else {
        return (Vec::new(), Err(Fault::Unreachable));
    };
    let can = match leg.fragment {
        FragmentIndex::WHOLE => &taker.gathers,
        _ => &taker.mends,
    };
    if !can.load(Ordering::Relaxed) {
        return (Vec::new(), Err(Fault::Other));
    }
    let Some((rebuilt, digests)) = rebuilt(store, leg) else {
        return (Vec::new(), Err(Fault::Other));
    };
    let senders = from.iter().filter_map(|(depot, fragment)| {
        let digest = digests.get(usize::from(fragment.get()) + 1)?;
        Some((depots.get(*depot)?.client.clone(), *fragment, *digest))
    });
    let senders: Vec<_> = senders.collect();
    let (Ok(dataset), Ok(expires)) = (store.dataset(leg.request), store.expires(leg.request))
    else {
        return (Vec::new(), Err(Fault::Other));
    };
    let end = match taker
        .client
        .gather(&dataset, rebuilt, &senders, expires)
        .await
    {
        Ok(end) => end,
        // The call was refused as a whole: no sender caused that.
        Err(error) => return (Vec::new(), Err(fault_of_kind(error.kind()))),
    };
    let giver = |sender: &SenderEnd| {
        let is_of = |asked: &&Asked| asked.1.get() == sender.fragment;
        Some(GiverEnd {
            depot: from.iter().find(is_of)?.0,
            fault: fault_of_sender(sender),
            span: Duration::from_micros(sender.micros),
        })
    };
    let givers = end.senders.iter().filter_map(giver).collect();
    let stored = match end.is_stored() {
        true => Ok(()),
        false => Err(fault_of_kind(kind_of(end.status))),
    };
    (givers, stored)
}

/// Returns why a fragment did not come from a depot; none if it did.
fn fault_of_sender(sender: &SenderEnd) -> Option<Fault> {
    match sender.status {
        200 => None,
        // The depot no longer holds the fragment, or holds another one.
        404 | 422 => Some(Fault::SourceVanished),
        status => Some(fault_of_kind(kind_of(status))),
    }
}

/// Returns the chunk to rebuild, its digest first and those of its fragments after it.
fn rebuilt(store: &Store, leg: Leg) -> Option<(Rebuilt, Vec<posthaste_types::Digest>)> {
    let record = store.request(leg.request).ok()?;
    let Some(Scan::Sealed {
        bytes, chunk_size, ..
    }) = record.scan
    else {
        return None;
    };
    let (bytes, chunk_size) = match record.recipients.is_empty() {
        true => (bytes, chunk_size),
        false => encrypted_sizes(bytes, chunk_size),
    };
    let start = chunk_size.times(u64::from(leg.chunk.get()));
    let digests = store.digests_of(leg.request, leg.chunk).ok()??;
    let rebuilt = Rebuilt {
        chunk: leg.chunk,
        size: (bytes - start).min(chunk_size).get(),
        digest: *digests.first()?,
        code: record.code,
        keep: match leg.fragment {
            FragmentIndex::WHOLE => None,
            fragment => Some((fragment, *digests.get(usize::from(fragment.get()) + 1)?)),
        },
    };
    Some((rebuilt, digests))
}
