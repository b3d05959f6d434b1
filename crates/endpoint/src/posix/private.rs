//! Read permissions of files that a process makes.

use std::sync::OnceLock;

use rustix::{fs::Mode, process::umask};

/// Mode bits that new files of this process lacked before.
static BEFORE: OnceLock<u32> = OnceLock::new();

/// Makes all later files of this process readable by its user alone, unless they get another mode.
/// For servers: their files are nobody else's to read.
pub fn keep_private() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    // On a second call the first value counts.
    let _ = BEFORE.set(before.as_raw_mode());
}

/// Returns whether a mode permits others less than the usual mode of a directory made without one.
#[must_use]
pub fn hides(mode: u32) -> bool {
    mode & 0o055 != 0o055
}

/// Returns the mode of a file published without one of its own, while the process keeps its files
/// private: `all` less its user's umask.
#[must_use]
pub fn published_mode(all: u32) -> Option<u32> {
    BEFORE.get().map(|before| all & !before)
}
