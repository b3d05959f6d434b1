//! Runs a copy by its optimizer's choices, and reports the results to the optimizer.
//!
//! Meaning of the three numbers here (`docs/algorithms/tuner.md`): concurrency is lanes, each with
//! a file or a bundle of small files; parallelism is further streams for the segments of large
//! files, which any file may use; pipelining is small files a lane has under way at once.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_plan::tuner::{
    Bounds, Choice, Optimizer, PathFacts, Probe, Setting, Tuner, Urgency, optimizer,
};
use posthaste_types::{ByteRate, Bytes};
use tokio::time::timeout;

use super::{
    Notice, Place, Placed,
    board::{Board, Bundles},
    clock,
    lane::Shared,
    remote::whole_max,
};

/// Most streams of one file.
const PARALLELISM_MAX: u16 = 64;
/// Files of which the first choice should know, where they are found quickly.
const KNOWN_FILES: u64 = 64;
/// Wait of the first choice for files: less than connecting takes and, on far paths, less than the
/// round trips of the walk to the destination before its first file.
const KNOWN_WITHIN: Duration = Duration::from_millis(10);
const KNOWN_WITHIN_ROUND_TRIPS: u32 = 4;
/// Choices kept for explanations.
const DECISIONS_MAX: usize = 500;
/// Interval of checks within a period whether a class of files has run out.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Bytes that one stream can have in flight if the system does not tell: Linux's usual maximum.
const BUFFER_USUAL: Bytes = Bytes::mebi(4);
/// Assumed round-trip time to an end that nobody measured: a machine in the same hall.
const RTT_USUAL: Duration = Duration::from_micros(500);

/// Choice of the optimizer.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Time since the copy began.
    pub at: Duration,
    /// Rate of the period before; `None` for the first.
    pub rate: Option<ByteRate>,
    /// Setting from then on.
    pub setting: Setting,
    /// Reason, for people.
    pub reason: String,
}

/// Result of a path's tuning.
#[derive(Debug, Clone, Default)]
pub struct Tuned {
    /// Name of the path in histories; empty between local paths.
    pub path: String,
    /// Setting with which the next copy on this path should begin.
    pub best: Option<Setting>,
    /// Choices in order.
    pub decisions: Vec<Decision>,
}

/// An optimizer at work.
pub(super) struct Tuning {
    tuner: Tuner,
    bounds: Bounds,
    tuned: Tuned,
    /// Wait of the first choice for files.
    known_within: Duration,
}

/// End of a period.
enum Period {
    Over,
    Finished,
}

/// Chooses the optimizer and lays out the board.
pub(super) fn begin(shared: &Shared, placed: &[Placed]) -> (Tuning, Arc<Board>) {
    let sources = || placed.iter().map(|placed| &placed.source.place);
    let ends: Vec<&Place> = sources().chain([&shared.destination]).collect();
    let facts = PathFacts {
        rtt: round_trip(&ends),
        bandwidth: None,
        buffer: stream_buffer().unwrap_or(BUFFER_USUAL),
        cores: std::thread::available_parallelism()
            .map_or(2, |cores| u16::try_from(cores.get()).unwrap_or(u16::MAX)),
        piece: Bytes::new(shared.destination.endpoint.capabilities().piece_bytes_min),
    };
    let bounds = bounds(shared, &ends);
    let path = path_name(&ends);
    let history = shared.options.history.get(&path).copied();
    let tuner = optimizer(
        shared.options.method,
        facts,
        bounds,
        history,
        Urgency::Normal,
    );
    let bundling = ends
        .iter()
        .map(|end| {
            (
                end.endpoint.capabilities().bundle_bytes_max,
                whole_max(&*end.endpoint),
            )
        })
        .filter(|(bytes_max, _)| *bytes_max > 0)
        .max_by_key(|(bytes_max, _)| *bytes_max);
    let bundles = bundling.map_or_else(Bundles::default, |(bytes_max, whole_max)| Bundles {
        bytes_max: bytes_max.min(whole_max),
        file_bytes_max: whole_max,
    });
    let tuned = Tuned {
        path,
        ..Tuned::default()
    };
    let tuning = Tuning {
        tuner,
        bounds,
        tuned,
        known_within: KNOWN_WITHIN + facts.rtt * KNOWN_WITHIN_ROUND_TRIPS,
    };
    let board = Arc::new(Board::new(facts, bundles));
    (tuning, board)
}

fn round_trip(ends: &[&Place]) -> Duration {
    let measured = ends.iter().filter_map(|end| end.endpoint.round_trip());
    measured.max().unwrap_or(RTT_USUAL)
}

fn bounds(shared: &Shared, ends: &[&Place]) -> Bounds {
    let can = shared.destination.endpoint.capabilities();
    let splits = can.segments_in_any_order
        && ends
            .iter()
            .all(|end| end.endpoint.capabilities().ranges || !end.endpoint.capabilities().lists);
    let pipelining = ends
        .iter()
        .filter(|end| end.local.is_none())
        .map(|end| end.endpoint.capabilities().requests_ahead_max)
        .min();
    let allowed = streams_allowed(ends);
    let remote = ends.iter().filter(|end| end.local.is_none());
    let at_once = remote.map(|end| end.endpoint.capabilities().files_at_once_max);
    Bounds {
        concurrency_min: 1,
        concurrency_max: at_once.min().unwrap_or(PARALLELISM_MAX).min(allowed),
        parallelism_max: if splits {
            PARALLELISM_MAX.min(allowed)
        } else {
            1
        },
        pipelining_max: pipelining.unwrap_or(1).max(1),
    }
}

/// Returns the maximum of streams that the profiles of the ends allow: more would only wait for one
/// another.
fn streams_allowed(ends: &[&Place]) -> u16 {
    let caps = ends.iter().filter_map(|end| end.endpoint.limits());
    let allowed = caps.filter_map(|limits| limits.caps().connections_max);
    let allowed = allowed.min().map_or(u32::MAX, std::num::NonZeroU32::get);
    u16::try_from(allowed).unwrap_or(u16::MAX)
}

/// Returns the largest send buffer that the kernel gives a TCP stream by itself.
fn stream_buffer() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").ok()?;
    let most = text.split_whitespace().nth(2)?.parse().ok()?;
    Some(Bytes::new(most))
}

/// Returns `scheme://host` of both ends, which all copies on a path have in common.
fn path_name(ends: &[&Place]) -> String {
    let name = |place: &Place| {
        if place.local.is_some() {
            return "here".to_owned();
        }
        let shown = place.endpoint.show(b"");
        let host_ends = shown
            .match_indices('/')
            .nth(2)
            .map_or(shown.len(), |(at, _)| at);
        shown[..host_ends].to_owned()
    };
    let first = ends.first().map(|place| name(place)).unwrap_or_default();
    let last = ends.last().map(|place| name(place)).unwrap_or_default();
    format!("{first} to {last}")
}

impl Tuning {
    /// Returns the maximum number of lanes.
    pub(super) fn lanes(&self) -> u16 {
        self.bounds.concurrency_max
    }

    /// Runs until nothing is left to move.
    pub(super) async fn run(mut self, shared: &Shared, board: &Board) {
        let began = clock::now();
        while !board.is_known(KNOWN_FILES)
            && clock::now().saturating_duration_since(began) < self.known_within
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut choice = self.tuner.first(&board.open());
        let mut rate = None;
        loop {
            self.apply(shared, board, began, &choice, rate);
            match self.period(shared, board, &choice).await {
                (Period::Finished, probe) => {
                    // A copy that was over early still tells where the next should begin.
                    let open = board.open();
                    let _ = probe.map(|probe| self.tuner.on_probe(&probe, &open));
                    break;
                }
                (Period::Over, None) => {}
                (Period::Over, Some(probe)) => {
                    rate = Some(probe.rate());
                    choice = self.tuner.on_probe(&probe, &board.open());
                }
            }
        }
        self.tuned.best = self.tuner.best();
        shared.tuned(self.tuned);
    }

    fn apply(
        &mut self,
        shared: &Shared,
        board: &Board,
        began: Instant,
        choice: &Choice,
        rate: Option<ByteRate>,
    ) {
        let streams = choice
            .shares
            .iter()
            .map(|share| usize::from(share.channels) * usize::from(share.setting.parallelism));
        shared.streams.set(streams.sum::<usize>().max(1));
        board.set_shares(choice);
        let decision = Decision {
            at: clock::now().saturating_duration_since(began),
            rate,
            setting: choice.setting(),
            reason: choice.reason.to_string(),
        };
        (shared.options.on_notice)(&Notice::Tuned(&decision));
        if self.tuned.decisions.len() < DECISIONS_MAX {
            self.tuned.decisions.push(decision);
        }
    }

    /// Runs a period: first a span that is not measured, then one that is.
    async fn period(
        &self,
        shared: &Shared,
        board: &Board,
        choice: &Choice,
    ) -> (Period, Option<Probe>) {
        if let Period::Finished = Self::wait(board, choice.skip).await {
            return (Period::Finished, None);
        }
        let (started, before) = (clock::now(), shared.progress.figures().bytes);
        let ended = Self::wait(board, choice.probe).await;
        let after = shared.progress.figures().bytes;
        let probe = Probe {
            setting: choice.setting(),
            elapsed: clock::now().saturating_duration_since(started),
            bytes: Bytes::new(after.saturating_sub(before)),
            lost_permille: None,
        };
        (ended, Some(probe))
    }

    /// Waits for `span`, or until a class has run out while others wait, or everything is done.
    async fn wait(board: &Board, span: Duration) -> Period {
        let until = clock::now() + span;
        loop {
            if board.is_finished() {
                return Period::Finished;
            }
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() || board.is_share_done() {
                return Period::Over;
            }
            let _ = timeout(left.min(LOOK_EVERY), board.finished()).await;
        }
    }
}
