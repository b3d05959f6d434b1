//! How many segments of a file the next request brings.
//!
//! Each request waits for an answer, so few are better; streams end together if the last ones are
//! small. So each takes a share of what is left (guided self-scheduling, Polychronopoulos and Kuck
//! 1987).

/// What is left is cut so that each stream makes so many more requests at least.
const REQUESTS_LEFT_MIN: u64 = 4;

/// Segments of the next request, of `left` that `streams` share; `most` is what a request may bring.
#[must_use]
pub fn segments(left: u64, streams: u64, most: u64) -> u64 {
    let share = left / streams.max(1).saturating_mul(REQUESTS_LEFT_MIN);
    share.clamp(1, most.max(1))
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
    fn there_is_always_one() {
        assert_eq!(segments(1, 0, 0), 1);
        assert_eq!(segments(1000, 64, 1), 1);
    }
}
