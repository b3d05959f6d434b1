use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{ArrivalSpec, ArrivalView, Cut, Event, Happening, Holding, Reason};
use posthaste_types::{Bytes, ChunkIndex, RequestId, SourceId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str =
    "stage-ins whole, none fetched again, too early, or from whom it does not lie at";

/// One stage-in as the world knows it.
#[derive(Debug)]
struct Watch {
    spec: ArrivalSpec,
    /// What lies where; nothing where each source holds all of it.
    holdings: Vec<Holding>,
    cut: Option<Cut>,
    /// Chunks that were written and noted.
    here: BTreeSet<ChunkIndex>,
    /// Those of them the mind was told of since it last started.
    told: BTreeSet<ChunkIndex>,
    under_way: BTreeSet<(SourceId, ChunkIndex)>,
    /// Chunks that ever lay at depots near the centre, by the chunk: the driver asks each for what it took alone.
    near: BTreeSet<ChunkIndex>,
    is_over: bool,
}

/// What is said of stage-ins beside what is really here.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    watched: BTreeMap<RequestId, Watch>,
    /// Those whose source is to be removed, and whether all of it is there.
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
    /// One is asked for. How many chunks it has.
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

    /// One goes the other way, and its source is to be removed in the end.
    pub(crate) fn on_goes_out(&mut self, request: RequestId) {
        self.outward.entry(request).or_insert(false);
    }

    /// All of one has its name.
    pub(crate) fn on_landed(&mut self, request: RequestId) {
        if let Some(is_there) = self.outward.get_mut(&request) {
            *is_there = true;
        }
    }

    /// What was read for one is to be removed.
    pub(crate) fn on_release(&self, request: RequestId) -> Result<(), Found> {
        let is_there = self.outward.get(&request);
        ensure(NAME, is_there.is_some_and(|is_there| *is_there), || {
            format!("{request} is removed where it came from: asked for and there {is_there:?}")
        })
    }

    /// It is wanted at another moment than was said.
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

    /// A chunk is asked of a source.
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

    /// A chunk is asked of a source, to go to a depot near the centre.
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

    /// A depot near the centre has a chunk.
    pub(crate) fn on_kept_near(&mut self, request: RequestId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.near.insert(chunk);
        }
    }

    /// A depot is to remove what it has of a request: of a stage-in only once that is over.
    pub(crate) fn on_forget(&self, request: RequestId) -> Result<(), Found> {
        let watch = self.watched.get(&request);
        ensure(NAME, watch.is_none_or(|watch| watch.is_over), || {
            format!("depots are to remove {request}, which is not here")
        })
    }

    pub(crate) fn is_known(&self, request: RequestId) -> bool {
        self.watched.contains_key(&request)
    }

    /// How many chunks one has.
    pub(crate) fn chunks_of(&self, request: RequestId) -> u32 {
        self.watched.get(&request).map_or(0, Watch::chunks)
    }

    /// A fetch ended, in whatever way.
    pub(crate) fn on_end(&mut self, request: RequestId, source: SourceId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.under_way.remove(&(source, chunk));
        }
    }

    /// A chunk is written and noted.
    pub(crate) fn on_noted(&mut self, request: RequestId, chunk: ChunkIndex) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.here.insert(chunk);
        }
    }

    /// The mind is told of these.
    pub(crate) fn on_told(&mut self, request: RequestId, chunks: &[ChunkIndex]) {
        if let Some(watch) = self.watched.get_mut(&request) {
            watch.told.extend(chunks);
        }
    }

    /// Whoever knew what was told is dead.
    pub(crate) fn forget_told(&mut self) {
        for watch in self.watched.values_mut() {
            watch.told.clear();
            watch.under_way.clear();
        }
    }

    /// What is here of one.
    pub(crate) fn here(&self, request: RequestId) -> Vec<ChunkIndex> {
        let watch = self.watched.get(&request);
        watch.map_or_else(Vec::new, |watch| watch.here.iter().copied().collect())
    }

    /// By when it is wanted.
    pub(crate) fn deadline(&self, request: RequestId) -> Option<Timestamp> {
        self.watched.get(&request).map(|watch| watch.spec.deadline)
    }

    /// The size of one.
    pub(crate) fn bytes(&self, request: RequestId) -> Bytes {
        let watch = self.watched.get(&request);
        watch.map_or(Bytes::ZERO, |watch| watch.spec.bytes)
    }

    /// The size of a chunk.
    pub(crate) fn bytes_of(&self, request: RequestId, chunk: ChunkIndex) -> Bytes {
        let watch = self.watched.get(&request);
        let cut = watch.and_then(|watch| watch.cut.as_ref());
        cut.map_or(Bytes::ZERO, |cut| cut.chunk_bytes(chunk.get()))
    }

    /// What lies where of one; nothing where each source holds all of it.
    pub(crate) fn holdings(&self, request: RequestId) -> &[Holding] {
        let watch = self.watched.get(&request);
        watch.map_or(&[], |watch| watch.holdings.as_slice())
    }

    /// Its files are to get their names, or what was written is to be removed.
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

    /// One that is here before it is welcome must say why.
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

    /// The mind's books of one that is under way beside what is really here.
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

    /// A stage-in that could be here must be.
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
