//! Opening setting for a path without history.
//!
//! A stream begins with ten segments and doubles each round trip (RFC 6928, RFC 5681), so `n`
//! streams carry `n x 14,600 x 2^r` bytes in round trip `r`. To fill the path after three round
//! trips it takes `n = BDP / 116,800`. That is 11 streams at 10 ms and 1 Gbit/s, the assumed
//! bandwidth of an unknown path, and 64 at 60 ms. A single stream would take ten round trips there,
//! most of a transfer of seconds, which is over before any search ends. So the opening has this
//! many streams, but
//!
//! - at least 16, as 8 files of 2 streams, because that is the best modest start on measured paths;
//! - at most 64, because more look like an attack;
//! - at most one for each 256 KiB;
//! - for files that travel in pieces, at most one for each four pieces: idle time during the last
//!   pieces is then short beside the rest.
//!
//! Files smaller than 256 KiB with a request each are different: a stream waits a round trip for
//! each. So as many streams are needed as fill the path with whole files, and half as many more. If
//! a server can't serve that, the bounds say so.
//!
//! Each file has 2 streams as long as there are enough files, then more. It has 1 if files are too
//! small to be split, or if there are as many of them as streams.
//!
//! Near paths (under 2 ms) are different: slow start is over before it matters, and every stream
//! costs a processor. They get one file for each processor. Large files get two streams for each
//! processor in all, at least 4: at the far end usually a single thread serves a stream.

use core::time::Duration;
use posthaste_types::Bytes;

use super::super::{Bounds, Class, PathFacts, Reason, Setting, Stocks};

/// Round trip under which slow start does not matter.
const NEAR: Duration = Duration::from_millis(2);
/// Fewest streams for large files on a near path.
const NEAR_STREAMS_MIN: u64 = 4;
/// Bytes a stream sends in its fourth round trip: 10 segments of 1,460 bytes, doubled 3 times.
const STREAM_IN_FOURTH: u64 = 10 * 1460 * 8;
/// Fewest streams of an opening where the path is not near.
const STREAMS_MIN: u64 = 16;
/// Most streams of an opening: servers and firewalls take more for an attack.
const STREAMS_MAX: u64 = 64;
/// Fewest bytes of a stream: with less it ends before it is fast.
const STREAM_BYTES_MIN: Bytes = Bytes::new(256 << 10);
/// Pieces of large files for each stream.
const PIECES_A_STREAM: u64 = 4;
/// Streams per file where there are enough files.
const STREAMS_A_FILE: u64 = 2;
/// Files asked for ahead on a channel.
const AHEAD: u16 = 8;

/// Returns the opening and its reason.
pub(super) fn open(facts: &PathFacts, bounds: &Bounds, stocks: &Stocks) -> (Setting, Reason) {
    let total = stocks.total();
    let files = total.files.max(1);
    if facts.rtt < NEAR {
        let cores = u64::from(facts.cores.max(1));
        let concurrency = files
            .min(cores)
            .min(u64::from(bounds.concurrency_max.max(1)));
        let streams = (2 * cores).max(NEAR_STREAMS_MIN);
        let pieces_a_file = total.mean().get() / STREAM_BYTES_MIN.get();
        let each = streams.div_ceil(concurrency).min(pieces_a_file.max(1));
        let setting = bounds.clamp(Setting::new(narrow(concurrency), narrow(each), AHEAD));
        let rtt = facts.rtt;
        return (setting, Reason::OpeningNear { rtt, setting });
    }
    let filling = facts.bdp().get().div_ceil(STREAM_IN_FOURTH);
    let streams = filling.clamp(STREAMS_MIN, STREAMS_MAX);
    let streams = streams.max(whole_files(facts, bounds, stocks));
    let streams = streams.min(carried(facts, stocks).max(1));
    let setting = lay_out(streams, AHEAD, facts, bounds, stocks);
    let reason = if filling > STREAMS_MIN {
        let rtt = facts.rtt;
        Reason::OpeningFar { rtt, setting }
    } else {
        Reason::OpeningUsual { setting }
    };
    (setting, reason)
}

/// Returns the streams that fill the path with small files, one request each, at most as many as
/// the ends support at once.
fn whole_files(facts: &PathFacts, bounds: &Bounds, stocks: &Stocks) -> u64 {
    let total = stocks.total();
    if total.files == 0 || total.mean() >= STREAM_BYTES_MIN {
        return 0;
    }
    let files = facts.bdp().pieces(total.mean());
    let files = files.saturating_add(files / 2);
    files.min(bounds.concurrency_max.into())
}

/// Returns the number of streams that have enough to carry.
fn carried(facts: &PathFacts, stocks: &Stocks) -> u64 {
    let of_class = |class| {
        let bytes = stocks.get(class).bytes;
        in_pieces(facts, stocks, class).unwrap_or_else(|| bytes.pieces(STREAM_BYTES_MIN))
    };
    Class::ALL.into_iter().map(of_class).sum()
}

/// Returns the number of streams that have enough to carry of files that travel in pieces; `None`
/// for a class that does not.
fn in_pieces(facts: &PathFacts, stocks: &Stocks, class: Class) -> Option<u64> {
    let stock = stocks.get(class);
    let each = STREAM_BYTES_MIN.max(facts.piece.times(PIECES_A_STREAM));
    (stock.mean() > facts.piece).then(|| stock.bytes.pieces(each))
}

/// Returns the most streams per file with which those for pieces have enough to carry.
fn each_max(facts: &PathFacts, stocks: &Stocks, concurrency: u64) -> u64 {
    let pieces = |class| in_pieces(facts, stocks, class);
    let pieces: u64 = Class::ALL.into_iter().filter_map(pieces).sum();
    if pieces == 0 {
        return u64::MAX;
    }
    (pieces / concurrency.max(1)).max(1)
}

/// Returns the setting at which the last transfer on the path ended, as far as these files allow:
/// the streams of one large file become files at once of many small ones.
pub(super) fn resume(
    history: Setting,
    facts: &PathFacts,
    bounds: &Bounds,
    stocks: &Stocks,
) -> Setting {
    let total = stocks.total();
    let is_split = total.mean() >= STREAM_BYTES_MIN.times(history.parallelism.into());
    let is_many = total.files >= u64::from(history.concurrency);
    if is_many && (is_split || history.parallelism == 1) {
        bounds.clamp(history)
    } else {
        let streams = history.streams().into();
        lay_out(streams, history.pipelining, facts, bounds, stocks)
    }
}

/// Lays this many streams out over these files: some per file, more if there are few files.
pub(super) fn lay_out(
    streams: u64,
    ahead: u16,
    facts: &PathFacts,
    bounds: &Bounds,
    stocks: &Stocks,
) -> Setting {
    let total = stocks.total();
    let pieces_of = |mean: Bytes| (mean.get() / STREAM_BYTES_MIN.get()).max(1);
    let unsplit = |class: &Class| pieces_of(stocks.get(*class).mean()) == 1;
    let unsplit = Class::ALL.into_iter().filter(unsplit);
    let unsplit: u64 = unsplit.map(|class| stocks.get(class).files).sum();
    let pieces_a_file = if unsplit >= streams {
        1
    } else {
        pieces_of(total.mean())
    };
    let files = total.files.min(u64::from(bounds.concurrency_max)).max(1);
    let concurrency = streams
        .div_ceil(pieces_a_file.min(STREAMS_A_FILE))
        .min(files);
    let each = streams.div_ceil(concurrency.max(1)).min(pieces_a_file);
    let each = each.min(each_max(facts, stocks, concurrency));
    bounds.clamp(Setting::new(narrow(concurrency), narrow(each), ahead))
}

fn narrow(count: u64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::ByteRate;

    const BOUNDS: Bounds = Bounds {
        concurrency_min: 1,
        concurrency_max: 64,
        parallelism_max: 64,
        pipelining_max: 64,
    };

    const FACTS: PathFacts = PathFacts {
        rtt: Duration::from_millis(60),
        bandwidth: None,
        buffer: Bytes::mebi(4),
        cores: 4,
        piece: Bytes::ZERO,
    };

    fn opening(rtt_ms: u64, gbit: Option<u64>, files: u64, mean: Bytes) -> Setting {
        let facts = PathFacts {
            rtt: Duration::from_millis(rtt_ms),
            bandwidth: gbit.map(|gbit| ByteRate::new(gbit * 125_000_000)),
            ..FACTS
        };
        let mut stocks = Stocks::default();
        (0..files).for_each(|_| stocks.add(Class::Large, mean));
        open(&facts, &BOUNDS, &stocks).0
    }

    #[test]
    fn a_far_path_begins_with_many_streams() {
        let large = Bytes::mebi(1024);
        assert_eq!(opening(60, None, 100, large), Setting::new(32, 2, 8));
        assert_eq!(opening(60, None, 1, large), Setting::new(1, 64, 8));
        assert_eq!(opening(60, None, 10, large), Setting::new(10, 7, 8));
        assert_eq!(opening(30, None, 100, large), Setting::new(17, 2, 8));
        assert_eq!(opening(200, Some(100), 100, large), Setting::new(32, 2, 8));
    }

    #[test]
    fn pieces_are_many_for_each_stream() {
        let facts = PathFacts {
            piece: Bytes::mebi(8),
            ..FACTS
        };
        let begun = |class, files, mean| {
            let mut stocks = Stocks::default();
            stocks.add_all(class, files, mean);
            let roomy = Bounds {
                concurrency_max: 256,
                ..BOUNDS
            };
            open(&facts, &roomy, &stocks).0
        };
        let one = begun(Class::Huge, 1, Bytes::mebi(1024));
        assert_eq!(one, Setting::new(1, 32, 8));
        let small = begun(Class::Small, 2000, Bytes::new(100 << 10));
        assert_eq!(small, Setting::new(111, 1, 8), "each waits for its answer");
        let tiny = begun(Class::Small, 1_000_000, Bytes::new(1 << 10));
        assert_eq!(tiny, Setting::new(256, 1, 8));
        let some = begun(Class::Huge, 20, Bytes::mebi(32));
        assert_eq!(some, Setting::new(10, 2, 8));
    }

    #[test]
    fn small_files_are_not_split() {
        assert_eq!(
            opening(60, None, 2000, Bytes::new(100 << 10)),
            Setting::new(64, 1, 8)
        );
    }

    #[test]
    fn many_small_files_among_large_ones_have_all_the_streams() {
        let mut stocks = Stocks::default();
        stocks.add_all(Class::Small, 1000, Bytes::new(100 << 10));
        stocks.add_all(Class::Huge, 2, Bytes::mebi(200));
        let (setting, _) = open(&FACTS, &BOUNDS, &stocks);
        assert_eq!(setting, Setting::new(64, 1, 8));
    }

    #[test]
    fn streams_have_something_to_carry() {
        assert_eq!(opening(60, None, 1, Bytes::mebi(2)), Setting::new(1, 8, 8));
        assert_eq!(opening(60, None, 1, Bytes::new(10)), Setting::new(1, 1, 8));
        assert_eq!(opening(60, None, 0, Bytes::ZERO), Setting::new(1, 1, 8));
    }

    #[test]
    fn a_middling_path_begins_where_most_do_well() {
        assert_eq!(
            opening(5, None, 100, Bytes::mebi(64)),
            Setting::new(8, 2, 8)
        );
        assert_eq!(opening(5, None, 4, Bytes::mebi(64)), Setting::new(4, 4, 8));
    }

    #[test]
    fn what_was_learnt_on_other_files_is_laid_out_anew() {
        let resumed = |history, files: u64, mean: Bytes| {
            let mut stocks = Stocks::default();
            (0..files).for_each(|_| stocks.add(Class::Large, mean));
            resume(history, &FACTS, &BOUNDS, &stocks)
        };
        let (one_file, small_files) = (Setting::new(1, 32, 8), Setting::new(32, 1, 16));
        let small = Bytes::new(100 << 10);
        assert_eq!(resumed(one_file, 1, Bytes::mebi(1024)), one_file);
        assert_eq!(resumed(small_files, 2000, small), small_files);
        assert_eq!(resumed(one_file, 2000, small), Setting::new(32, 1, 8));
        let split = Setting::new(1, 32, 16);
        assert_eq!(resumed(small_files, 1, Bytes::mebi(1024)), split);
        assert_eq!(resumed(small_files, 0, Bytes::ZERO), Setting::new(1, 1, 16));
    }

    #[test]
    fn a_near_path_begins_with_a_file_a_processor() {
        assert_eq!(
            opening(1, None, 100, Bytes::mebi(64)),
            Setting::new(4, 2, 8)
        );
        assert_eq!(
            opening(0, Some(100), 2, Bytes::mebi(64)),
            Setting::new(2, 4, 8)
        );
        assert_eq!(
            opening(0, None, 100, Bytes::new(10 << 10)),
            Setting::new(4, 1, 8)
        );
    }
}
