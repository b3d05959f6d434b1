//! Budget of a stage-in (`docs/algorithms/wishes.md`): how much of it comes from dearer sources, so
//! that it is in time at the least cost. Nothing begins that its budget does not pay.

use alloc::vec::Vec;
use posthaste_types::{ByteRate, Bytes, ChunkIndex, RequestId, SourceId, Timestamp};

use crate::{
    contract::Reason,
    decide,
    decide::stage_in::counter_offer::LIVE_MAX,
    forecast,
    forecast::stage_in::inbound::{Inbound, Share},
    state::{Arrival, Near, State},
};

/// More chunks than any stage-in has: no budget bounds the source.
pub(crate) const ANY: u64 = 1 << 32;

/// Share of its remaining time that a stage-in too late for its margin should have left when it is
/// here.
const LAST_SHARE: u32 = 8;

/// Precision to which the least sufficient money is found, as a share of it.
const MONEY_SHARE: u64 = 16;

/// Source that costs more than others.
pub(crate) struct Dear {
    pub(crate) source: SourceId,
    /// Extra cost of a chunk from it.
    pub(crate) more: u64,
    /// Rate at p10.
    pub(crate) rate: ByteRate,
    /// Chunks that it gives in time at that rate.
    pub(crate) most: u64,
    /// True if it is lost and may be tried now: with one chunk, as without a budget.
    pub(crate) may_be_back: bool,
}

/// Returns whether a source may be counted on, now or later.
pub(crate) fn counting(state: &State) -> impl Fn(SourceId) -> bool + '_ {
    |source| {
        let known = state.arrivals.sources.get(&source);
        known.is_some_and(|known| !known.is_hopeless(&state.settings))
    }
}

/// Lets dear sources give no more than needed to be here by then. If the whole budget does not
/// suffice for that, they give what being in time still needs, or else all of it. A quick look
/// seeks no least money.
pub(crate) fn allot(
    state: &State,
    arrival: &mut Arrival,
    until: Timestamp,
    is_quick: bool,
    is_here: impl Fn(&Arrival, Timestamp) -> bool,
) {
    let (now, deadline) = (state.now, arrival.spec.deadline);
    let spare = arrival.money_to_spare(&counting(state)).unwrap_or(0);
    let mut dear = dear_chunks(state, arrival, until);
    arrival.allow(|_| 0);
    let is_pressed = !dear.is_empty() && (arrival.is_leftover || !is_here(arrival, until));
    if is_pressed {
        let last = (deadline - deadline.since(now) / LAST_SHARE).max(now);
        let targets = [until, last].into_iter().filter(|target| *target > now);
        let mut targets = targets.take(if is_quick { 1 } else { 2 });
        let extra = targets.find_map(|target| {
            if arrival.is_leftover {
                return None;
            }
            dear = dear_chunks(state, arrival, target);
            let money = least_money(spare, is_quick, |money| {
                arrival.allow(of(&dear, &by_price(&dear, money)));
                is_here(arrival, target)
            });
            Some(by_price(&dear, money?))
        });
        let mut extra = extra.unwrap_or_else(|| by_rate(&dear, spare));
        for (dear, extra) in dear.iter().zip(&mut extra) {
            *extra = (*extra).max(u64::from(dear.may_be_back && dear.more <= spare));
        }
        arrival.allow(of(&dear, &extra));
    }
    if let Some(purse) = &mut arrival.purse {
        purse.is_pressed = is_pressed;
    }
}

/// Returns the sources that cost more than others, the cheaper ones first.
pub(crate) fn dear_chunks(state: &State, arrival: &Arrival, until: Timestamp) -> Vec<Dear> {
    let span = until.since(state.now);
    let dearer = arrival.dearer(&counting(state));
    let dear = dearer.into_iter().map(|(more, source)| {
        let known = state.arrivals.sources.get(&source);
        let may_be_back = known.is_some_and(|known| known.is_down() && known.is_open(state.now));
        let known = known.filter(|known| !known.is_down());
        let rate = known.map_or(ByteRate::ZERO, |known| known.link.rates.p10);
        let most = match rate.volume(span) {
            Bytes::ZERO => 0,
            bytes => bytes.pieces(arrival.spec.chunk_size).saturating_add(1),
        };
        Dear {
            source,
            more,
            rate,
            most,
            may_be_back,
        }
    });
    dear.collect()
}

/// Judges a newcomer by its budget.
///
/// # Errors
///
/// Reason of the refusal.
pub(crate) fn judge_within(
    state: &State,
    arrival: &mut Arrival,
    from: Option<Timestamp>,
) -> Result<bool, Reason> {
    let budget = arrival.purse.as_ref().and_then(|purse| purse.budget);
    let Some(budget) = budget.filter(|_| arrival.can_be_had()) else {
        return decide::stage_in::admission::judge(state, arrival, from);
    };
    let deadline = arrival.spec.deadline;
    if deadline <= state.now {
        return decide::stage_in::admission::judge(state, arrival, from);
    }
    let is_quick = state.arrivals.live().count() > LIVE_MAX;
    let left =
        forecast::stage_in::left_for_arrivals(state, None, forecast::stage_in::Quantile::P10);
    let finish = |arrival: &Arrival| {
        let from = from?.max(state.now);
        left.clone().early(arrival, |_| from).edge
    };
    let in_time = |arrival: &Arrival| finish(arrival).filter(|finish| *finish <= deadline);
    allot(state, arrival, deadline, is_quick, |arrival, _| {
        in_time(arrival).is_some()
    });
    let counts = counting(state);
    let least = arrival.rest_at_least(&counts);
    let within =
        (least <= budget).then(|| decide::stage_in::admission::judge(state, arrival, from));
    if let Some(Ok(taken)) = within {
        return Ok(taken);
    }
    let dear = dear_chunks(state, arrival, deadline);
    let most = arrival.rest_at_most(&counts).saturating_sub(least);
    // Only the answer of a trial counts, whatever it spent within the budget.
    let mut trial = arrival.clone();
    if let Some(purse) = &mut trial.purse {
        purse.budget = Some(u64::MAX);
    }
    let mut found = None;
    let more = least_money(most, is_quick, |money| {
        let extra = by_price(&dear, money);
        trial.allow(of(&dear, &extra));
        let finish = in_time(&trial);
        found = finish.or(found);
        finish.is_some()
    });
    let needed = more.map(|more| least.saturating_add(more));
    match (needed, within) {
        (Some(needed), _) if needed > budget => Err(Reason::OverBudget {
            budget,
            needed,
            finish: found,
        }),
        (_, Some(within)) => within,
        (_, None) if arrival.spec.best_effort => Err(Reason::OverBudget {
            budget,
            needed: least,
            finish: None,
        }),
        (_, None) => {
            trial.allow(of(&dear, &by_price(&dear, most)));
            Err(Reason::NoMoneySuffices {
                budget,
                needed: least,
                finish: finish(&trial),
                deadline,
            })
        }
    }
}

/// Returns whether a budget pays the next chunk of a holding from a source, and all else then.
pub(crate) fn pays<'a>(
    state: &'a State,
    source: SourceId,
    arrival: &'a Arrival,
) -> impl Fn(usize) -> bool + 'a {
    let is_bound = arrival.has_budget() && arrival.price(source, arrival.spec.chunk_size) > 0;
    let counts = counting(state);
    let spare = match is_bound {
        true => arrival.money_to_spare(&counts),
        false => None,
    };
    move |place| !is_bound || arrival.pays(source, place, spare, &counts)
}

/// Returns whether a budget pays a chunk that lies at a depot near the centre, read there or
/// from a source, and all else then.
pub(crate) fn pays_near<'a>(
    state: &'a State,
    source: SourceId,
    arrival: &'a Arrival,
) -> impl Fn(&Near, ChunkIndex) -> bool + 'a {
    let is_bound = arrival.has_budget() && arrival.price(source, arrival.spec.chunk_size) > 0;
    let counts = counting(state);
    let spare = match is_bound {
        true => arrival.money_to_spare(&counts),
        false => None,
    };
    move |near, chunk| !is_bound || arrival.pays_near(source, near, chunk, spare, &counts)
}

/// Returns whether a chunk may be left to another source that can give all that is left there.
/// With a budget, only if it costs no more there, or so much may come from there.
pub(crate) fn may_give_the_rest(
    _state: &State,
    arrival: &Arrival,
    chunk: ChunkIndex,
    source: SourceId,
    other: SourceId,
) -> bool {
    let bytes = arrival.chunk_bytes(chunk.get());
    !arrival.has_budget()
        || arrival.price(other, bytes) <= arrival.price(source, bytes)
        || arrival.extra(other) >= u64::from(arrival.open_at(other))
}

/// Returns whether a chunk with which another source is late may be read once more.
pub(crate) fn pays_twice(
    state: &State,
    source: SourceId,
    arrival: &Arrival,
    before: SourceId,
    bytes: Bytes,
) -> bool {
    !arrival.has_budget() || arrival.pays_twice(source, before, bytes, &counting(state))
}

/// Returns the likely further cost of a stage-in that takes its share of that.
pub(crate) fn cost_to_come(
    state: &State,
    arrival: &Arrival,
    inbound: &Inbound,
    from: impl Fn(Share) -> Timestamp,
) -> u64 {
    let is_priced = |arrival: &Arrival| {
        let purse = arrival.purse.as_ref();
        purse.is_some_and(|purse| !purse.priced.is_empty())
    };
    if !is_priced(arrival) {
        return 0;
    }
    let chunk = arrival.spec.chunk_size;
    let given = inbound.clone().give(arrival, from);
    let of = |(source, (bytes, _)): (&SourceId, &(Bytes, Option<Timestamp>))| {
        let lane = arrival.lanes.iter().find(|lane| lane.source == *source);
        let flying = lane.map_or(0, |lane| u64::from(lane.in_flight));
        let rest = (*bytes - chunk.times(flying)).get();
        let (whole, last) = (rest / chunk.get().max(1), rest % chunk.get().max(1));
        let last = match last {
            0 => 0,
            last => arrival.price(*source, Bytes::new(last)),
        };
        let whole = arrival.price(*source, chunk).saturating_mul(whole);
        whole.saturating_add(last)
    };
    let likely = given.iter().map(of).fold(0, u64::saturating_add);
    likely.max(arrival.rest_at_least(&counting(state)))
}

/// Returns the reason that the budget does not pay what is missing, if so.
pub(crate) fn budget_spent(state: &State, id: RequestId) -> Option<Reason> {
    let arrival = state.arrivals.requests.get(&id)?;
    let purse = arrival.purse.as_ref()?;
    let budget = purse.budget?;
    arrival
        .is_broke(&counting(state))
        .then_some(Reason::BudgetSpent {
            spent: purse.spent,
            budget,
        })
}

/// Returns the number of chunks for each source.
fn of<'a>(dear: &'a [Dear], extra: &'a [u64]) -> impl Fn(SourceId) -> u64 + 'a {
    move |source| {
        let mut pairs = dear.iter().zip(extra);
        let found = pairs.find(|(dear, _)| dear.source == source);
        found.map_or(0, |(_, extra)| *extra)
    }
}

/// Returns what each source may give for so much more money: the cheaper ones first, as much as
/// they give in time.
fn by_price(dear: &[Dear], money: u64) -> Vec<u64> {
    let mut left = money;
    let given = dear.iter().map(|dear| {
        let chunks = (left / dear.more.max(1)).min(dear.most);
        left -= dear.more.saturating_mul(chunks).min(left);
        chunks
    });
    given.collect()
}

/// Returns what each source gives for so much more money if all give at once, at full rate. The
/// cheaper ones get the rest of it.
fn by_rate(dear: &[Dear], money: u64) -> Vec<u64> {
    let pace = |dear: &Dear| u128::from(dear.rate.get()) * u128::from(dear.more);
    let all: u128 = dear.iter().map(pace).fold(0, u128::saturating_add);
    let share = |dear: &Dear| {
        let share = u128::from(money).saturating_mul(pace(dear)) / all.max(1);
        u64::try_from(share).unwrap_or(u64::MAX) / dear.more.max(1)
    };
    let mut given: Vec<u64> = dear.iter().map(share).collect();
    let paid = dear
        .iter()
        .zip(&given)
        .map(|(dear, chunks)| dear.more.saturating_mul(*chunks));
    let mut left = money.saturating_sub(paid.fold(0, u64::saturating_add));
    for (dear, chunks) in dear.iter().zip(&mut given) {
        if dear.rate > ByteRate::ZERO {
            let more = left / dear.more.max(1);
            *chunks = chunks.saturating_add(more);
            left -= dear.more.saturating_mul(more).min(left);
        }
    }
    given
}

/// Returns the least money that suffices, to a sixteenth of it, or if quick all of it; none if that
/// does not suffice.
fn least_money(most: u64, is_quick: bool, mut suffices: impl FnMut(u64) -> bool) -> Option<u64> {
    if !suffices(most) {
        return None;
    }
    if is_quick {
        return Some(most);
    }
    let (mut low, mut high) = (0, u64::BITS - most.leading_zeros());
    while low < high {
        let middle = u32::midpoint(low, high);
        if suffices(most.min(1 << middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    let top = 1u64.checked_shl(low).map_or(most, |top| top.min(most));
    let (mut low, mut high) = (top / 2, top);
    while high - low > (top / MONEY_SHARE).max(1) {
        let middle = u64::midpoint(low, high);
        if suffices(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dear(more: u64, rate: u64, most: u64) -> Dear {
        Dear {
            source: SourceId::new(1),
            more,
            rate: ByteRate::new(rate),
            most,
            may_be_back: false,
        }
    }

    #[test]
    fn the_cheaper_ones_give_first_what_they_can_in_time() {
        let dear = [dear(2, 10, 5), dear(7, 100, 50)];
        assert_eq!(by_price(&dear, 3), [1, 0]);
        assert_eq!(by_price(&dear, 24), [5, 2]);
        assert_eq!(by_price(&dear, 1000), [5, 50]);
    }

    #[test]
    fn where_all_hurry_each_spends_as_fast_as_it_gives() {
        assert_eq!(by_rate(&[dear(2, 10, 5), dear(2, 30, 5)], 80), [10, 30]);
        assert_eq!(by_rate(&[dear(3, 10, 5), dear(3, 10, 5)], 3), [1, 0]);
        assert_eq!(by_rate(&[dear(3, 0, 0)], 9), [0], "it gives nothing");
    }

    #[test]
    fn the_least_money_is_found_to_a_sixteenth() {
        for wanted in [0, 1, 2, 3, 100, 1000, 123_456, 1 << 40] {
            let found = least_money(1 << 41, false, |money| money >= wanted).unwrap();
            assert!(
                found >= wanted && found <= wanted + wanted / 8 + 1,
                "{wanted}: {found}"
            );
        }
        assert_eq!(least_money(9, false, |money| money >= 10), None);
        assert_eq!(least_money(0, false, |_| true), Some(0));
        assert_eq!(
            least_money(u64::MAX, false, |money| money == u64::MAX),
            Some(u64::MAX)
        );
    }

    proptest! {
        /// Checks that no division spends more than there is.
        #[test]
        fn no_more_is_divided_than_there_is(
            all in proptest::collection::vec((1u64..1000, 0u64..1000, 0u64..1000), 0..5),
            money in any::<u32>(),
        ) {
            let all: Vec<Dear> = all.into_iter().map(|(more, rate, most)| dear(more, rate, most)).collect();
            for given in [by_price(&all, money.into()), by_rate(&all, money.into())] {
                let cost: u64 = all.iter().zip(given).map(|(dear, chunks)| dear.more * chunks).sum();
                prop_assert!(cost <= money.into());
            }
        }
    }
}
