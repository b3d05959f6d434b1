//! Orders bytes that came over several connections, in bounded memory.
//!
//! Offsets on each connection only grow, so the next missing bytes are always first on one of them.
//! They are accepted however much is held, and later bytes only while there is space. Nothing is
//! accepted while the reader of the stream is behind. So no connection waits for ever, and a slow
//! reader holds back the sender through TCP.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
};

use super::frame::nonsense;

/// Most bytes held for one direction of one stream. After a lost packet its connection is a round
/// trip or two behind, and bytes from the others wait here. At 60 ms and 1 Gbit/s that is 7.5 MB
/// for each.
pub(super) const WINDOW_BYTES_MAX: usize = 16 << 20;
/// Most ordered bytes not yet written: more only shows that the reader is slow.
const READY_BYTES_MAX: usize = 1 << 20;
/// Cost of a frame beside its load, so that frames of a byte each can't cost more than they count.
const FRAME_COST_BYTES: usize = 256;

fn cost(length: usize) -> usize {
    length + FRAME_COST_BYTES
}

/// Incoming direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Ordered loads to be written.
    ready: VecDeque<Vec<u8>>,
    ready_bytes: usize,
    /// Loads behind a gap, by offset.
    apart: BTreeMap<u64, Vec<u8>>,
    /// Offset of the first gap.
    reached: u64,
    /// Cost of the loads that were accepted and not yet written.
    held_bytes: usize,
    total: Option<u64>,
}

impl Order {
    /// Accepts a frame if there is space for it; the caller then calls [`Self::put`].
    pub(super) fn admit(&mut self, offset: u64, length: usize) -> bool {
        let is_next = offset <= self.reached;
        let has_room = self.held_bytes + cost(length) <= WINDOW_BYTES_MAX;
        let may = self.ready_bytes <= READY_BYTES_MAX && (is_next || has_room);
        if may {
            self.held_bytes += cost(length);
        }
        may
    }

    /// Adds an accepted load.
    ///
    /// # Errors
    /// If some of it was already there, or lies behind the end.
    pub(super) fn put(&mut self, offset: u64, load: Vec<u8>) -> io::Result<()> {
        let end = offset + load.len() as u64;
        let before = self.apart.range(..=offset).next_back();
        let reached = before.map_or(0, |(at, load)| at + load.len() as u64);
        let next = self.apart.range(offset..).next();
        let is_apart = offset >= self.reached.max(reached) && next.is_none_or(|(&at, _)| end <= at);
        if !is_apart {
            return Err(nonsense("bytes of the stream came twice"));
        }
        if self.total.is_some_and(|total| end > total) {
            return Err(nonsense("bytes came from behind the stream's end"));
        }
        self.apart.insert(offset, load);
        while let Some(load) = self.apart.remove(&self.reached) {
            self.reached += load.len() as u64;
            self.ready_bytes += load.len();
            self.ready.push_back(load);
        }
        Ok(())
    }

    /// Returns the next load to be written, if it is here.
    pub(super) fn next(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// Records that a load was written.
    pub(super) fn wrote(&mut self, length: usize) {
        self.ready_bytes -= length;
        self.held_bytes -= cost(length);
    }

    /// Sets the length of the stream.
    ///
    /// # Errors
    /// If another length was announced, or more bytes have come.
    pub(super) fn end(&mut self, total: u64) -> io::Result<()> {
        let last = self.apart.last_key_value();
        let most = last.map_or(self.reached, |(at, load)| at + load.len() as u64);
        if most > total || self.total.is_some_and(|known| known != total) {
            return Err(nonsense("the stream ends in two places"));
        }
        self.total = Some(total);
        Ok(())
    }

    /// Returns whether all bytes have come.
    pub(super) fn is_whole(&self) -> bool {
        self.total == Some(self.reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(order: &mut Order) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(load) = order.next() {
            order.wrote(load.len());
            all.extend(load);
        }
        all
    }

    #[test]
    fn what_comes_twice_or_from_behind_the_end_breaks_it() {
        let mut order = Order::default();
        let put = |order: &mut Order, offset, length| {
            assert!(order.admit(offset, length));
            order.put(offset, vec![0; length])
        };
        put(&mut order, 4, 4).unwrap();
        for (offset, length) in [(4, 1), (3, 2), (7, 1), (2, 10), (5, 2)] {
            assert!(
                put(&mut order, offset, length).is_err(),
                "{offset} {length}"
            );
        }
        put(&mut order, 0, 4).unwrap();
        assert!(put(&mut order, 0, 1).is_err());
        assert!(order.end(7).is_err());
        order.end(10).unwrap();
        assert!(order.end(11).is_err() && !order.is_whole());
        assert!(put(&mut order, 8, 3).is_err());
        put(&mut order, 8, 2).unwrap();
        assert!(order.is_whole());
        assert_eq!(written(&mut order).len(), 10);
    }

    #[test]
    fn what_is_held_is_bounded_and_what_is_missing_always_gets_in() {
        for length in [1, 32 << 10] {
            let mut order = Order::default();
            let mut count = 0;
            while order.admit((1 + count * length) as u64, length) {
                let offset = (1 + count * length) as u64;
                order.put(offset, vec![0; length]).unwrap();
                count += 1;
                assert!(count * cost(length) <= WINDOW_BYTES_MAX);
            }
            assert!(count * cost(length) > WINDOW_BYTES_MAX - cost(length));
            assert!(order.admit(0, 1));
            order.put(0, vec![0]).unwrap();
            assert_eq!(written(&mut order).len(), 1 + count * length);
            assert_eq!(order.held_bytes, 0);
        }
    }

    #[test]
    fn nothing_gets_in_while_the_reader_is_behind() {
        let (mut order, length) = (Order::default(), 32 << 10);
        let mut offset = 0;
        while order.admit(offset, length) {
            order.put(offset, vec![0; length]).unwrap();
            offset += length as u64;
            assert!(offset <= (READY_BYTES_MAX + length) as u64);
        }
        assert!(!order.admit(offset + 1, 1));
        written(&mut order);
        assert!(order.admit(offset, length));
    }

    proptest! {
        #[test]
        fn any_order_of_coming_gives_the_stream(lengths in proptest::collection::vec(1usize..50, 1..60), seed: u64) {
            let total: usize = lengths.iter().sum();
            let stream: Vec<u8> = (0..total).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let mut frames = Vec::new();
            let mut at = 0;
            for length in lengths {
                frames.push((at, stream[at..at + length].to_vec()));
                at += length;
            }
            let mut state = seed;
            for place in (1..frames.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                frames.swap(place, usize::try_from(state >> 33).unwrap() % (place + 1));
            }
            let mut order = Order::default();
            let mut came = Vec::new();
            for (offset, load) in frames {
                prop_assert!(order.admit(offset as u64, load.len()));
                order.put(offset as u64, load).unwrap();
                came.extend(written(&mut order));
            }
            order.end(total as u64).unwrap();
            prop_assert!(order.is_whole());
            prop_assert_eq!(came, stream);
            prop_assert_eq!(order.held_bytes, 0);
        }
    }
}
