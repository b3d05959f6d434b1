//! Secrets of the service: files that only its user can read, never in arguments, logs or the
//! journal.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{check_owner, is_constant},
};

/// Bytes of a token or secret.
pub const SECRET_BYTES: usize = 32;
/// Shortest token: 64 bits in hexadecimal digits.
const TOKEN_BYTES_MIN: usize = 16;
/// Largest secret file: hundreds of identities fit, so a longer file holds something else.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Makes `directory` (and its parents) readable by its user only.
///
/// # Errors
/// The operating system's, with the path.
pub fn make_private_directory(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|cause| Error::io("create", directory.display().to_string(), cause))
}

/// Writes `text` to `path` with mode 0600, whole or not at all.
///
/// # Errors
/// The operating system's, with the path.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let failed = |cause| Error::io("write", path.display().to_string(), cause);
    let mut fresh = PathBuf::from(path);
    fresh.as_mut_os_string().push(".new");
    let _ = fs::remove_file(&fresh);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    fs::rename(&fresh, path).map_err(failed)
}

/// Reads a secret's text, refusing a file that others can read.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] when group or others may read it; the operating system's else.
pub fn read_private(path: &Path) -> Result<String> {
    let shown = path.display().to_string();
    let failed = |cause| Error::io("read", shown.clone(), cause);
    // Reading a pipe would block.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Error::new(ErrorKind::Invalid, "read", &shown).cause("it is no file"));
    }
    let file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode();
    if mode & 0o077 != 0 {
        return Err(Error::new(ErrorKind::PermissionDenied, "use", &shown)
            .cause(format!("others can read it (mode {:04o})", mode & 0o7777))
            .hint(format!("chmod 600 {shown}")));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text.trim().to_owned())
}

/// Returns the token of the REST API at `path`, which is made at the first start.
///
/// # Errors
/// Errors of [`read_private`] and [`write_private`].
pub(crate) fn token(path: &Path) -> Result<String> {
    if path.exists() {
        check_owner(path)?;
        let text = read_private(path)?;
        let is_printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        // A holder of this token may do everything.
        if text.len() < TOKEN_BYTES_MIN || !is_printable || is_constant(text.as_bytes()) {
            let shown = path.display().to_string();
            return Err(Error::new(ErrorKind::Invalid, "use", shown)
                .cause("it is empty, too short, one character again and again, or no token")
                .hint("remove it, and a new one is made at the next start"));
        }
        return Ok(text);
    }
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(|cause| {
        Error::new(ErrorKind::Other, "make", path.display().to_string()).cause(cause.to_string())
    })?;
    let text = to_hex(&bytes);
    write_private(path, &format!("{text}\n"))?;
    Ok(text)
}

/// Returns lower-case hexadecimal digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns whether two texts are equal, in constant time.
pub(crate) fn same(left: &str, right: &str) -> bool {
    blake3::hash(left.as_bytes()) == blake3::hash(right.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_and_only_its_user_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let made = token(&path).unwrap();
        assert_eq!(made.len(), 2 * SECRET_BYTES);
        assert_eq!(token(&path).unwrap(), made);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let refused = token(&path).unwrap_err().to_string();
        assert!(refused.contains("others can read it"), "{refused}");
    }

    #[test]
    fn what_anybody_could_show_is_no_token() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let zeros = "0".repeat(64);
        for text in ["", "\n", "secret", "with a space in the middle", &zeros] {
            write_private(&path, text).unwrap();
            assert_eq!(token(&path).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
