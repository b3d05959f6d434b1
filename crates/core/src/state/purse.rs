//! Budget and cost of a stage-in (`docs/algorithms/wishes.md`).

use alloc::{boxed::Box, vec::Vec};
use posthaste_plan::horizon::Money;
use posthaste_types::{Bytes, ChunkIndex, SourceId, record};

use crate::contract::{Cut, SourcePrice};
use crate::state::{Arrival, Near, SourceLane};

record! {
    /// Source that costs something, as one stage-in uses it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Priced {
        pub(crate) price: SourcePrice,
        /// Chunks that may yet be read from it though another source costs less, at the last look,
        /// with a budget.
        pub(crate) extra: u64,
    }
}

record! {
    /// Money of a stage-in that has a budget, or any source that costs something. All of it in
    /// millionths of a dollar.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub(crate) struct Purse {
        pub(crate) budget: Option<u64>,
        pub(crate) spent: u64,
        /// Forecast cost of what is still to be read, at the last look.
        pub(crate) coming: u64,
        pub(crate) priced: Vec<Priced>,
        /// GETs that reading all of it takes: the files of each chunk are not counted.
        pub(crate) gets: u64,
        /// True if its cheapest sources alone would not be in time, at the last look, with a
        /// budget.
        pub(crate) is_pressed: bool,
    }
}

/// Test of whether a source may be counted on, now or later.
pub(crate) type Counts<'a> = &'a dyn Fn(SourceId) -> bool;

impl Purse {
    pub(crate) fn new(budget: Option<u64>, prices: &[SourcePrice]) -> Self {
        let priced = prices.iter().take(Arrival::LANES_MAX);
        Self {
            budget,
            priced: priced.map(|&price| Priced { price, extra: 0 }).collect(),
            ..Self::default()
        }
    }

    /// Returns whether it needs no look.
    pub(crate) fn is_empty(&self) -> bool {
        self.budget.is_none() && self.priced.is_empty()
    }

    fn of(&self, source: SourceId) -> Option<&Priced> {
        let mut priced = self.priced.iter();
        priced.find(|priced| priced.price.source == source)
    }
}

impl Arrival {
    /// Returns whether it has a budget.
    pub(crate) fn has_budget(&self) -> bool {
        let purse = self.purse.as_ref();
        purse.is_some_and(|purse| purse.budget.is_some())
    }

    /// Returns what is left of its budget; endless without one.
    pub(crate) fn money_left(&self) -> u64 {
        let purse = self.purse.as_ref();
        purse.map_or(u64::MAX, |purse| {
            let budget = purse.budget.unwrap_or(u64::MAX);
            budget.saturating_sub(purse.spent)
        })
    }

    /// Counts a begun read as spent.
    pub(crate) fn pay(&mut self, micro_usd: u64) {
        if micro_usd > 0 {
            let purse = self.purse.get_or_insert_with(Box::default);
            purse.spent = purse.spent.saturating_add(micro_usd);
            purse.coming = purse.coming.saturating_sub(micro_usd);
        }
    }

    /// Sets its budget, and the prices of its sources.
    pub(crate) fn set_purse(&mut self, mut purse: Purse) {
        let held = self.held.iter();
        let runs = held.filter(|held| held.missing > Bytes::ZERO).count() as u64;
        let within = self.spec.files.saturating_sub(runs);
        purse.gets = u64::from(self.chunks()).saturating_add(within);
        self.purse = (!purse.is_empty()).then(|| Box::new(purse));
    }

    /// Returns the cost of reading one chunk of so many bytes from a source.
    pub(crate) fn price(&self, source: SourceId, bytes: Bytes) -> u64 {
        if let Some(near) = self.near_as(source) {
            let price = near.price.map(|price| price.reading(bytes, (1, 1)));
            return price.map_or(0, Money::micro_usd);
        }
        let purse = self.purse.as_ref();
        let priced = purse.and_then(|purse| Some((purse.of(source)?, purse.gets)));
        priced.map_or(0, |(priced, gets)| {
            let gets = (gets, self.chunks().into());
            priced.price.reading(bytes, gets).micro_usd()
        })
    }

    /// Returns the least cost of reading one chunk of a holding from sources that count; none if
    /// none of them holds it.
    pub(crate) fn least_price(
        &self,
        place: usize,
        bytes: Bytes,
        counts: Counts<'_>,
    ) -> Option<u64> {
        let held = self.held.get(place)?;
        let sources = held.sources.iter().filter(|source| counts(**source));
        sources.map(|source| self.price(*source, bytes)).min()
    }

    /// Returns the least cost of reading one chunk that lies at a depot near the centre: there, or
    /// at one of its sources.
    fn least_price_near(
        &self,
        near: &Near,
        place: usize,
        bytes: Bytes,
        counts: Counts<'_>,
    ) -> Option<u64> {
        let far = self.least_price(place, bytes, counts);
        let own = near.gives.then(|| self.price(near.source, bytes));
        far.into_iter().chain(own).min()
    }

    /// Returns the least cost of chunks that are neither here nor on their way. Those near the
    /// centre cost nothing if that depot gives them free.
    pub(crate) fn rest_at_least(&self, counts: Counts<'_>) -> u64 {
        let far = self.rest(|place, bytes| self.least_price(place, bytes, counts));
        let costs = |near: &&Near| {
            let is_free = near.gives && self.price(near.source, self.spec.chunk_size) == 0;
            near.open.len() > 0 && !is_free
        };
        let near = self.near.iter().filter(costs).map(|near| {
            let price = |place, bytes| self.least_price_near(near, place, bytes, counts);
            let places = (0..self.held.len()).filter_map(|place| {
                let chunks = self.cut.as_ref()?.chunks_of(place);
                let has_last = !chunks.is_empty() && near.open.contains(chunks.end - 1);
                let open = near.open.count_within(chunks);
                self.cost_of_chunks(place, open, has_last, price)
            });
            places.fold(0, u64::saturating_add)
        });
        near.fold(far, u64::saturating_add)
    }

    /// Returns the highest cost of those chunks.
    pub(crate) fn rest_at_most(&self, counts: Counts<'_>) -> u64 {
        self.rest(|place, bytes| {
            let held = self.held.get(place)?;
            let sources = held.sources.iter().filter(|source| counts(**source));
            sources.map(|source| self.price(*source, bytes)).max()
        })
    }

    /// Sums the prices of all open chunks, each by its holding and its size.
    fn rest(&self, price: impl Fn(usize, Bytes) -> Option<u64>) -> u64 {
        let Some(cut) = &self.cut else {
            return 0;
        };
        let of = |place: usize| {
            let (chunks, open) = (cut.chunks_of(place), &self.held[place].open);
            let last = chunks
                .end
                .checked_sub(1)
                .filter(|last| *last >= chunks.start)?;
            let has_last = open.contains(last - chunks.start);
            self.cost_of_chunks(place, open.len(), has_last, &price)
        };
        (0..self.held.len())
            .filter_map(of)
            .fold(0, u64::saturating_add)
    }

    /// Returns the cost of so many chunks of a holding, with its last one among them or not.
    fn cost_of_chunks(
        &self,
        place: usize,
        chunks: u32,
        has_last: bool,
        price: impl Fn(usize, Bytes) -> Option<u64>,
    ) -> Option<u64> {
        let cut = self.cut.as_ref()?;
        let whole = u64::from(chunks) - u64::from(has_last);
        let all = match whole {
            0 => 0,
            whole => price(place, self.spec.chunk_size)?.saturating_mul(whole),
        };
        let last = match has_last {
            true => price(place, cut.chunk_bytes(cut.chunks_of(place).end - 1))?,
            false => 0,
        };
        Some(all.saturating_add(last))
    }

    /// Returns what is left of the budget beyond the least cost of the rest; none if that exceeds
    /// it. With a budget only.
    pub(crate) fn money_to_spare(&self, counts: Counts<'_>) -> Option<u64> {
        self.money_left().checked_sub(self.rest_at_least(counts))
    }

    /// Returns whether what is left of the budget does not pay what is missing.
    pub(crate) fn is_broke(&self, counts: Counts<'_>) -> bool {
        self.has_budget() && self.money_to_spare(counts).is_none()
    }

    /// Sets the forecast cost of what is still to be read.
    pub(crate) fn expect_to_pay(&mut self, micro_usd: u64) {
        let most = self.money_left();
        if let Some(purse) = &mut self.purse {
            purse.coming = micro_usd.min(most);
        }
    }

    /// Returns the chunks that may yet be read from a source though another costs less.
    pub(crate) fn extra(&self, source: SourceId) -> u64 {
        let priced = self.purse.as_ref().and_then(|purse| purse.of(source));
        priced.map_or(0, |priced| priced.extra)
    }

    /// Takes one of those.
    pub(crate) fn take_extra(&mut self, source: SourceId) {
        let priced = self.purse.iter_mut().flat_map(|purse| &mut purse.priced);
        for priced in priced.filter(|priced| priced.price.source == source) {
            priced.extra = priced.extra.saturating_sub(1);
        }
    }

    /// Sets how many of those each source that costs something may give from now on.
    pub(crate) fn allow(&mut self, extra: impl Fn(SourceId) -> u64) {
        for priced in self.purse.iter_mut().flat_map(|purse| &mut purse.priced) {
            priced.extra = extra(priced.price.source);
        }
    }

    /// Returns the largest surcharge of a whole chunk from a source over other sources; none if no
    /// other source costs less.
    pub(crate) fn surcharge(&self, source: SourceId, counts: Counts<'_>) -> Option<u64> {
        let bytes = self.spec.chunk_size.min(self.spec.bytes);
        let own = self.price(source, bytes);
        let places = self.held.iter().enumerate();
        let places =
            places.filter(|(_, held)| held.missing > Bytes::ZERO && held.sources.contains(&source));
        let least = places.flat_map(|(place, _)| {
            let near = self.near.iter();
            let near = near.filter(move |near| near.bytes.get(place) > Some(&Bytes::ZERO));
            let near =
                near.filter_map(move |near| self.least_price_near(near, place, bytes, counts));
            self.least_price(place, bytes, counts)
                .into_iter()
                .chain(near)
        });
        let more = least.filter_map(|least| own.checked_sub(least));
        more.filter(|more| *more > 0).max()
    }

    /// Returns how many chunks a source may give of a holding under a budget with so much to spare,
    /// including those on their way. Counts either chunks at a depot near the centre or the rest.
    /// None: all of it.
    pub(crate) fn room_at(
        &self,
        source: SourceId,
        place: usize,
        near: Option<&Near>,
        spare: Option<u64>,
        counts: Counts<'_>,
    ) -> Option<Bytes> {
        let bytes = self.spec.chunk_size.min(self.spec.bytes);
        let own = self.price(source, bytes);
        let least = match near {
            Some(near) => self.least_price_near(near, place, bytes, counts),
            None => self.least_price(place, bytes, counts),
        };
        let more = own.saturating_sub(least.unwrap_or(0));
        if own == 0 || (more == 0 && spare.is_some()) {
            return None;
        }
        let lane = self.lanes.iter().find(|lane| lane.source == source);
        let flying = lane.map_or(0, |lane| u64::from(lane.in_flight));
        let extra = if more == 0 {
            0
        } else if near.is_some_and(|near| near.source == source) {
            let dearer = self.dearer(counts).into_iter();
            let others = dearer.map(|(more, source)| more.saturating_mul(self.extra(source)));
            let others = others.fold(0, u64::saturating_add);
            spare.unwrap_or(0).saturating_sub(others) / more
        } else {
            self.extra(source)
        };
        Some(self.spec.chunk_size.times(extra.saturating_add(flying)))
    }

    /// Returns whether data at a depot near the centre is forecast to come from there alone.
    pub(crate) fn comes_from_near(&self, near: &Near, place: usize, counts: Counts<'_>) -> bool {
        let bytes = self.spec.chunk_size.min(self.spec.bytes);
        let own = self.price(near.source, bytes);
        let is_least = || self.least_price_near(near, place, bytes, counts) == Some(own);
        !self.has_budget() || own == 0 || is_least()
    }

    /// Returns whether a budget with so much to spare pays the next chunk of a holding from a
    /// source, and all else then.
    pub(crate) fn pays(
        &self,
        source: SourceId,
        place: usize,
        spare: Option<u64>,
        counts: Counts<'_>,
    ) -> bool {
        let chunk = self.next_open(place);
        let bytes = chunk.map_or(Bytes::ZERO, |chunk| self.chunk_bytes(chunk.get()));
        let cost = self.price(source, bytes);
        if cost == 0 {
            return true;
        }
        let least = self.least_price(place, bytes, counts).unwrap_or(cost);
        let more = cost.saturating_sub(least);
        spare.is_some_and(|spare| more <= spare) && (more == 0 || self.extra(source) > 0)
    }

    /// Returns whether it pays a chunk that lies at a depot near the centre, read there or from a
    /// source, and all else then.
    pub(crate) fn pays_near(
        &self,
        source: SourceId,
        near: &Near,
        chunk: ChunkIndex,
        spare: Option<u64>,
        counts: Counts<'_>,
    ) -> bool {
        let bytes = self.chunk_bytes(chunk.get());
        let cost = self.price(source, bytes);
        if cost == 0 {
            return true;
        }
        let least = self.least_price_near(near, self.place_within(chunk), bytes, counts);
        let more = cost.saturating_sub(least.unwrap_or(cost));
        let may = more == 0 || source == near.source || self.extra(source) > 0;
        may && spare.is_some_and(|spare| more <= spare)
    }

    fn place_within(&self, chunk: ChunkIndex) -> usize {
        let cut = self.cut.as_ref();
        cut.map_or(0, |cut: &Cut| cut.holding_of(chunk.get()))
    }

    /// Returns whether a chunk costs more from a source than elsewhere.
    pub(crate) fn is_extra(&self, source: SourceId, chunk: ChunkIndex, counts: Counts<'_>) -> bool {
        let bytes = self.chunk_bytes(chunk.get());
        let place = self.place_within(chunk);
        let mut near = self.near.iter();
        let least = match near.find(|near| near.open.contains(chunk.get())) {
            Some(near) => self.least_price_near(near, place, bytes, counts),
            None => self.least_price(place, bytes, counts),
        };
        least.is_some_and(|least| self.price(source, bytes) > least)
    }

    /// Returns whether a chunk may be read once more, from another source than before: with money
    /// that nothing else will need.
    pub(crate) fn pays_twice(
        &self,
        source: SourceId,
        before: SourceId,
        bytes: Bytes,
        counts: Counts<'_>,
    ) -> bool {
        let cost = self.price(source, bytes);
        if cost == 0 || !self.has_budget() {
            return true;
        }
        let is_worth_it = self.purse.as_ref().is_some_and(|purse| purse.is_pressed)
            || cost <= self.price(before, bytes);
        let spare = self.money_to_spare(counts);
        is_worth_it && spare.is_some_and(|spare| cost <= spare)
    }

    /// Returns the lanes of sources that cost more than others for the same data, with the
    /// surcharge of a chunk of each. The cheaper ones come first.
    pub(crate) fn dearer(&self, counts: Counts<'_>) -> Vec<(u64, SourceId)> {
        let is_used = |lane: &&SourceLane| !lane.is_gone && counts(lane.source);
        let lanes = self.lanes.iter().filter(is_used);
        let mut dearer: Vec<(u64, SourceId)> = lanes
            .filter_map(|lane| Some((self.surcharge(lane.source, counts)?, lane.source)))
            .collect();
        dearer.sort_unstable();
        dearer
    }
}
