//! Files that only their owner may read: keys, and the secrets from which tokens are minted.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use rustix::process::geteuid;

use super::address::from_hex;
use crate::{Error, ErrorKind, Result};

/// Returns the text of `file`, created by `make` if it does not exist: atomically, and readable
/// only by its owner.
///
/// # Errors
/// Errors of reading, of writing, and of `make`.
pub fn read_or_make(file: &Path, make: impl FnOnce() -> Result<String>) -> Result<String> {
    let shown = || file.display().to_string();
    match fs::read_to_string(file) {
        Ok(text) => return Ok(text),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(Error::io("read", shown(), cause)),
    }
    let text = make()?;
    let unfinished = file.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut out = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&unfinished, file)?;
        fs::File::open(file.parent().unwrap_or(file))?.sync_all()
    };
    write().map_err(|cause| Error::io("make", shown(), cause))?;
    Ok(text)
}

/// Rejects a folder for a program's own files that another user owns or may write to: that user may
/// know or change its content.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] with the reason; otherwise the operating system's error.
pub fn check_own_folder(dir: &Path) -> Result<()> {
    let found = check_owner(dir)?;
    let mode = found.permissions().mode();
    match mode & 0o022 {
        0 => Ok(()),
        _ => {
            let shown = dir.display().to_string();
            Err(
                Error::new(ErrorKind::PermissionDenied, "use", shown.clone())
                    .cause(format!(
                        "others can write to it (mode {:04o})",
                        mode & 0o7777
                    ))
                    .hint(format!(
                        "chmod go-w {shown}, where nobody put anything there"
                    )),
            )
        }
    }
}

/// Rejects a file or folder that neither this process nor root owns.
///
/// # Errors
/// Errors of [`check_own_folder`].
pub fn check_owner(path: &Path) -> Result<fs::Metadata> {
    let shown = path.display().to_string();
    let found = fs::metadata(path).map_err(|cause| Error::io("use", shown.clone(), cause))?;
    match [0, geteuid().as_raw()].contains(&found.uid()) {
        true => Ok(found),
        false => Err(Error::new(ErrorKind::PermissionDenied, "use", shown)
            .cause(format!("another user owns it (uid {})", found.uid()))
            .hint("what that user knows is no secret: name a folder of your own")),
    }
}

/// Returns whether a secret repeats one byte: no random generator drew that.
#[must_use]
pub fn is_constant(secret: &[u8]) -> bool {
    secret.windows(2).all(|pair| pair.first() == pair.last())
}

/// Reads a secret of this program's own like [`read_secret_file`]; creates one if it does not
/// exist.
///
/// # Errors
/// Errors of [`read_or_make`], [`check_owner`] and [`read_secret_file`].
pub fn read_or_make_secret(path: &Path) -> Result<[u8; 32]> {
    read_or_make(path, || {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|cause| {
            Error::new(ErrorKind::Other, "make", path.display().to_string())
                .cause(cause.to_string())
        })?;
        let digits = secret.iter().map(|byte| format!("{byte:02x}"));
        Ok(digits.collect::<String>() + "\n")
    })?;
    check_owner(path)?;
    read_secret_file(path)
}

/// Reads a relay's secret from the file that `posthaste relay` created: 64 hexadecimal digits.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::PermissionDenied`]; [`ErrorKind::Invalid`] if the file
/// holds something else or if others than its owner may read it.
pub fn read_secret_file(path: &Path) -> Result<[u8; 32]> {
    let shown = path.display().to_string();
    let failed = |cause| Error::io("read the secret in", shown.clone(), cause);
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(
            Error::new(ErrorKind::Invalid, "read the secret in", shown.clone())
                .cause("others may read it")
                .hint(format!("chmod 600 {shown}, and consider the secret known")),
        );
    }
    let text = fs::read_to_string(path).map_err(failed)?;
    let refused = |cause| Error::new(ErrorKind::Invalid, "read the secret in", &shown).cause(cause);
    match from_hex(text.trim_end()) {
        None => Err(refused("it is not 64 hexadecimal digits")),
        Some(secret) if is_constant(&secret) => Err(refused("it is one byte again and again")
            .hint("remove it, and a new one is made at the next start")),
        Some(secret) => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_prepared_or_anybody_guesses_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("state");
        fs::create_dir(&dir).unwrap();
        for (mode, is_ours) in [(0o755, true), (0o775, false), (0o757, false)] {
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_own_folder(&dir).is_ok(), is_ours, "{mode:o}");
        }
        let secret = dir.join("secret");
        read_or_make_secret(&secret).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&secret, Some(1), None).unwrap();
            let refused = read_or_make_secret(&secret).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
            assert!(
                read_secret_file(&secret).is_ok(),
                "a relay's, which root may read"
            );
            std::os::unix::fs::chown(&secret, Some(0), None).unwrap();
        }
        for digits in ["00", "aa", "ff"] {
            fs::write(&secret, digits.repeat(32)).unwrap();
            let refused = read_or_make_secret(&secret).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{digits}");
        }
    }
}
