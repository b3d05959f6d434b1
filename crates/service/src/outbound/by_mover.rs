//! Files and segments of exports that movers copy.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use posthaste_api as api;
use posthaste_core::movers::MoverId;
use posthaste_endpoint::{Boxed, Endpoint};
use posthaste_engine::copy::{Errand, Help, Helped};
use posthaste_journal::RequestRecord;
use posthaste_types::{ChunkIndex, RequestId, Timestamp};

use super::submit::profile_there;
use crate::{
    credentials::Behalf,
    movers::{Ending, Movers, News, Offered},
};

/// Schemes that movers write to: remote ones that any host opens the same way.
const SCHEMES: [&str; 5] = ["s3", "azblob", "gs", "sftp", "webdav"];

/// Movers that help with one stage-out.
pub(super) struct ByMover {
    movers: Arc<Movers>,
    request: RequestId,
    due: Timestamp,
    owner: Option<String>,
    source: api::ChorePlace,
    destination: api::ChorePlace,
    /// Number of the next piece, so that each is separate: two at one mover would gain nothing.
    next: AtomicU32,
    /// Set if no existing file is replaced.
    only_new: bool,
    /// Trace of the whole copy: pieces are copied beside its span.
    traceparent: Option<String>,
}

impl ByMover {
    /// Returns movers that may help with a request; none if they can't write there.
    pub(super) fn of(
        movers: &Arc<Movers>,
        record: &RequestRecord,
        behalf: &Behalf,
        destination: &dyn Endpoint,
    ) -> Option<Self> {
        if !SCHEMES.contains(&destination.capabilities().scheme) {
            return None;
        }
        let wanted = record.stage_in.as_ref()?;
        let place = |address: &str, profile: Option<&String>| {
            let own = behalf.own(address).ok()?;
            Some(api::ChorePlace {
                address: behalf.given(address).ok()?,
                profile: profile.cloned(),
                credential: own.map(|own| own.for_mover()),
            })
        };
        let source = std::str::from_utf8(&record.source).ok()?;
        Some(Self {
            movers: Arc::clone(movers),
            request: record.id,
            due: record.deadline,
            owner: behalf.name().map(str::to_owned),
            source: place(source, wanted.profile.as_ref())?,
            destination: place(&record.destination, profile_there(record))?,
            next: AtomicU32::new(0),
            only_new: !super::submit::rules(record).replaces,
            traceparent: posthaste_trace::traceparent(),
        })
    }

    /// Returns the chore, or none if it can't be written as text.
    fn chore(&self, errand: &Errand) -> Option<Box<api::CarryChore>> {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
        let entry = &errand.entry;
        let segment = errand.segment.as_ref();
        let range = segment.map_or(0..entry.size, |segment| segment.range.clone());
        Some(Box::new(api::CarryChore {
            request: self.request.to_string(),
            source: self.source.clone(),
            destination: self.destination.clone(),
            owner: self.owner.clone(),
            piece: api::FetchPiece {
                path: text(&errand.to)?,
                source_path: text(&errand.from)?,
                size: entry.size,
                mtime_s: entry.mtime.map(|mtime| mtime.secs),
                mtime_ns: entry.mtime.map_or(0, |mtime| mtime.nanos),
                version: entry.version.as_deref().map(str::to_owned),
                from: range.start,
                to: range.end,
            },
            mode: errand.spec.mode,
            only_new: self.only_new,
            origin: errand.spec.origin.to_string(),
            segment: segment.map(|segment| api::ChoreSegment {
                token: segment.token.clone(),
                index: segment.index,
            }),
            traceparent: self.traceparent.clone(),
        }))
    }
}

impl Help for ByMover {
    fn is_there(&self) -> bool {
        self.movers.are_there()
    }

    fn carry<'a>(
        &'a self,
        errand: &'a Errand,
        moved: &'a (dyn Fn(u64) + Send + Sync),
    ) -> Boxed<'a, Helped> {
        Box::pin(async move {
            let Some(chore) = self.chore(errand) else {
                return Helped::Nobody;
            };
            let offered = Offered {
                departure: Arc::default(),
                request: self.request,
                chunk: ChunkIndex::new(self.next.fetch_add(1, Relaxed)),
                due: self.due,
                chore: Arc::new(move || api::Chore::Carry(chore.clone())),
            };
            let mut seen = 0;
            let ending = self.movers.carry(offered, |news| match news {
                News::Given | News::Begun(_) => {}
                News::Fetched(bytes) => {
                    moved(bytes.saturating_sub(seen));
                    seen = seen.max(bytes);
                }
            });
            match ending.await {
                Some(Ending::Stored(sum, receipt)) => Helped::Done(sum, receipt),
                Some(Ending::Failed(mover)) => Helped::Failed(mover.get()),
                Some(Ending::Done(_)) | None => Helped::Nobody,
            }
        })
    }

    fn could_be_done(&self, who: u64) {
        self.movers.could_be_done(MoverId::new(who));
    }
}
