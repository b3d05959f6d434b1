//! Precision with which file systems keep the times of files.

use std::{
    collections::HashMap,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use super::{attributes, entry_of, partial};
use crate::endpoint::FileTime;

/// Steps of file systems' clocks, in nanoseconds: none, NTFS and SMB, microseconds and milliseconds
/// of FUSE, exFAT, HFS and some parallel ones, FAT.
const STEPS_NS: [u32; 7] = [
    1,
    100,
    1_000,
    1_000_000,
    10_000_000,
    1_000_000_000,
    2_000_000_000,
];

/// Coarsest of them.
pub(super) const STEP_NS_MAX: u32 = STEPS_NS[STEPS_NS.len() - 1];

/// Time between the steps of all of them.
const PROBE: FileTime = FileTime {
    secs: 1_000_000_001,
    nanos: 123_456_789,
};

/// Learnt clocks of file systems, by their device.
#[derive(Debug, Clone, Default)]
pub struct Clocks(Arc<Mutex<HashMap<u64, Option<u32>>>>);

impl Clocks {
    /// Returns the step of the times beside `path`, in nanoseconds; `None` if no time can be set.
    /// If nothing can be learnt, times count as exact. Blocks.
    #[must_use]
    pub fn step_ns(&self, path: &Path) -> Option<u32> {
        let device = fs::symlink_metadata(path).map_or(0, |found| found.dev());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known
            .entry(device)
            .or_insert_with(|| learn(path).unwrap_or(Some(STEPS_NS[0])))
    }
}

/// Probes the step by setting the time of a temporary file.
fn learn(path: &Path) -> std::io::Result<Option<u32>> {
    let probe = partial::own_path(path);
    let file = File::create_new(&probe)?;
    let set = rustix::fs::futimens(&file, &attributes::timestamps(PROBE));
    // Ask by name: an open file may still report attributes that are not kept.
    drop(file);
    let found = fs::symlink_metadata(&probe);
    fs::remove_file(&probe)?;
    match set {
        Err(cause) if attributes::is_refused(cause) => return Ok(None),
        set => set?,
    }
    let found = entry_of(Vec::new(), &found?).mtime.unwrap_or_default();
    let is_within = |step: &u32| PROBE.agrees(found, *step);
    Ok(STEPS_NS.into_iter().find(is_within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_clock_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert_eq!(Clocks::default().step_ns(&path), Some(1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
