//! Attributes that a destination refuses, in words.

use core::fmt;

/// Formats how many files and directories arrived without their mode and their time.
pub(super) fn write_unkept(f: &mut fmt::Formatter<'_>, modes: u64, times: u64) -> fmt::Result {
    f.write_str("not kept, as its destination refuses: ")?;
    match (modes, times) {
        (_, 0) => write!(f, "the mode of {modes}")?,
        (0, _) => write!(f, "the modification time of {times}")?,
        _ => write!(
            f,
            "the mode of {modes} and the modification time of {times}"
        )?,
    }
    f.write_str(" of its files and directories")
}
