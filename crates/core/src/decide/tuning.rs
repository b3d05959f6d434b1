//! Tuning of the number of fragments of a request on their way to a depot at once
//! (`docs/algorithms/tuner.md`). Each depot has an optimizer, fed with what the books see the depot
//! store.

use core::time::Duration;
use posthaste_plan::tuner::{PathFacts, Stocks, Urgency};
use posthaste_types::Bytes;

use crate::state::{Request, State};

/// Assumed round trip to a depot, which the mind does not know: neither near nor far.
pub(crate) const RTT: Duration = Duration::from_millis(5);

/// Assumed most bytes in flight on a stream: Linux's usual maximum.
pub(crate) const BUFFER: Bytes = Bytes::mebi(4);

/// Assumed number of processors.
pub(crate) const CORES: u16 = 4;

/// Lowest choice of the default optimizer, if the window has room for so many. Depots share the
/// centre's uplink by streams, and a request with fewer waits for the slowest depot of each chunk.
/// The opening rule begins there.
pub(crate) const AT_ONCE_MIN: u16 = 8;

/// Fraction of the time left, as its divisor, below which slack means that a deadline is near.
const SLACK_THIN: u32 = 10;

/// Returns what the lane still has to send, as the optimizers count it.
pub(crate) fn stocks(_state: &State, request: &Request, lane: usize, facts: &PathFacts) -> Stocks {
    let fragment = fragment_size(request, lane);
    let bytes = if request.is_destination(lane) {
        request.replica.unsafe_bytes()
    } else {
        let fed = u64::from(request.fan_out().max(1));
        let share = Bytes::new(request.replica.missing_bytes().get() / fed);
        share.min(request.replica.room(lane))
    };
    let mut stocks = Stocks::default();
    stocks.add_all(facts.class(fragment), bytes.pieces(fragment), fragment);
    stocks
}

/// Returns a request's urgency: it is late when its slack is under a tenth of the time left.
pub(crate) fn urgency(state: &State, request: &Request) -> Urgency {
    if request.is_leftover {
        return Urgency::Background;
    }
    let deadline = request.aim();
    let left = deadline.since(state.now);
    let slack = request
        .finish
        .map_or(Duration::ZERO, |finish| deadline.since(finish.p90));
    if slack < left / SLACK_THIN {
        Urgency::Late
    } else {
        Urgency::Normal
    }
}

/// Returns the size of one send on a lane: a whole chunk, or a fragment of one.
pub(crate) fn fragment_size(request: &Request, lane: usize) -> Bytes {
    let chunk = request.spec.chunk_size;
    let size = if request.is_destination(lane) {
        chunk
    } else {
        request.spec.code.fragment_size(chunk)
    };
    size.max(Bytes::new(1))
}

pub(crate) fn narrow(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
