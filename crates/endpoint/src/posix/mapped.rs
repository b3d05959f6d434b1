//! Stores into files that other processes have mapped.
//!
//! Such a store moves the times of a file only if its page was clean: the kernel write-protects a
//! page when it writes it to the disk, and notices the first store after that. Later ones, until the
//! page is written again, move nothing. So whoever reads a file and compares its times afterwards
//! writes its pages to the disk first. Pages of a file system in memory are never written anywhere.

#![expect(unsafe_code, reason = "rustix has no sync_file_range")]

use std::{
    fs::File,
    os::fd::{AsFd, AsRawFd},
    path::Path,
};

use rustix::fs::fstatfs;

/// Types of file systems in memory, by statfs(2): tmpfs, ramfs and hugetlbfs.
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
/// Type of overlays, whose pages belong to a file of another file system.
const OVERLAY: [u32; 1] = [0x794c_7630];

/// Makes any later store to bytes of a file show in its times, as far as its file system can. If
/// the disk fails, the read tells it. Blocks while what is not on the disk goes there.
pub fn settle_mapped(file: &File, offset: u64, length: u64) {
    if is_of(file, &OVERLAY) {
        let _ = file.sync_data();
        return;
    }
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else {
        return;
    };
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: it takes numbers, and the descriptor is open.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, flags) };
}

/// Returns whether files at a path lie in memory: no store after the first through a mapping shows
/// in their times. Blocks.
#[must_use]
pub fn lies_in_memory(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| is_of(&file, &IN_MEMORY))
}

fn is_of(file: &File, kinds: &[u32]) -> bool {
    let found = fstatfs(file.as_fd());
    found.is_ok_and(|found| {
        let kind = i128::from(found.f_type);
        kinds.iter().any(|known| i128::from(*known) == kind)
    })
}
