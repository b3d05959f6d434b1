//! Size of the next request: segments of a large file, or bytes of small ones.
//!
//! Each request waits for an answer, so few are better; streams end together if the last ones are
//! small. So each takes a share of the rest (guided self-scheduling, Polychronopoulos and Kuck
//! 1987). Streams that begin together must not wait for their answers together, so the first
//! bundles of small files differ in size.

/// Least number of further requests for each stream into which the rest is cut.
const REQUESTS_LEFT_MIN: u64 = 4;

/// Returns the segments of the next request, of `left` that `streams` share; `most` is the limit of
/// a request.
#[must_use]
pub fn segments(left: u64, streams: u64, most: u64) -> u64 {
    let share = left / streams.max(1).saturating_mul(REQUESTS_LEFT_MIN);
    share.clamp(1, most.max(1))
}

/// Number of sizes of the first bundles.
const FIRST_SIZES: u64 = 8;

/// Returns the bytes of the next bundle of small files, of `left` that `streams` share; `most` is
/// the limit of a request, `dealt` the number of earlier bundles.
#[must_use]
pub fn bundle_bytes(left: u64, streams: u64, most: u64, dealt: u64) -> u64 {
    let streams = streams.max(1);
    let share = most.min(left.div_ceil(streams));
    if dealt < streams {
        share.div_ceil(FIRST_SIZES) * (1 + dealt % FIRST_SIZES)
    } else {
        share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_become_small_towards_the_end() {
        let (mut left, mut sizes) = (1000, alloc::vec::Vec::new());
        while left > 0 {
            let run = segments(left, 8, 16);
            sizes.push(run);
            left -= run;
        }
        assert!(sizes.is_sorted_by(|before, after| before >= after));
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (16, 1));
        assert_eq!(sizes.iter().sum::<u64>(), 1000);
        assert!(sizes.len() < 200, "{} requests", sizes.len());
    }

    #[test]
    fn the_first_bundles_end_one_after_the_other() {
        let first: alloc::vec::Vec<u64> = (0..9)
            .map(|dealt| bundle_bytes(1 << 30, 9, 800, dealt))
            .collect();
        assert_eq!(first, [100, 200, 300, 400, 500, 600, 700, 800, 100]);
        assert_eq!(bundle_bytes(1 << 30, 9, 800, 9), 800);
        assert_eq!(bundle_bytes(90, 9, 800, 100), 10);
        assert_eq!(bundle_bytes(90, 0, 0, 0), 0);
    }

    #[test]
    fn there_is_always_one() {
        assert_eq!(segments(1, 0, 0), 1);
        assert_eq!(segments(1000, 64, 1), 1);
    }
}
