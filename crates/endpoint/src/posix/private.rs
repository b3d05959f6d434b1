//! Privacy of the files that a process makes.

use std::sync::OnceLock;

use rustix::{fs::Mode, process::umask};

/// Mode bits that new files of this process lacked before.
static BEFORE: OnceLock<u32> = OnceLock::new();

/// Makes all new files of this process private to its user, unless they are given another mode. For
/// servers, whose files nobody else may read.
pub fn keep_private() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    // On a second call the first value counts.
    let _ = BEFORE.set(before.as_raw_mode());
}

/// Returns whether a mode grants others less than the usual default of directories.
#[must_use]
pub fn hides(mode: u32) -> bool {
    mode & 0o055 != 0o055
}

/// Returns the mode for a published file without one of its own, if the process keeps its files
/// private: `all` without the bits of its user's umask.
#[must_use]
pub fn published_mode(all: u32) -> Option<u32> {
    BEFORE.get().map(|before| all & !before)
}
