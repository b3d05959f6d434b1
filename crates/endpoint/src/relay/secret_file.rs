//! Files that are for their owner's eyes only: keys, and the secrets that tokens are made from.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use super::address::from_hex;
use crate::{Error, ErrorKind, Result};

/// The text of `file`, made by `make` when there is none: whole or not at all, for its owner's eyes only.
///
/// # Errors
/// Those of reading, of writing, and of `make`.
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

/// Reads a secret as [`read_secret_file`] does; makes one where there is none.
///
/// # Errors
/// Those of [`read_or_make`] and [`read_secret_file`].
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
    read_secret_file(path)
}

/// Reads a relay's secret from the file `posthaste relay` made: 64 hexadecimal digits.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::PermissionDenied`]; [`ErrorKind::Invalid`] when the file
/// holds something else or when others than its owner may read it.
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
    from_hex(text.trim_end()).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "read the secret in", shown.clone())
            .cause("it is not 64 hexadecimal digits")
    })
}
