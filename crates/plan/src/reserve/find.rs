//! Search for the place of a request in free capacity.
//!
//! All functions get the free pieces of a path in order of time, without gaps. Amounts are whole
//! and moments are microseconds, so "earliest" is exact: rounding never takes a moment or a byte
//! that is not there.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Timestamp};

use super::{Amount, Piece};

/// Returns the shortest time in which `bytes` pass at `rate`, rounded up; none at rate zero.
fn time_for(rate: ByteRate, bytes: Bytes) -> Option<Duration> {
    if rate == ByteRate::ZERO {
        return None;
    }
    let micros = (u128::from(bytes.get()) * 1_000_000).div_ceil(u128::from(rate.get()));
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// Returns the largest amount that is free all the time.
pub(super) fn least(free: &[Piece]) -> Amount {
    free.iter()
        .map(|piece| piece.amount)
        .min()
        .unwrap_or_default()
}

/// Returns the earliest start from which `amount` is free for `span`.
pub(super) fn earliest_start(free: &[Piece], amount: Amount, span: Duration) -> Option<Timestamp> {
    runs(free, amount)
        .find(|(from, to)| to.since(*from) >= span)
        .map(|(from, _)| from)
}

/// Iterates over the longest stretches in which at least `amount` is free, in order.
fn runs(free: &[Piece], amount: Amount) -> impl Iterator<Item = (Timestamp, Timestamp)> {
    let mut pieces = free.iter().peekable();
    core::iter::from_fn(move || {
        let first = pieces.find(|piece| piece.amount >= amount)?;
        let mut to = first.to;
        while let Some(next) = pieces.next_if(|piece| piece.amount >= amount) {
            to = next.to;
        }
        Some((first.from, to))
    })
}

/// Bytes to place between two limits on their rate.
#[derive(Clone, Copy)]
pub(super) struct Volume {
    pub bytes: Bytes,
    pub least: ByteRate,
    pub most: ByteRate,
}

impl Volume {
    /// Returns the rate used where this much is free.
    fn rate(&self, free: Amount) -> ByteRate {
        let rate = free.rate().min(self.most);
        if rate < self.least {
            ByteRate::ZERO
        } else {
            rate
        }
    }

    /// Places the bytes as early as possible, with all capacity free at each moment. Taking
    /// everything from the first moment on leaves the least for any later one, so nothing finishes
    /// earlier.
    pub(super) fn early(&self, free: &[Piece]) -> Option<Vec<Piece>> {
        let mut made = Vec::new();
        let mut left = self.bytes;
        for piece in free {
            let rate = self.rate(piece.amount);
            let span = piece.to.since(piece.from);
            let end = match time_for(rate, left) {
                Some(needed) if needed <= span => piece.from + needed,
                Some(_) => piece.to,
                None => continue,
            };
            push(
                &mut made,
                Piece {
                    from: piece.from,
                    to: end,
                    amount: Amount::of_link(rate),
                },
            );
            left -= rate.volume(end.since(piece.from));
            if left == Bytes::ZERO {
                return Some(made);
            }
        }
        None
    }

    /// Places the bytes as late as possible, by the same rule backwards.
    pub(super) fn late(&self, free: &[Piece]) -> Option<Vec<Piece>> {
        let mut made = Vec::new();
        let mut left = self.bytes;
        for piece in free.iter().rev() {
            let rate = self.rate(piece.amount);
            let span = piece.to.since(piece.from);
            let from = match time_for(rate, left) {
                Some(needed) if needed <= span => piece.to - needed,
                Some(_) => piece.from,
                None => continue,
            };
            made.push(Piece {
                from,
                to: piece.to,
                amount: Amount::of_link(rate),
            });
            left -= rate.volume(piece.to.since(from));
            if left == Bytes::ZERO {
                let mut in_order = Vec::new();
                made.iter()
                    .rev()
                    .for_each(|piece| push(&mut in_order, *piece));
                return Some(in_order);
            }
        }
        None
    }

    /// Places the bytes at one rate for as short a time as possible, and the earliest of those.
    /// Only a rate that is free somewhere, or the highest wanted, can be best: between two such
    /// levels the faster one fits wherever the slower does. Each level looks at all pieces.
    pub(super) fn constant(&self, free: &[Piece]) -> Option<Vec<Piece>> {
        let fits = |rate: ByteRate| {
            let needed = time_for(rate, self.bytes)?;
            let from = earliest_start(free, Amount::of_link(rate), needed)?;
            Some(alloc::vec![Piece {
                from,
                to: from + needed,
                amount: Amount::of_link(rate)
            }])
        };
        self.levels(free).into_iter().rev().find_map(fits)
    }

    /// Returns the earliest finish at a constant rate.
    pub(super) fn constant_early(&self, free: &[Piece]) -> Option<Timestamp> {
        let end = |rate: ByteRate| {
            let needed = time_for(rate, self.bytes)?;
            Some(earliest_start(free, Amount::of_link(rate), needed)? + needed)
        };
        self.levels(free).into_iter().filter_map(end).min()
    }

    /// Returns the rates worth a try, in order.
    fn levels(&self, free: &[Piece]) -> Vec<ByteRate> {
        let rates = free.iter().map(|piece| self.rate(piece.amount));
        let mut levels: Vec<ByteRate> = rates.filter(|rate| *rate > ByteRate::ZERO).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// Returns the bytes that pass when each moment gives all it has.
    pub(super) fn room(&self, free: &[Piece]) -> Bytes {
        let volume = |piece: &Piece| self.rate(piece.amount).volume(piece.to.since(piece.from));
        free.iter().map(volume).sum()
    }

    /// Returns the bytes that pass at one rate all the time.
    pub(super) fn constant_room(&self, free: &[Piece]) -> Bytes {
        let longest = |rate: ByteRate| {
            let spans = runs(free, Amount::of_link(rate)).map(|(from, to)| to.since(from));
            spans.max().map(|span| rate.volume(span))
        };
        self.levels(free)
            .into_iter()
            .filter_map(longest)
            .max()
            .unwrap_or_default()
    }
}

/// Appends a piece, merged with the last one where it continues that.
pub(super) fn push(pieces: &mut Vec<Piece>, piece: Piece) {
    match pieces.last_mut() {
        Some(last) if last.to == piece.from && last.amount == piece.amount => last.to = piece.to,
        _ => pieces.push(piece),
    }
}
