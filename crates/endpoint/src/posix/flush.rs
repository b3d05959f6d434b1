//! Write errors that a file system reports only when a file is closed, and the content it then
//! holds.

#![expect(unsafe_code, reason = "std and rustix drop what close returns")]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, IntoRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use rustix::fs::{Advice, fadvise};

/// Returns the error that closing `file` would end with, if any. The file stays open.
///
/// Only `close` reports an exceeded quota on NFS and a failed upload of a FUSE file system
/// (close(2), notes). Each descriptor of an open file is flushed when it is closed, so closing a
/// copy of this one reports it.
///
/// # Errors
/// The system's error: some written bytes are lost.
pub fn flush(file: impl AsFd) -> io::Result<()> {
    close(file.as_fd().try_clone_to_owned()?)
}

/// Closes a file and returns the error that this ends with, if any. Some file systems report it
/// once, to the first descriptor of the file that is closed. Each descriptor that wrote must
/// therefore be closed like this.
///
/// # Errors
/// See [`flush`].
pub fn close(file: impl Into<OwnedFd>) -> io::Result<()> {
    let descriptor = file.into().into_raw_fd();
    // SAFETY: the descriptor was owned here, no other code knows it, and it is not used again.
    match unsafe { libc::close(descriptor) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts a file on the disk and drops the kernel's cache of it: the next reader reads from the file
/// system, as far as that keeps no cache of its own. Blocks.
///
/// # Errors
/// The system's errors.
pub fn drop_cached(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.sync_data()?;
    // Advice alone: if it is ignored, the file may be read from memory.
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_flushed_file_stays_open() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        flush(&file).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
    }
}
