//! Trials of a store with a small file that is made there and removed.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::{
    Checksum, Error, ErrorKind, Result, Summer, clock,
    endpoint::{Endpoint, FileSpec, FileTime, Reader, beside, join},
    unfinished::trial_name,
    unkept::UnkeptCount,
};

/// Time between the steps of a clock with a resolution of two seconds.
pub(crate) const PROBE: FileTime = FileTime {
    secs: 1_000_000_001,
    nanos: 0,
};

/// Nanoseconds of a second.
pub(crate) const SECOND_NS: u32 = 1_000_000_000;

/// Bytes of the first trial of a place's write speed, and the factor by which the next one is
/// larger.
const FIRST_BYTES: usize = 1 << 20;
const GROWTH: usize = 4;
/// Duration after which a trial shows more than its start.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// Measures how fast a place accepts writes: writes a file there and removes it, then a larger one,
/// of `bytes_max` at most. Returns the bytes of the last one, and its duration.
///
/// # Errors
/// The errors of writing.
pub async fn measure_writes(
    endpoint: &dyn Endpoint,
    bytes_max: usize,
) -> Result<(usize, Duration)> {
    let path = trial_name(b"probe");
    // Random bytes: nothing on the way can compress them.
    let mut block = vec![0; FIRST_BYTES];
    getrandom::fill(&mut block).map_err(|cause| {
        Error::new(ErrorKind::Other, "draw", "random bytes").cause(cause.to_string())
    })?;
    let block = Bytes::from(block);
    let mut count = 1;
    loop {
        let data = vec![block.clone(); count];
        let mut sum = Summer::default();
        data.iter().for_each(|block| sum.add(block));
        let bytes = count * FIRST_BYTES;
        let spec = FileSpec {
            size: bytes as u64,
            mtime: None,
            mode: None,
            origin: endpoint.show(&path).into(),
            version: None,
        };
        let begun = clock::now();
        let put = endpoint.put(&path, &spec, data, sum.sum()).await;
        let span = begun.elapsed();
        // The file is hidden, and its name says whose it is.
        let _ = endpoint.remove(&path).await;
        put?;
        if span >= LONG_ENOUGH || bytes.saturating_mul(GROWTH) > bytes_max {
            return Ok((bytes, span));
        }
        count *= GROWTH;
    }
}

/// Returns whether a directory of an endpoint is another name of one that is here: `is_here` looks
/// for a name, and a file written there would appear here.
///
/// # Errors
/// The errors of writing there.
pub async fn is_same_place(
    endpoint: &dyn Endpoint,
    directory: &[u8],
    is_here: impl FnOnce(&[u8]) -> Result<bool>,
) -> Result<bool> {
    has_trial(endpoint, directory, async |name| is_here(name)).await
}

/// Returns whether the directory `place` of `one` is the directory `other` of another endpoint: a
/// file made in the first is in the second.
///
/// # Errors
/// The errors of writing there and of looking.
pub async fn is_same_directory(
    (one, place): (&dyn Endpoint, &[u8]),
    (two, other): (&dyn Endpoint, &[u8]),
) -> Result<bool> {
    has_trial(one, place, async |name| {
        let there = two.stat(&join(other, name), false).await;
        there.map(|there| there.is_some())
    })
    .await
}

/// Makes a small file in a directory while it is looked for elsewhere.
async fn has_trial(
    endpoint: &dyn Endpoint,
    directory: &[u8],
    is_there: impl AsyncFnOnce(&[u8]) -> Result<bool>,
) -> Result<bool> {
    let name = trial_name(b"place");
    let path = join(directory, &name);
    let data = Bytes::from_static(b"posthaste");
    let spec = FileSpec {
        size: data.len() as u64,
        mtime: None,
        mode: None,
        origin: endpoint.show(&path).into(),
        version: None,
    };
    let sum = Checksum::of(&data);
    let found = match endpoint.put(&path, &spec, vec![data], sum).await {
        Ok(()) => is_there(&name).await,
        Err(error) => Err(error),
    };
    // The file is hidden, and its name says whose it is.
    let _ = endpoint.remove(&path).await;
    found
}

/// Measures how fast a place delivers reads: reads the first bytes of a file, then more of those
/// that follow, `bytes_max` in all at most. Returns the bytes of the last reading, and its
/// duration.
///
/// # Errors
/// The errors of reading.
pub async fn measure_reads(reader: &dyn Reader, bytes_max: u64) -> Result<(u64, Duration)> {
    let end = reader.entry().size.min(bytes_max);
    let (mut from, mut bytes) = (0, FIRST_BYTES as u64);
    loop {
        let to = end.min(from + bytes);
        let begun = clock::now();
        let mut stream = reader.read(from..to).await?;
        while let Some(some) = stream.next().await {
            some?;
        }
        let span = begun.elapsed();
        let next = (to - from).saturating_mul(GROWTH as u64);
        if span >= LONG_ENOUGH || to.saturating_add(next) > end {
            return Ok((to - from, span));
        }
        (from, bytes) = (to, next);
    }
}

/// Learns the step in which times are kept beside `path`, in nanoseconds; `None` if none is kept,
/// which `unkept` does not count.
///
/// # Errors
/// The errors of writing and looking.
pub(crate) async fn time_step_ns(
    endpoint: &dyn Endpoint,
    path: &[u8],
    unkept: &UnkeptCount,
) -> Result<Option<u32>> {
    let path = beside(path, &trial_name(b"clock"));
    let spec = FileSpec {
        size: 0,
        mtime: Some(PROBE),
        mode: None,
        origin: endpoint.show(&path).into(),
        version: None,
    };
    let put = endpoint.put(&path, &spec, Vec::new(), Checksum::EMPTY);
    put.await?;
    let there = endpoint.stat(&path, false).await;
    // The file is hidden, and its name says whose it is.
    let _ = endpoint.remove(&path).await;
    let found = there?.and_then(|there| there.mtime);
    let is_within = |step: &u32| found.is_some_and(|found| found.agrees(PROBE, *step));
    let step_ns = [SECOND_NS, 2 * SECOND_NS].into_iter().find(is_within);
    if step_ns.is_none() {
        unkept.without_trial();
    }
    Ok(step_ns)
}
