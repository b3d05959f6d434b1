//! Read leases on files: while one is held, nobody writes to the file unnoticed.
//!
//! The kernel grants one only while nobody has the file open for writing, and nobody has it mapped
//! so, even with the descriptor closed (fcntl(2), `F_SETLEASE`). Whoever opens it for writing then
//! waits until the lease is given back.

#![expect(unsafe_code, reason = "rustix has no leases")]

use std::{
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use rustix::{fs::fstatfs, io::Errno};

/// Types of file systems of other machines' files, by statfs(2): NFS, and SMB by its three names.
/// Without a delegation or an oplock these refuse a lease as if the file were in use.
const FAR: [u32; 4] = [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42];

/// Command of fcntl(2) that libc lacks.
const F_SETSIG: libc::c_int = 10;

/// Result of asking for a lease.
#[derive(Debug)]
pub enum Lease {
    /// Granted.
    Held(HeldLease),
    /// Somebody has the file open for writing, or mapped so.
    InUse,
    /// Nobody can tell about this file.
    Unknown,
    /// Nobody can tell about any file of this file system.
    Unsupported,
}

impl Lease {
    /// Asks for a read lease on a file. It is not read, and no link is followed. Blocks.
    #[must_use]
    pub fn take(path: &Path) -> Self {
        let mut options = File::options();
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let Ok(file) = options.read(true).custom_flags(flags).open(path) else {
            return Self::Unknown;
        };
        // The default signal of a lease that somebody waits for would end this process.
        let asked = control(&file, F_SETSIG, libc::SIGURG)
            .and_then(|_| control(&file, libc::F_SETLEASE, libc::F_RDLCK));
        let Err(cause) = asked else {
            return Self::Held(HeldLease(file));
        };
        match Errno::from_io_error(&cause) {
            Some(Errno::AGAIN) if !is_far(&file) => Self::InUse,
            // It is another user's.
            Some(Errno::ACCESS | Errno::PERM) => Self::Unknown,
            _ => Self::Unsupported,
        }
    }
}

/// Read lease, given back when this is dropped.
#[derive(Debug)]
pub struct HeldLease(File);

impl HeldLease {
    /// Returns the metadata of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Returns whether nobody waits to write to the file.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        control(&self.0, libc::F_GETLEASE, 0).is_ok_and(|kind| kind == libc::F_RDLCK)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        // Closing it does the same, unless a program that is being started has a copy.
        let _ = control(&self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

/// Returns whether a file lies on another machine, as far as the file system says.
fn is_far(file: &File) -> bool {
    let found = fstatfs(file.as_fd());
    found.is_ok_and(|found| {
        FAR.iter()
            .any(|kind| i128::from(*kind) == i128::from(found.f_type))
    })
}

fn control(file: &File, command: libc::c_int, argument: libc::c_int) -> io::Result<libc::c_int> {
    // SAFETY: these commands take a number, and the descriptor is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    #[test]
    fn a_file_that_is_open_for_writing_is_in_use_and_one_that_is_read_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before").unwrap();
        let reader = File::open(&path).unwrap();
        assert!(matches!(Lease::take(&path), Lease::Held(_)));
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(matches!(Lease::take(&path), Lease::InUse));
        drop((reader, writer));
        let Lease::Held(held) = Lease::take(&path) else {
            panic!("nobody writes");
        };
        assert!(held.is_undisturbed());
        thread::scope(|scope| {
            let waits = scope.spawn(|| fs::write(&path, "after"));
            while held.is_undisturbed() {
                thread::yield_now();
            }
            assert_eq!(fs::read(&path).unwrap(), b"before");
            drop(held);
            waits.join().unwrap().unwrap();
        });
        assert_eq!(fs::read(&path).unwrap(), b"after");
        assert!(matches!(
            Lease::take(folder.path()),
            Lease::Unsupported | Lease::Unknown
        ));
        assert!(matches!(
            Lease::take(&folder.path().join("none")),
            Lease::Unknown
        ));
    }
}
