//! Mark of a relay that is going to be switched off: a file beside its data. Anybody with the right
//! to write there makes it, and it survives a restart.

use std::{
    fs,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Result, relay::Draining};

/// Bytes of the file that are read: a word is shorter.
const WORD_BYTES_MAX: u64 = 64;

fn file(dir: &Path) -> PathBuf {
    dir.join("draining")
}

/// Returns whether the relay that keeps its state in `dir` is going to be switched off. A file that
/// can't be read counts as a yes: nothing is lost by that.
#[must_use]
pub fn draining(dir: &Path) -> Option<Draining> {
    let path = file(dir);
    let length = fs::metadata(&path).ok()?.len();
    if length > WORD_BYTES_MAX {
        return Some(Draining::Keep);
    }
    let word = fs::read_to_string(&path).unwrap_or_default();
    Some(Draining::read(word.trim()))
}

/// Marks that the relay is going to be switched off, or no longer. A running relay reports it to
/// all that ask from then on, and so does one started later.
///
/// # Errors
/// [`ErrorKind::NotFound`] if no relay keeps anything in `dir`; the operating system's.
pub fn set_draining(dir: &Path, draining: Option<Draining>) -> Result<()> {
    let path = file(dir);
    let shown = || path.display().to_string();
    if !dir.join("identity").is_dir() {
        let error = Error::new(ErrorKind::NotFound, "drain", dir.display().to_string());
        return Err(error
            .cause("no relay keeps anything there")
            .hint("give the --dir that the relay runs with"));
    }
    let Some(draining) = draining else {
        return match fs::remove_file(&path) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io("remove", shown(), cause))
            }
            _ => Ok(()),
        };
    };
    let written = dir.join("draining.new");
    let write = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&written)?;
        writeln!(file, "{}", draining.word())?;
        file.sync_all()?;
        fs::rename(&written, &path)
    };
    write().map_err(|cause| Error::io("write", shown(), cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_stays_said_until_it_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let error = set_draining(dir.path(), Some(Draining::Keep)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        fs::create_dir(dir.path().join("identity")).unwrap();
        assert_eq!(draining(dir.path()), None);
        for said in [Draining::Keep, Draining::Move] {
            set_draining(dir.path(), Some(said)).unwrap();
            assert_eq!(draining(dir.path()), Some(said));
        }
        fs::write(dir.path().join("draining"), "x".repeat(100)).unwrap();
        assert_eq!(draining(dir.path()), Some(Draining::Keep));
        set_draining(dir.path(), None).unwrap();
        set_draining(dir.path(), None).unwrap();
        assert_eq!(draining(dir.path()), None);
    }
}
