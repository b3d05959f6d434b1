//! Remaining rate of a resource over time: piecewise constant, exact to the microsecond.

use alloc::{vec, vec::Vec};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

record! {
    /// Rate from this moment until the next piece begins.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Piece {
        from: Timestamp,
        rate: ByteRate,
    }
}

record! {
    /// Rate over time, for all time.
    ///
    /// Breakpoints rather than slots: requests take whole remainders, so a curve stays short. A
    /// deadline of seconds is as exact as one of days (Burchard, IEEE TKDE 2005, compares both).
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Curve {
        /// Pieces in order of time; the first begins with time, neighbours differ.
        pieces: Vec<Piece>,
    }
}

impl Curve {
    /// Returns a curve that has this rate forever.
    #[must_use]
    pub fn constant(rate: ByteRate) -> Self {
        Self {
            pieces: vec![Piece {
                from: Timestamp::default(),
                rate,
            }],
        }
    }

    /// Returns the curve that takes each step's rate from its moment on, and carries nothing before
    /// the first step.
    ///
    /// Steps must be in order of time. Of several steps at one moment the last counts.
    #[must_use]
    pub fn of_steps(steps: impl IntoIterator<Item = (Timestamp, ByteRate)>) -> Self {
        let mut curve = Self::constant(ByteRate::ZERO);
        for (from, rate) in steps {
            debug_assert!(curve.pieces.last().is_none_or(|last| last.from <= from));
            curve.pieces.pop_if(|last| last.from == from);
            if curve.pieces.last().is_none_or(|last| last.rate != rate) {
                curve.pieces.push(Piece { from, rate });
            }
        }
        curve
    }

    /// Returns the rate from this moment until [`Curve::next_change`].
    #[must_use]
    pub fn rate_at(&self, at: Timestamp) -> ByteRate {
        self.piece(self.place(at)).rate
    }

    /// Returns the first moment after `at` with another rate; none if the rate stays.
    #[must_use]
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        self.pieces.get(self.place(at) + 1).map(|piece| piece.from)
    }

    /// Returns the last moment before `at` at which the rate changed; the beginning of time if it
    /// never did.
    #[must_use]
    pub fn last_change(&self, at: Timestamp) -> Timestamp {
        self.piece(self.place_before(at)).from
    }

    /// Returns the rate just before this moment.
    #[must_use]
    pub fn rate_before(&self, at: Timestamp) -> ByteRate {
        self.piece(self.place_before(at)).rate
    }

    /// Returns the bytes carried between two moments.
    #[must_use]
    pub fn volume(&self, from: Timestamp, to: Timestamp) -> Bytes {
        let (mut at, mut sum) = (from, Bytes::ZERO);
        while at < to {
            let next = self.next_change(at).map_or(to, |next| next.min(to));
            sum += self.rate_at(at).volume(next.since(at));
            at = next;
        }
        sum
    }

    /// Sets the rate between `from` and `to` to zero.
    pub fn close(&mut self, from: Timestamp, to: Timestamp) {
        self.change(from, to, |_| ByteRate::ZERO);
    }

    /// Takes `rate` from `from` to `to`; all there is where less is left.
    pub fn take(&mut self, from: Timestamp, to: Timestamp, rate: ByteRate) {
        self.change(from, to, |before| {
            ByteRate::new(before.get().saturating_sub(rate.get()))
        });
    }

    /// Gives back a rate that was taken.
    pub fn give_back(&mut self, from: Timestamp, to: Timestamp, rate: ByteRate) {
        self.change(from, to, |before| {
            ByteRate::new(before.get().saturating_add(rate.get()))
        });
    }

    /// Raises the curve to at least `floor` everywhere.
    pub fn raise(&mut self, floor: &Self) {
        for place in 0..floor.pieces.len() {
            let least = floor.piece(place).rate;
            let from = floor.piece(place).from;
            let next = floor.pieces.get(place + 1);
            let to = next.map_or(Timestamp::from_micros(u64::MAX), |next| next.from);
            self.change(from, to, |before| before.max(least));
        }
    }

    fn change(&mut self, from: Timestamp, to: Timestamp, new: impl Fn(ByteRate) -> ByteRate) {
        if from >= to {
            return;
        }
        self.split(from);
        self.split(to);
        for piece in &mut self.pieces {
            if piece.from >= from && piece.from < to {
                piece.rate = new(piece.rate);
            }
        }
        self.pieces
            .dedup_by(|later, earlier| later.rate == earlier.rate);
    }

    /// Starts a piece at `at`.
    fn split(&mut self, at: Timestamp) {
        let place = self.place(at);
        let Piece { from, rate } = self.piece(place);
        if from != at {
            self.pieces
                .insert((place + 1).min(self.pieces.len()), Piece { from: at, rate });
        }
    }

    /// Returns a piece; a curve that was read from outside may have none.
    fn piece(&self, place: usize) -> Piece {
        self.pieces.get(place).copied().unwrap_or(Piece {
            from: Timestamp::default(),
            rate: ByteRate::ZERO,
        })
    }

    fn place(&self, at: Timestamp) -> usize {
        self.pieces
            .partition_point(|piece| piece.from <= at)
            .saturating_sub(1)
    }

    fn place_before(&self, at: Timestamp) -> usize {
        self.pieces
            .partition_point(|piece| piece.from < at)
            .saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    #[test]
    fn what_was_closed_carries_nothing_and_the_rest_goes_on() {
        let mut curve = Curve::constant(ByteRate::new(10));
        curve.close(at(5), at(8));
        assert_eq!(curve.volume(at(0), at(10)), Bytes::new(70));
        assert_eq!(curve.next_change(at(0)), Some(at(5)));
        assert_eq!(curve.rate_at(at(5)), ByteRate::ZERO);
        assert_eq!(curve.rate_before(at(5)), ByteRate::new(10));
        assert_eq!(curve.last_change(at(8)), at(5));
        assert_eq!(curve.next_change(at(8)), None);
    }

    #[test]
    fn a_curve_is_what_its_steps_say() {
        let steps = |steps: &[(u64, u64)]| {
            let steps = steps.iter();
            Curve::of_steps(steps.map(|(from, rate)| (at(*from), ByteRate::new(*rate))))
        };
        let mut curve = Curve::constant(ByteRate::ZERO);
        curve.give_back(at(3), at(8), ByteRate::new(10));
        assert_eq!(steps(&[(3, 10), (8, 0)]), curve);
        assert_eq!(steps(&[(3, 7), (3, 10), (5, 10), (8, 4), (8, 0)]), curve);
        assert_eq!(steps(&[(0, 10)]), Curve::constant(ByteRate::new(10)));
        assert_eq!(steps(&[]), Curve::constant(ByteRate::ZERO));
    }

    proptest! {
        /// Checks against a model of one second a place: the curve never gains rate, and a rate
        /// given back is there again.
        #[test]
        fn a_curve_is_a_row_of_seconds(
            capacity in 1u64..100,
            moves in proptest::collection::vec((0u64..40, 0u64..40, 0u64..60), 0..20),
        ) {
            let mut curve = Curve::constant(ByteRate::new(capacity));
            let mut model = [capacity; 40];
            let mut taken = Vec::new();
            for (from, to, rate) in moves {
                let least = (from..to).map(|second| model[usize::try_from(second).unwrap()]).min();
                if least.is_some_and(|least| least >= rate) {
                    curve.take(at(from), at(to), ByteRate::new(rate));
                    (from..to).for_each(|second| model[usize::try_from(second).unwrap()] -= rate);
                    taken.push((from, to, rate));
                }
                for (second, rate) in (0u64..).zip(model) {
                    prop_assert_eq!(curve.rate_at(at(second)).get(), rate);
                }
                let all: u64 = model.iter().sum();
                prop_assert_eq!(curve.volume(at(0), at(40)), Bytes::new(all));
            }
            for (from, to, rate) in taken {
                curve.give_back(at(from), at(to), ByteRate::new(rate));
            }
            prop_assert_eq!(curve, Curve::constant(ByteRate::new(capacity)));
        }
    }
}
