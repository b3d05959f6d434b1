//! A wall clock of a program's own, which a test may set.

use std::{env::consts::ARCH, path::Path};

/// Returns the environment in which a program's wall clock is off by what `file` says, such as
/// `+365d`, whenever it looks. Its monotonic clock is the machine's.
#[must_use]
pub fn wall_clock(file: &Path) -> [(&'static str, String); 4] {
    let library = format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketimeMT.so.1");
    [
        ("LD_PRELOAD", library),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
}
