//! Division of objects into segments.

/// Largest object that travels in one request; larger ones travel in segments of this size or more.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 8 << 20;

/// Size up to which segments grow with the object while their number allows it: fewer requests, and
/// still little to send again after a crash.
const SEGMENT_BYTES_COMFORTABLE: u64 = 16 << 20;

/// Limits of a store.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Most segments of one object.
    pub segments_max: u64,
    /// Segments of an object of unknown length: steps of so many segments of so many MiB. They are
    /// small at first, since most such objects are small and several must be in memory at once.
    /// Their number is `segments_max`; two of the largest must fit in memory.
    pub growth: &'static [(u64, u64)],
}

/// Division of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    Even { size: u64, segment: u64 },
    Growing(&'static Limits),
}

impl Cut {
    /// Returns the division of an object of `size` bytes.
    pub(crate) fn even(size: u64, limits: &Limits) -> Self {
        const MEBI: u64 = 1 << 20;
        let comfortable = (size / 256).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_COMFORTABLE);
        let segment = comfortable
            .max(size.div_ceil(limits.segments_max))
            .next_multiple_of(MEBI);
        Self::Even { size, segment }
    }

    /// Returns the start of segment `index`.
    pub(crate) fn start(self, index: u64) -> u64 {
        match self {
            Self::Even { segment, .. } => index.saturating_mul(segment),
            Self::Growing(limits) => {
                let mut left = index;
                let steps = limits.growth.iter().map(|(count, mebi)| {
                    let taken = left.min(*count);
                    left -= taken;
                    taken * (mebi << 20)
                });
                let (all, last) = (steps.sum::<u64>(), limits.growth.last());
                all + left * last.map_or(0, |(_, mebi)| mebi << 20)
            }
        }
    }

    pub(crate) fn segment(self) -> u64 {
        match self {
            Self::Even { segment, .. } => segment,
            Self::Growing(limits) => limits.growth.first().map_or(1, |(_, mebi)| mebi << 20),
        }
    }

    /// Returns whether segment `index` may be `len` bytes long.
    pub(crate) fn allows(self, index: u64, len: u64) -> bool {
        let (start, next) = (self.start(index), self.start(index.saturating_add(1)));
        match self {
            Self::Even { size, .. } => len > 0 && len == size.min(next).saturating_sub(start),
            // Only the last is shorter, and which one is the last is unknown here.
            Self::Growing(_) => len > 0 && len <= next - start,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        segments_max: 10_000,
        growth: &[(1_000, 16), (2_000, 32), (7_000, 48)],
    };

    #[test]
    fn any_object_fits_into_the_segments_a_store_takes() {
        for size in [8 << 20, 100 << 20, 2 << 30, 1 << 40, 5 << 40] {
            let segment = Cut::even(size, &LIMITS).segment();
            assert!(
                size.div_ceil(segment) <= LIMITS.segments_max,
                "{size} in {segment}"
            );
            assert!(segment >= SEGMENT_BYTES_MIN);
        }
    }

    #[test]
    fn segments_of_an_unknown_length_grow_without_gaps() {
        let cut = Cut::Growing(&LIMITS);
        for (index, start_mebi) in [(0, 0), (1, 16), (1_000, 16_000), (1_001, 16_032)] {
            assert_eq!(cut.start(index), start_mebi << 20, "segment {index}");
        }
        let segments = 0..LIMITS.segments_max + 5;
        let lens = segments.map(|index| cut.start(index + 1) - cut.start(index));
        assert!(lens.clone().is_sorted() && lens.clone().min() == Some(cut.segment()));
        assert!(cut.start(LIMITS.segments_max) > 400 << 30);
        assert!(cut.allows(0, 16 << 20) && cut.allows(7, 1) && !cut.allows(7, 17 << 20));
        let even = Cut::Even {
            size: 20,
            segment: 8,
        };
        assert!(even.allows(1, 8) && even.allows(2, 4) && !even.allows(2, 8) && !even.allows(3, 0));
    }
}
