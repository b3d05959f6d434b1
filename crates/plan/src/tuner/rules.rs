//! Settings of a class of files by rule (storkcloud-2013 Algorithm 1).

use posthaste_types::Bytes;

use super::{Bounds, Class, PathFacts, Setting, Stock};

/// Most files asked for ahead: more fill a server's queue, not the path.
const PIPELINING_MAX: u64 = 100;
/// Most channels for large files, to be fair (lines 35 and 39).
const LARGE_CONCURRENCY_MAX: u64 = 2;

/// Returns the setting for `stock`, whose files count as `class`: `findOptimalParameters`
/// (storkcloud-2013 Algorithm 1, lines 20-42). Zero becomes one; pipelining differs from the paper
/// only in wording: no file is asked for ahead.
pub(super) fn setting(class: Class, stock: Stock, facts: &PathFacts, bounds: &Bounds) -> Setting {
    let (bdp, mean) = (facts.bdp(), stock.mean());
    let buffer = facts.buffer.max(Bytes::new(1));
    let ahead = bdp.pieces(mean);
    let streams = bdp.pieces(buffer).min(mean.pieces(buffer));
    let at_once = bdp.get() / mean.get();
    let (pipelining, parallelism, concurrency) = match class {
        Class::Small => (ahead.saturating_sub(1), streams + 1, at_once),
        Class::Middle => (ahead, streams + 1, at_once),
        Class::Large => (ahead + 1, streams + 2, LARGE_CONCURRENCY_MAX),
        Class::Huge => (ahead.saturating_sub(1), streams + 2, LARGE_CONCURRENCY_MAX),
    };
    bounds.clamp(Setting::new(
        narrow(concurrency.min(stock.files)),
        narrow(parallelism),
        narrow(pipelining.min(PIPELINING_MAX)),
    ))
}

pub(super) fn narrow(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use posthaste_types::ByteRate;

    const BOUNDS: Bounds = Bounds {
        concurrency_min: 1,
        concurrency_max: 10,
        parallelism_max: 64,
        pipelining_max: 100,
    };

    /// Returns the hosts of storkcloud-2013 Table 1.
    fn xsede() -> PathFacts {
        PathFacts {
            rtt: Duration::from_millis(60),
            bandwidth: Some(ByteRate::new(1_250_000_000)),
            buffer: Bytes::new(32_000_000),
            cores: 8,
            piece: Bytes::ZERO,
        }
    }

    fn loni() -> PathFacts {
        PathFacts {
            rtt: Duration::from_millis(10),
            buffer: Bytes::new(16_000_000),
            ..xsede()
        }
    }

    fn of(facts: &PathFacts, files: u64, mean: u64) -> (Class, Setting) {
        let class = facts.class(Bytes::new(mean));
        let stock = Stock {
            files,
            bytes: Bytes::new(files * mean),
        };
        (class, setting(class, stock, facts, &BOUNDS))
    }

    #[test]
    fn the_hosts_of_table_1_get_the_settings_of_algorithm_1() {
        assert_eq!(xsede().bdp(), Bytes::new(75_000_000));
        // Their data sets: 10,000 x 1 MB, 100 x 100 MB, 10 x 10 GB (section 3.1).
        let one_mega = (Class::Small, Setting::new(10, 2, 74));
        assert_eq!(of(&xsede(), 10_000, 1_000_000), one_mega);
        let hundred_mega = (Class::Large, Setting::new(2, 5, 2));
        assert_eq!(of(&xsede(), 100, 100_000_000), hundred_mega);
        let ten_giga = (Class::Huge, Setting::new(2, 5, 1));
        assert_eq!(of(&xsede(), 10, 10_000_000_000), ten_giga);
        let middle = (Class::Middle, Setting::new(3, 2, 4));
        assert_eq!(of(&xsede(), 100, 20_000_000), middle);
        assert_eq!(loni().bdp(), Bytes::new(12_500_000));
        let one_mega = (Class::Small, Setting::new(10, 2, 12));
        assert_eq!(of(&loni(), 10_000, 1_000_000), one_mega);
        let one_giga = (Class::Huge, Setting::new(2, 3, 1));
        assert_eq!(of(&loni(), 10, 1_000_000_000), one_giga);
    }

    #[test]
    fn a_single_file_has_one_channel() {
        assert_eq!(of(&xsede(), 1, 10_000_000_000).1.concurrency, 1);
        assert_eq!(of(&xsede(), 1, 1).1, Setting::new(1, 2, 100));
    }
}
