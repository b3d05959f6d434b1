//! Sends fragments to depots: by a mover if there is one, from here otherwise.

use std::sync::{Arc, OnceLock};

use posthaste_api as api;
use posthaste_core::{
    contract::{Fault, Input},
    movers::MoverId,
};
use posthaste_endpoint::{
    Error, ErrorKind,
    relay::{Departure, Haste, Scope, TOKEN_LIFETIME_S, mint},
};
use posthaste_engine::sealed::{Encryption, Sealed};
use posthaste_journal::ChunkRecord;
use posthaste_types::{Bytes, Digest, Timestamp};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::{Hands, Leg, Metered};
use crate::{
    clock::Clock,
    depots::{Depot, Depots, Manner, Share, fault_of, fault_of_ours},
    driver::Arrival,
    follow::Lead,
    movers::{Ending, Movers, News, Offered},
    omissions::tell_of_files,
    outbound::Outgoing,
    store::Store,
};

/// Sender and destination.
struct Way {
    depots: Arc<Depots>,
    movers: Arc<Movers>,
    leg: Leg,
    manner: Manner,
    departure: Arc<Departure>,
    outgoing: Arc<Outgoing>,
}

impl Way {
    /// Returns the fault for an error. What the mind only knows as another is kept in its own words.
    fn fault(&self, error: &Error) -> Fault {
        let fault = fault_of(error);
        if fault == Fault::Other {
            self.outgoing.complaints.keep(self.leg.request, error);
        }
        fault
    }
}

/// Result of a fragment that movers might send.
enum Sent {
    /// Stored, with the digests of its chunk; or its source changed.
    Done(Result<Vec<Digest>, Fault>),
    /// Left to this process: no mover is to send it, or this one could not.
    Ours(Option<MoverId>),
}

impl Hands {
    pub(super) fn send(&mut self, leg: Leg, manner: Manner) {
        let sealed = self.sealed(leg.request);
        let (inputs, store) = (self.inputs.clone(), Arc::clone(&self.store));
        let outgoing = self.outbound.outgoing();
        let way = Way {
            depots: Arc::clone(&self.depots),
            movers: Arc::clone(&self.movers),
            leg,
            manner,
            departure: Arc::default(),
            outgoing: Arc::clone(&outgoing),
        };
        let departure = Arc::clone(&way.departure);
        let lead = self.leads.begin(leg);
        let span = self.traced.of_send(leg, &self.depots);
        let handle = self.running.spawn(async move {
            let opened = OnceLock::new();
            let sending = async {
                match sealed.await {
                    Ok(sealed) => {
                        let sent = send(&sealed, &way, &lead).await;
                        let _ = opened.set(sealed);
                        sent
                    }
                    Err(error) => {
                        outgoing.complaints.note(leg.request, &error);
                        Err(fault_of_ours(&error))
                    }
                }
            };
            let ended = tokio::select! {
                biased;
                () = way.departure.called_back() => {
                    // Nothing has left: its reader, or its wait, ends with this.
                    let _ = inputs.send(Arrival::bare(leg.recalled())).await;
                    return;
                }
                ended = sending.instrument(span.clone()) => ended,
            };
            posthaste_trace::ended(&span, &ended);
            let arrival = match ended {
                Ok(record) => Arrival {
                    chunk: Some(record),
                    ..Arrival::bare(leg.ended(Ok(())))
                },
                Err(fault) => match tell_of_source(&inputs, &store, leg, fault, opened.get()).await
                {
                    true => Arrival::bare(leg.recalled()),
                    false => Arrival::bare(leg.ended(Err(fault))),
                },
            };
            let is_stored = arrival.chunk.is_some();
            // The driver is gone only when the service ends, and then nobody waits for this.
            let _ = inputs.send(arrival).await;
            if is_stored {
                lead.send_replace(Lead::Stored);
            }
        });
        self.keep(leg, handle, Some(departure));
    }
}

/// Reports which files of the source are at fault, if any, because the user wants to know. Returns
/// whether the rest can be sent without them.
pub(crate) async fn tell_of_source(
    inputs: &mpsc::Sender<Arrival>,
    store: &Store,
    leg: Leg,
    fault: Fault,
    sealed: Option<&Arc<Sealed>>,
) -> bool {
    let Some(sealed) = sealed.filter(|_| fault.is_of_source()) else {
        return false;
    };
    if tell_of_files(inputs, store, sealed, leg).await {
        return true;
    }
    let Some(what) = sealed.trouble() else {
        return false;
    };
    let request = leg.request;
    tracing::warn!(%request, "{what}");
    let told = Input::SourceFileTold {
        request,
        fault,
        what,
    };
    // The driver is gone only when the service ends, and then nobody waits for this.
    let _ = inputs.send(Arrival::bare(told)).await;
    false
}

async fn send(
    sealed: &Arc<Sealed>,
    way: &Way,
    lead: &watch::Sender<Lead>,
) -> Result<ChunkRecord, Fault> {
    let leg = way.leg;
    let depot = way.depots.get(leg.depot).ok_or(Fault::Unreachable)?;
    let failed = match by_mover(sealed, &depot, way, lead).await {
        Sent::Done(digests) => return digests.map(|digests| leg.record(digests)),
        Sent::Ours(failed) => failed,
    };
    let digests = from_here(sealed, &depot, way, lead).await?;
    if let Some(mover) = failed {
        way.movers.could_be_done(mover);
    }
    Ok(leg.record(digests))
}

async fn from_here(
    sealed: &Arc<Sealed>,
    depot: &Depot,
    way: &Way,
    lead: &watch::Sender<Lead>,
) -> Result<Vec<Digest>, Fault> {
    let (leg, manner) = (way.leg, &way.manner);
    let (fragment, _stripe) = sealed
        .fragment(leg.chunk, leg.fragment)
        .await
        .map_err(|error| way.fault(&error))?;
    let size = Bytes::new(fragment.bytes.len() as u64);
    tracing::Span::current().record("bytes", size.get());
    let metered = Metered::start(depot, manner.gives_way());
    lead.send_replace(Lead::Begun(fragment.digest));
    let seal = sealed.seal();
    let sender = depot.sender(manner);
    let sender = sender.departing(Arc::clone(&way.departure));
    let put = async || {
        let (bytes, digest) = (fragment.bytes.clone(), fragment.digest);
        let (dataset, chunk, fragment) = (&seal.dataset, leg.chunk, leg.fragment);
        let put = sender.put_fragment(dataset, chunk, fragment, bytes, digest, seal.expires);
        put.await
    };
    let mut stored = put().await;
    let is_there = |error: &Error| error.kind() == ErrorKind::Conflict;
    if stored.as_ref().is_err_and(is_there) && sealed.lacks_some(leg.chunk) {
        // Its bytes are from before a file was left out.
        let client = &depot.client;
        let removed = client.delete_unless(&seal.dataset, leg.chunk, leg.fragment, fragment.digest);
        stored = match removed.await {
            Ok(()) => put().await,
            Err(error) => Err(error),
        };
    }
    metered.end(if stored.is_ok() { size } else { Bytes::ZERO });
    stored.map_err(|error| way.fault(&error))?;
    Ok(fragment.digests)
}

/// Lets a mover send it. Sends through gateways go from here: gateways know the service and its
/// reservations.
async fn by_mover(
    sealed: &Arc<Sealed>,
    depot: &Arc<Depot>,
    way: &Way,
    lead: &watch::Sender<Lead>,
) -> Sent {
    let (leg, gives_way) = (way.leg, way.manner.gives_way());
    let bytes = sealed.fragment_bytes(leg.chunk, leg.fragment);
    tracing::Span::current().record("bytes", bytes.get());
    let is_reserved = matches!(way.manner.share, Share::Reserved(_));
    let is_over = matches!(sealed.seal().encryption, Encryption::Over);
    let is_plain = sealed.seal().root.to_str().is_some();
    if is_reserved || is_over || !is_plain || depot.client.ways().len() > 1 {
        return Sent::Ours(None);
    }
    let offered = offered(sealed, depot, way);
    let mut metered = None;
    let ending = way.movers.carry(offered, |news| match news {
        News::Given => {
            // Bytes of another mover are not acknowledged.
            metered = None;
        }
        News::Fetched(_) => {}
        News::Begun(digest) => {
            metered.get_or_insert_with(|| Metered::by_mover(depot, gives_way));
            lead.send_replace(Lead::Begun(digest));
        }
    });
    match ending.await {
        Some(Ending::Stored(..)) | None => Sent::Ours(None),
        Some(Ending::Failed(mover)) => Sent::Ours(Some(mover)),
        Some(Ending::Done(digests)) => {
            if let Some(metered) = metered {
                metered.end(sealed.fragment_bytes(leg.chunk, leg.fragment));
            }
            let is_whole = digests.len() == sealed.digests_expected();
            let unchanged = sealed.check_unchanged(leg.chunk, &digests);
            if unchanged.is_err() && sealed.lacks_some(leg.chunk) {
                // A file was left out meanwhile.
                return Sent::Ours(None);
            }
            Sent::Done(match unchanged {
                Ok(()) if is_whole => Ok(digests),
                Ok(()) => Err(Fault::Other),
                Err(error) => Err(fault_of(&error)),
            })
        }
    }
}

fn offered(sealed: &Arc<Sealed>, depot: &Arc<Depot>, way: &Way) -> Offered {
    let (leg, haste) = (way.leg, way.manner.haste);
    let (sealed, depot) = (Arc::clone(sealed), Arc::clone(depot));
    let gives_way = way.manner.gives_way();
    let traceparent = posthaste_trace::traceparent();
    let due = match haste {
        Haste::Now => Some(Timestamp::from_secs(0)),
        Haste::By(due) => Some(due),
        Haste::Whenever => None,
    };
    let chore = move || {
        let known = sealed.digests_of(leg.chunk).unwrap_or_default();
        api::Chore::Send(api::SendChore {
            request: leg.request.to_string(),
            chunk: leg.chunk.get(),
            fragment: leg.fragment.get(),
            known: known.iter().map(Digest::to_string).collect(),
            depot: shown(&depot, &sealed),
            due_us: due.map(Timestamp::as_micros),
            gives_way,
            left_out: sealed.left_out(),
            traceparent: traceparent.clone(),
        })
    };
    Offered {
        request: leg.request,
        chunk: leg.chunk,
        due: due.unwrap_or(Timestamp::from_micros(u64::MAX)),
        departure: Arc::clone(&way.departure),
        chore: Arc::new(chore),
    }
}

/// Returns a depot with a token that is good there for this dataset alone.
fn shown(depot: &Depot, sealed: &Sealed) -> api::ChoreDepot {
    let now = Clock::default().now();
    let until = now + std::time::Duration::from_secs(TOKEN_LIFETIME_S);
    let dataset = Some(&sealed.seal().dataset);
    api::ChoreDepot {
        name: depot.record.name.clone(),
        url: depot.record.url.clone(),
        fingerprint: depot.record.fingerprint.clone(),
        token: mint(&depot.secret, Scope::Write, dataset, until),
        lets_through: depot.is_known_to_let_through(),
    }
}
