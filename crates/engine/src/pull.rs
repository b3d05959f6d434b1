//! Pull of a dataset: from every depot that holds some of it and from its source at once. It uses
//! the first k of k + m fragments or the chunk itself, verified, and gives files their final names
//! only when whole.
//!
//! `fetch` chooses among depots and fetches chunks; `place` knows the destination and puts them in
//! place. An earlier run's remains are found by digest alone. So a pull can be killed at any
//! moment, or run again after it was complete, without fetching twice.

mod fetch;
mod files;
mod holder;
mod place;
mod resume;

use std::{collections::BTreeSet, path::Path, pin::pin, sync::Arc, time::Duration};

use posthaste_endpoint::{Error, ErrorKind, Result, Unkept, relay::RelayClient};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, FragmentIndex};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::dataset::{FileEntry, Manifest};
use fetch::Fetcher;
pub use files::DepotFiles;
use place::Destination;
pub use place::{ExtrasUnkept, LeftOut};

/// Default memory for chunks on their way, in bytes.
const MEMORY_DEFAULT: Bytes = Bytes::mebi(128);
/// Maximum of chunks under way, whatever their size: enough to keep 64 lanes busy.
const CHUNKS_MAX: u64 = 64;
/// Interval and number of checks whether the last writes of a failed pull ended: 2 s in all, many
/// times what writing a chunk to a disk takes.
const SETTLE_CHECK: Duration = Duration::from_millis(5);
const SETTLE_CHECKS_MAX: u32 = 400;
/// Interval of asking holders what they hold by now: a dataset may be pulled while it is still
/// sent. The interval doubles as long as none holds more.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(120);
/// Interval of progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Depot that holds some of a dataset, or its source.
#[derive(Debug, Clone)]
pub struct Holder {
    /// Name for people.
    pub name: String,
    /// Client that reaches it, with the right to read.
    pub client: RelayClient,
    /// Fragments it is known to hold.
    pub held: BTreeSet<(ChunkIndex, FragmentIndex)>,
}

/// Everything needed to pull a dataset.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// Manifest of the dataset.
    pub manifest: Arc<Manifest>,
    /// Holders of the dataset.
    pub holders: Vec<Holder>,
}

/// Options of a pull.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// Memory for chunks on their way. At least one chunk is under way whatever this says.
    pub memory: Bytes,
    /// The dataset's files replace what is there under their names.
    pub overwrite: bool,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            memory: MEMORY_DEFAULT,
            overwrite: true,
        }
    }
}

/// Progress of one depot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderProgress {
    /// Its name.
    pub name: String,
    /// Bytes received from it.
    pub received: Bytes,
    /// Recent rate.
    pub rate: ByteRate,
    /// The pull gave the depot up.
    pub lost: bool,
}

/// Progress of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Verified bytes at the destination.
    pub bytes_done: u64,
    /// Bytes of the dataset.
    pub bytes_total: u64,
    /// Files that are whole and under their names.
    pub files_done: usize,
    /// Regular files of the dataset.
    pub files_total: usize,
    /// Each depot.
    pub holders: Vec<HolderProgress>,
}

/// Report of a pull.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PullReport {
    /// Bytes of the dataset at the destination, all of them verified.
    pub bytes: u64,
    /// Regular files at the destination.
    pub files: usize,
    /// Chunks that needed parity because data fragments were missing, damaged or out of reach.
    pub rebuilt_chunks: u64,
    /// Fragments that came with a wrong digest and were not used.
    pub corrupt_fragments: u64,
    /// Depots that no longer answered at the end.
    pub depots_lost: u64,
    /// Chunks that were at the destination already.
    pub skipped_chunks: u64,
    /// Counts of what files and directories are without, because the destination refuses to keep
    /// it.
    pub unkept: Unkept,
    /// Files that are missing because the destination refuses them.
    pub left_out: LeftOut,
    /// Counts of what arrived without its owner, its other names, or attributes.
    pub extras_unkept: ExtrasUnkept,
    /// Files that the dataset lacks, because they were left out when it was sent.
    pub not_sent: Vec<String>,
    /// Reason why temporary files could not be removed.
    pub unclean: Option<String>,
}

/// Pulls the dataset into `destination`, which is made if missing. It calls `progress` a few times
/// a second.
///
/// The pull never writes outside `destination`, whatever the manifest or links at the destination
/// say. Unfinished files lie in one hidden directory there, until the end. The mode of
/// `destination` itself is restored only if it was missing or empty. Single files, directories and
/// links that the destination refuses are left out and reported.
///
/// # Errors
/// At [`Locus::Destination`](posthaste_endpoint::Locus::Destination): [`ErrorKind::Full`],
/// [`ErrorKind::PermissionDenied`], [`ErrorKind::Conflict`] if something is in the way or another
/// pull is running there. [`ErrorKind::Unreachable`] (temporary) if too few fragments of a chunk
/// can be had. After each of them the same call continues where it was.
pub async fn pull(
    ticket: Ticket,
    destination: &Path,
    options: &PullOptions,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<PullReport> {
    let Ticket { manifest, holders } = ticket;
    let (root, list) = (destination.to_owned(), Arc::clone(&manifest));
    let overwrite = options.overwrite;
    let opened = spawn_blocking(move || Destination::open(&root, list, overwrite));
    let (place, there) = opened.await.map_err(|cause| ended(destination, cause))??;
    let chunks = u32::try_from(manifest.chunks.len()).unwrap_or(u32::MAX);
    let wanted: Vec<u32> = (0..chunks)
        .filter(|&chunk| !there.contains(chunk))
        .collect();
    let mut run = Run {
        fetcher: Arc::new(Fetcher::new(Arc::clone(&manifest), holders)),
        place: Arc::new(place),
        rates: Vec::new(),
        rated_at: Instant::now(),
        bytes_done: manifest.list.bytes
            - wanted
                .iter()
                .map(|&chunk| manifest.chunk_bytes(chunk) as u64)
                .sum::<u64>(),
        rebuilt: 0,
    };
    let skipped_chunks = u64::from(chunks) - wanted.len() as u64;
    let window = options.memory.get() / manifest.chunk_size.get().max(1);
    let window = usize::try_from(window.clamp(1, CHUNKS_MAX)).unwrap_or(1);
    if let Err(error) = run.chunks(wanted, window, destination, progress).await {
        run.settle().await;
        return Err(error);
    }
    let place = Arc::clone(&run.place);
    let finished = spawn_blocking(move || place.finish());
    let unclean = finished
        .await
        .map_err(|cause| ended(destination, cause))??;
    let left_out = run.place.left_out();
    let not_sent = manifest.list.left_out();
    progress(&run.progress());
    Ok(PullReport {
        bytes: manifest.list.bytes - not_sent.map(|file| file.size).sum::<u64>() - left_out.bytes,
        files: manifest.list.regular_files() - left_out.files,
        rebuilt_chunks: run.rebuilt,
        corrupt_fragments: run.fetcher.corrupt_fragments(),
        depots_lost: run
            .fetcher
            .holders()
            .iter()
            .filter(|holder| holder.is_silent())
            .count() as u64,
        skipped_chunks,
        unkept: run.place.unkept(),
        extras_unkept: run.place.extras_unkept(),
        left_out,
        not_sent: manifest.list.left_out().map(FileEntry::shown).collect(),
        unclean: unclean.map(|error| error.to_string()),
    })
}

/// Pull under way.
struct Run {
    fetcher: Arc<Fetcher>,
    place: Arc<Destination>,
    /// Bytes received and rate of each holder, as of the last computation of rates.
    rates: Vec<(Bytes, ByteRate)>,
    rated_at: Instant,
    bytes_done: u64,
    rebuilt: u64,
}

impl Run {
    /// Fetches and places the chunks, `window` of them at a time. Dropping it stops it at once.
    async fn chunks(
        &mut self,
        wanted: Vec<u32>,
        window: usize,
        destination: &Path,
        progress: &(dyn Fn(&Progress) + Sync),
    ) -> Result<()> {
        let mut wanted = wanted.into_iter();
        let mut under_way = JoinSet::new();
        let mut tick = interval(PROGRESS_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let fetcher = Arc::clone(&self.fetcher);
        let mut looking = pin!(async move {
            let mut pause = LOOK_INTERVAL;
            loop {
                sleep(pause).await;
                let is_more = fetcher.look_again().await;
                // A fetch that needs what came since asks by itself.
                pause = if is_more {
                    LOOK_INTERVAL
                } else {
                    (pause * 2).min(LOOK_INTERVAL_MAX)
                };
            }
        });
        loop {
            while under_way.len() < window
                && let Some(chunk) = wanted.find(|&chunk| self.place.wants(chunk))
            {
                under_way.spawn(one_chunk(
                    Arc::clone(&self.fetcher),
                    Arc::clone(&self.place),
                    chunk,
                ));
            }
            tokio::select! {
                done = under_way.join_next() => match done {
                    None => return Ok(()),
                    Some(done) => {
                        let (bytes, rebuilt) = done.map_err(|cause| ended(destination, cause))??;
                        self.bytes_done += bytes;
                        self.rebuilt += u64::from(rebuilt);
                    }
                },
                _ = tick.tick() => progress(&self.progress()),
                () = &mut looking => {}
            }
        }
    }

    /// Waits for writes that were under way when the pull failed. The destination stays locked
    /// until they end, and a retry must not be refused as if somebody else pulled.
    async fn settle(&self) {
        for _ in 0..SETTLE_CHECKS_MAX {
            if Arc::strong_count(&self.place) == 1 {
                return;
            }
            tokio::time::sleep(SETTLE_CHECK).await;
        }
    }

    fn progress(&mut self) -> Progress {
        let holders = self.fetcher.holders();
        let span = self.rated_at.elapsed();
        self.rated_at = Instant::now();
        self.rates.resize(holders.len(), Default::default());
        let holders = holders
            .iter()
            .zip(&mut self.rates)
            .map(|(holder, (before, rate))| {
                let received = holder.received();
                // Half the weight for the last interval: calm enough to read, quick enough to
                // trust.
                let now = ByteRate::over(received - *before, span);
                (*before, *rate) = (received, (*rate + now).scaled(1, 2));
                let (name, lost) = (holder.name.clone(), holder.is_lost());
                HolderProgress {
                    name,
                    received,
                    rate: *rate,
                    lost,
                }
            });
        Progress {
            holders: holders.collect(),
            bytes_done: self.bytes_done,
            bytes_total: self.place.manifest().list.bytes,
            files_done: self.place.files_done(),
            files_total: self.place.manifest().list.regular_files(),
        }
    }
}

/// Fetches one chunk and puts it in place. Returns its bytes, and whether it had to be rebuilt.
async fn one_chunk(
    fetcher: Arc<Fetcher>,
    place: Arc<Destination>,
    chunk: u32,
) -> Result<(u64, bool)> {
    let fetched = fetcher.fetch(chunk).await?;
    let written = spawn_blocking(move || {
        let (fragments, rebuilt) = fetcher.assemble(chunk, fetched)?;
        place.write_chunk(chunk, &fragments)?;
        Ok((place.manifest().chunk_bytes(chunk) as u64, rebuilt))
    });
    written
        .await
        .map_err(|cause| ended(Path::new("the destination"), cause))?
}

fn ended(destination: &Path, cause: tokio::task::JoinError) -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "pull to",
        destination.display().to_string(),
    )
    .cause(cause)
}
