//! Devices, pipes and sockets, which no copy replaces.

use std::{fs, path::Path};

use super::{Place, show};
use crate::{Error, ErrorKind, Locus, Result};

/// Most links that lead to links; the system follows no more.
const LINKS_MAX: u32 = 40;

/// Fails if the path holds an entry, perhaps behind a link, that a file or a link must not replace.
/// Blocks.
pub(super) fn refuse_special(operation: &'static str, place: &Place) -> Result<()> {
    let Ok(there) = fs::symlink_metadata(&place.path) else {
        return Ok(());
    };
    let mut kind = there.file_type();
    if kind.is_symlink() {
        // The target of /dev/stdout is meant, not the link, which is everybody's.
        if leads_to_open_file(&place.path) {
            return Err(special_there(operation, show(place.shown())));
        }
        if let Ok(behind) = fs::metadata(&place.path) {
            kind = behind.file_type();
        }
    }
    if kind.is_file() || kind.is_symlink() || kind.is_dir() {
        return Ok(());
    }
    Err(special_there(operation, show(place.shown())))
}

/// Returns whether a link leads to a file that some process has open.
fn leads_to_open_file(link: &Path) -> bool {
    let mut at = link.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&at) else {
            return false;
        };
        if target.starts_with("/proc") || target.starts_with("/dev/fd") {
            return true;
        }
        at.pop();
        at.push(target);
    }
    false
}

/// Returns the error for a special file at a destination, which must not be replaced.
pub(crate) fn special_there(operation: &'static str, shown: String) -> Error {
    Error::new(ErrorKind::Conflict, operation, shown)
        .cause("a device, a pipe or a socket is there")
        .hint("name a file, or a directory that it may go into")
        .at(Locus::Destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::{fd::AsRawFd, unix::fs::symlink};

    #[test]
    fn a_link_to_what_is_open_is_left_whatever_that_is() {
        let folder = tempfile::tempdir().unwrap();
        let open = fs::File::create(folder.path().join("output")).unwrap();
        let (link, chain) = (folder.path().join("link"), folder.path().join("chain"));
        symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
        symlink("link", &chain).unwrap();
        for link in [link, chain] {
            refuse_special("write", &Place::plain(link)).unwrap_err();
        }
        let usual = folder.path().join("usual");
        symlink("output", &usual).unwrap();
        refuse_special("write", &Place::plain(usual)).unwrap();
    }
}
