use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{ArrivalSpec, ArrivalView, Cut, Event, Happening, Holding, Reason};
use posthaste_types::{Bytes, ChunkIndex, RequestId, SourceId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str =
    "stage-ins whole, none fetched again, too early, or from whom it does not lie at";

/// Stage-in, with the world's facts.
#[derive(Debug)]
struct Watch {
    spec: ArrivalSpec,
    /// Holdings of the sources; empty if each source holds everything.
    holdings: Vec<Holding>,
    cut: Option<Cut>,
    /// Chunks that were written and recorded.
    here: BTreeSet<ChunkIndex>,
    /// Chunks here that were reported to the mind since it last started.
    told: BTreeSet<ChunkIndex>,
    under_way: BTreeSet<(SourceId, ChunkIndex)>,
    /// Chunks that ever lay at depots near the centre. The driver asks each depot only for its own
    /// chunks.
    near: BTreeSet<ChunkIndex>,
    is_over: bool,
}

/// Reports about stage-ins, compared with the data that arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    watched: BTreeMap<RequestId, Watch>,
    /// Exports whose source is to be removed, and whether all their data arrived.
    outward: BTreeMap<RequestId, bool>,
}

impl Watch {
    fn chunks(&self) -> u32 {
        self.cut.as_ref().map_or(0, Cut::chunks)
    }

    fn lies_at(&self, source: SourceId, chunk: ChunkIndex) -> bool {
        let cut = self.cut.as_ref();
        let place = cut.map_or(0, |cut| cut.holding_of(chunk.get()));
        let holding = self.holdings.get(place);
        holding.map_or(self.holdings.is_empty(), |holding| {
            holding.sources.contains(&source)
        })
    }
}

impl Arrivals {
    /// Records a submitted stage-in. Returns its number of chunks.
    pub(crate) fn on_submitted(
        &mut self,
        request: RequestId,
        spec: &ArrivalSpec,
        holdings: &[Holding],
    ) -> u32 {
        let watch = self.watched.entry(request).or_insert_with(|| Watch {
            spec: spec.clone(),
            holdings: holdings.to_vec(),
            cut: spec.cut(holdings),
            here: BTreeSet::new(),
            told: BTreeSet::new(),
            under_way: BTreeSet::new(),
            near: BTreeSet::new(),
            is_over: false,
        });
        watch.chunks()
    }

    /// Records that a request is an export whose source is removed in the end.
    pub(crate) fn on_goes_out(&mut self, request: RequestId) {
        self.outward.entry(request).or_insert(false);
    }

    /// Records that all files of a stage-in were published.
    pub(crate) fn on_landed(&mut self, request: RequestId) {
        if let Some(is_there) = self.outward.get_mut(&request) {
            *is_there = true;
        }
    }

    /// Checks that the source of a stage-in may be removed.
    pub(crate) fn on_release(&self, request: RequestId) -> Result<(), Found> {
        let is_there = self.outward.get(&request);
        ensure(NAME, is_there.is_some_and(|is_there| *is_there), || {
            format!("{request} is removed where it came from: asked for and there {is_there:?}")
        })
    }

    /// Records a changed deadline and earliest arrival.
    pub(crate) fn on_moved(
        &mut self,
        request: RequestId,
        not_before: Timestamp,
        deadline: Timestamp,
    ) {
        if let Some(watch) = self
            .watched
            .get_mut(&request)
            .filter(|watch| !watch.is_over)
        {
            (watch.spec.not_before, watch.spec.deadline) = (Some(not_before), deadline);
        }
    }

    /// Checks a fetch of a chunk from a source.
    pub(crate) fn on_fetch(
        &mut self,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
    ) -> Result<(), Found> {
        let Some(watch) = self.watched.get_mut(&request) else {
            return ensure(NAME, false, || format!("{request} was never asked for"));
        };
        let is_there = if watch.spec.sources.contains(&source) {
            watch.lies_at(source, chunk)
        } else {
            watch.near.contains(&chunk)
        };
        let is_known = chunk.get() < watch.chunks() && is_there && !watch.is_over;
        let is_new = watch.under_way.insert((source, chunk));
        let was_told = watch.told.contains(&chunk);
        ensure(NAME, is_known && is_new && !was_told, || {
            format!(
                "{chunk} of {request} is asked of {source}: known {is_known}, new {is_new}, here already {was_told}"
            )
        })
    }

    /// Checks a fetch of a chunk that goes to a depot near the centre.
    pub(crate) fn on_prestage(
        &mut self,
        request: RequestId,
        source: SourceId,
        chunk: ChunkIndex,
    ) -> Result<(), Found> {
        let Some(watch) = self.watched.get(&request) else {
            return ensure(NAME, false, || format!("{request} was never asked for"));
        };
        let is_known =
            watch.spec.sources.contains(&source) && watch.lies_at(source, chunk) && !watch.is_over;
        let mut under_way = watch.under_way.iter();
        let is_new = !under_way.any(|(_, other)| *other == chunk);
        let was_told = watch.told.contains(&chunk);
        ensure(NAME, is_known && is_new && !was_told, || {
            format!(
                "{chunk} of {request} is to wait near the centre: known {is_known}, new {is_new}, here already {was_told}"
            )
        })
    }

    /// Records that a depot near the centre has a chunk.
    pub(crate) fn on_kept_near(&mut self, request: RequestId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.near.insert(chunk);
        }
    }

    /// Checks that a depot may remove the data of a request. Data of a stage-in stays until the
    /// stage-in is over.
    pub(crate) fn on_forget(&self, request: RequestId) -> Result<(), Found> {
        let watch = self.watched.get(&request);
        ensure(NAME, watch.is_none_or(|watch| watch.is_over), || {
            format!("depots are to remove {request}, which is not here")
        })
    }

    pub(crate) fn is_known(&self, request: RequestId) -> bool {
        self.watched.contains_key(&request)
    }

    /// Returns the number of chunks of a stage-in.
    pub(crate) fn chunks_of(&self, request: RequestId) -> u32 {
        self.watched.get(&request).map_or(0, Watch::chunks)
    }

    /// Records that a fetch ended, successfully or not.
    pub(crate) fn on_end(&mut self, request: RequestId, source: SourceId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.under_way.remove(&(source, chunk));
        }
    }

    /// Records a chunk that is written and noted.
    pub(crate) fn on_noted(&mut self, request: RequestId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.here.insert(chunk);
        }
    }

    /// Records that these chunks were reported to the mind.
    pub(crate) fn on_told(&mut self, request: RequestId, chunks: &[ChunkIndex]) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.told.extend(chunks);
        }
    }

    /// Forgets all reports, because the driver that made them is dead.
    pub(crate) fn forget_told(&mut self) {
        for watch in self.watched.values_mut() {
            watch.told.clear();
            watch.under_way.clear();
        }
    }

    /// Returns the chunks of a stage-in that are here.
    pub(crate) fn here(&self, request: RequestId) -> Vec<ChunkIndex> {
        let watch = self.watched.get(&request);
        watch.map_or_else(Vec::new, |watch| watch.here.iter().copied().collect())
    }

    pub(crate) fn deadline(&self, request: RequestId) -> Option<Timestamp> {
        self.watched.get(&request).map(|watch| watch.spec.deadline)
    }

    pub(crate) fn bytes(&self, request: RequestId) -> Bytes {
        let watch = self.watched.get(&request);
        watch.map_or(Bytes::ZERO, |watch| watch.spec.bytes)
    }

    /// Returns the size of a chunk.
    pub(crate) fn bytes_of(&self, request: RequestId, chunk: ChunkIndex) -> Bytes {
        let watch = self.watched.get(&request);
        let cut = watch.and_then(|watch| watch.cut.as_ref());
        cut.map_or(Bytes::ZERO, |cut| cut.chunk_bytes(chunk.get()))
    }

    /// Returns the holdings of a stage-in; empty if each source holds everything.
    pub(crate) fn holdings(&self, request: RequestId) -> &[Holding] {
        let watch = self.watched.get(&request);
        watch.map_or(&[], |watch| watch.holdings.as_slice())
    }

    /// Checks that a stage-in may be published, or its written data removed.
    pub(crate) fn on_settle(&mut self, request: RequestId, keep: bool) -> Result<(), Found> {
        let Some(watch) = self.watched.get_mut(&request) else {
            return ensure(NAME, false, || format!("{request} was never asked for"));
        };
        let (here, all) = (watch.here.len(), watch.chunks());
        if !keep {
            watch.here.clear();
            watch.told.clear();
            watch.is_over = true;
        }
        ensure(NAME, !keep || here == all as usize, || {
            format!("{request} is called whole with {here} of {all} chunks here")
        })
    }

    /// Checks that a stage-in which arrives too early has a stated reason.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else says that it is here or begins"
    )]
    pub(crate) fn on_event(&mut self, event: &Event) -> Result<(), Found> {
        let Some(request) = event.request else {
            return Ok(());
        };
        let Some(watch) = self.watched.get_mut(&request) else {
            return Ok(());
        };
        let is_early = watch.spec.not_before.is_some_and(|at| event.at < at);
        match event.happening {
            Happening::Arrived { .. } => {
                watch.is_over = true;
                let is_said = matches!(event.reason, Reason::CameEarly { .. });
                ensure(NAME, is_early == is_said, || {
                    format!("{request} is here, early {is_early}, and that is said: {is_said}")
                })
            }
            Happening::Fetching => {
                let is_said = matches!(event.reason, Reason::MustBegin { .. });
                ensure(NAME, is_early == is_said, || {
                    format!("{request} begins, early {is_early}, and that is said: {is_said}")
                })
            }
            _ => Ok(()),
        }
    }

    /// Compares the mind's state of a running stage-in with the chunks that are here.
    pub(crate) fn compare(&self, view: &ArrivalView) -> Result<(), Found> {
        let Some(watch) = self.watched.get(&view.request) else {
            return Ok(());
        };
        let (believed, here) = (view.chunks_here as usize, watch.here.len());
        let under_way = watch.under_way.len();
        let holds = !view.state.is_live() || (believed <= here && here <= believed + under_way);
        ensure(NAME, holds, || {
            format!(
                "of {} {believed} chunks are believed here, {here} are, {under_way} are under way",
                view.request
            )
        })
    }

    /// Checks that a stage-in that could have arrived did.
    pub(crate) fn ended(view: &ArrivalView, is_possible: bool) -> Result<(), Found> {
        let may_wait = !is_possible || view.paused.is_some();
        ensure(NAME, !view.state.is_live() || may_wait, || {
            let all = view.chunks;
            format!(
                "{} is not here, {} of {all} chunks are",
                view.request, view.chunks_here
            )
        })
    }
}
