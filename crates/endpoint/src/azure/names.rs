//! Names Azure has no way to say, or would change ("Naming and referencing containers, blobs and
//! metadata").

use crate::{Error, ErrorKind, Result, endpoint::join};

/// Longest name of a blob, in characters.
const CHARS_MAX: usize = 1024;

/// Most components of a name.
const COMPONENTS_MAX: usize = 254;

/// The name of the blob for `path` below `root`.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for one that would not come back as it is.
pub(super) fn key_of(root: &str, path: &[u8]) -> Result<String> {
    let fail = |cause: &'static str| {
        Error::new(
            ErrorKind::Unsupported,
            "name",
            String::from_utf8_lossy(path),
        )
        .cause(cause)
        .hint("rename it")
    };
    let key = String::from_utf8(join(root.as_bytes(), path))
        .map_err(|_| fail("its name is not UTF-8, which Azure needs"))?;
    if key
        .chars()
        .any(|letter| letter.is_control() || letter == '\\')
    {
        return Err(fail(
            "Azure keeps no names with a backslash or control characters",
        ));
    }
    if key.split('/').any(|component| component.ends_with('.')) {
        return Err(fail("Azure keeps no names that end with a dot"));
    }
    if key.chars().count() > CHARS_MAX || key.split('/').count() > COMPONENTS_MAX {
        return Err(fail("Azure keeps no names as long as this"));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_come_back_is_refused() {
        let wanted = key_of("a b", "c+d/é%20.x".as_bytes()).unwrap();
        assert_eq!(wanted, "a b/c+d/é%20.x");
        let long = "x".repeat(CHARS_MAX + 1);
        let deep = "x/".repeat(COMPONENTS_MAX);
        for path in ["a\nb", "a\\b", "a.", "a./b", "../b", "\u{7f}", &long, &deep] {
            let error = key_of("", path.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{path:?}");
        }
        assert!(key_of("", b"\xe9").is_err());
    }
}
