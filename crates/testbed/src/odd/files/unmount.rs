//! Ends of mounts.

use std::{fs, path::Path, process::Command};

/// Prefix of mounts, before the number of the process that serves them.
pub(super) const NAME: &str = "posthaste-odd-";

/// Unmounts at once; unanswered calls fail.
pub(super) fn unmount(path: &Path) {
    // No caller is left for the error.
    let _ = Command::new("umount").args(["-f", "-l"]).arg(path).output();
}

/// Unmounts mounts that killed tests left.
pub(super) fn unmount_left_behind() {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    for mount in mounts.lines().filter(|line| line.starts_with(NAME)) {
        let mut words = mount[NAME.len()..].split(' ');
        let (process, path) = (words.next().unwrap(), words.next().unwrap());
        if !Path::new("/proc").join(process).exists() {
            unmount(Path::new(path));
        }
    }
}
