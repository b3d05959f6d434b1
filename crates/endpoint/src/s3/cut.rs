//! How objects are cut into segments.

/// Segments S3 takes for one object.
pub(super) const SEGMENTS_MAX: u64 = 10_000;

/// Segments grow with the object up to this size while their number allows it: fewer requests,
/// and still little to send again after a crash.
const SEGMENT_BYTES_COMFORTABLE: u64 = 16 << 20;

/// The segments of an object of unknown length: steps of so many segments of so many MiB. Small at
/// first, as most such objects are and several have to be in memory at once; 406 GiB in all, which
/// is what `SEGMENTS_MAX` segments reach when two of them fit in memory.
const GROWTH: [(u64, u64); 3] = [(1_000, 16), (2_000, 32), (7_000, 48)];

/// How an object is cut.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cut {
    Even { size: u64, segment: u64 },
    Growing,
}

impl Cut {
    /// Where segment `index` starts.
    pub(super) fn start(self, index: u64) -> u64 {
        match self {
            Self::Even { segment, .. } => index.saturating_mul(segment),
            Self::Growing => {
                let mut left = index;
                let steps = GROWTH.iter().map(|(count, mebi)| {
                    let taken = left.min(*count);
                    left -= taken;
                    taken * (mebi << 20)
                });
                steps.sum::<u64>() + left * (GROWTH[GROWTH.len() - 1].1 << 20)
            }
        }
    }

    pub(super) fn segment(self) -> u64 {
        match self {
            Self::Even { segment, .. } => segment,
            Self::Growing => GROWTH[0].1 << 20,
        }
    }

    /// Whether segment `index` may be `len` bytes long.
    pub(super) fn allows(self, index: u64, len: u64) -> bool {
        let (start, next) = (self.start(index), self.start(index.saturating_add(1)));
        match self {
            Self::Even { size, .. } => len > 0 && len == size.min(next).saturating_sub(start),
            // Only the last is shorter, and which one is the last is not known here.
            Self::Growing => len > 0 && len <= next - start,
        }
    }
}

/// How an object of `size` bytes is cut.
pub(super) fn segment_size_for(size: u64) -> u64 {
    const MEBI: u64 = 1 << 20;
    let comfortable = (size / 64).clamp(super::SEGMENT_BYTES_MIN, SEGMENT_BYTES_COMFORTABLE);
    comfortable
        .max(size.div_ceil(SEGMENTS_MAX))
        .next_multiple_of(MEBI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_object_fits_into_the_segments_s3_takes() {
        for size in [8 << 20, 100 << 20, 2 << 30, 1 << 40, 5 << 40] {
            let segment = segment_size_for(size);
            assert!(
                size.div_ceil(segment) <= SEGMENTS_MAX,
                "{size} in {segment}"
            );
            assert!(segment >= super::super::SEGMENT_BYTES_MIN);
        }
    }

    #[test]
    fn segments_of_an_unknown_length_grow_without_gaps() {
        let cut = Cut::Growing;
        assert_eq!(GROWTH.iter().map(|step| step.0).sum::<u64>(), SEGMENTS_MAX);
        for (index, start_mebi) in [(0, 0), (1, 16), (1_000, 16_000), (1_001, 16_032)] {
            assert_eq!(cut.start(index), start_mebi << 20, "segment {index}");
        }
        let lens = (0..SEGMENTS_MAX + 5).map(|index| cut.start(index + 1) - cut.start(index));
        assert!(lens.clone().is_sorted() && lens.clone().min() == Some(cut.segment()));
        assert!(cut.start(SEGMENTS_MAX) > 400 << 30);
        assert!(cut.allows(0, 16 << 20) && cut.allows(7, 1) && !cut.allows(7, 17 << 20));
        let even = Cut::Even {
            size: 20,
            segment: 8,
        };
        assert!(even.allows(1, 8) && even.allows(2, 4) && !even.allows(2, 8) && !even.allows(3, 0));
    }
}
