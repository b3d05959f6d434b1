//! What is learnt of a store by a small file that is made there and removed.

use crate::{
    Checksum, Result,
    endpoint::{Endpoint, FileSpec, FileTime, beside},
    unfinished::trial_name,
    unkept::UnkeptCount,
};

/// A time between the steps of a clock that knows every other second alone.
pub(crate) const PROBE: FileTime = FileTime {
    secs: 1_000_000_001,
    nanos: 0,
};

/// A second, in nanoseconds.
pub(crate) const SECOND_NS: u32 = 1_000_000_000;

/// Learns how exactly times are kept beside `path`, in nanoseconds; `None` where none is, which `unkept` does not count.
///
/// # Errors
/// Those of writing and looking.
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
    // It is hidden, and its name says whose it is.
    let _ = endpoint.remove(&path).await;
    let found = there?.and_then(|there| there.mtime);
    let is_within = |step: &u32| found.is_some_and(|found| found.agrees(PROBE, *step));
    let step_ns = [SECOND_NS, 2 * SECOND_NS].into_iter().find(is_within);
    if step_ns.is_none() {
        unkept.without_trial();
    }
    Ok(step_ns)
}
