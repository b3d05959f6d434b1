//! Addresses as people write them: a local path, `s3://bucket/key`, `sftp://user@host:port/path`.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use crate::{Error, ErrorKind, Result};

/// Where a source or destination is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A path on this machine.
    Local(PathBuf),
    /// A bucket and a key or prefix in it, without slashes at either end.
    S3 {
        /// The bucket.
        bucket: String,
        /// The key; empty for the whole bucket.
        key: String,
    },
    /// A path on a host that runs an SSH server.
    Sftp {
        /// The user, when it is not what `ssh` would take.
        user: Option<String>,
        /// The host, or its alias in `ssh_config`.
        host: String,
        /// The port, when it is not what `ssh` would take.
        port: Option<u16>,
        /// Absolute, or relative to the login directory when written as `/~/path`.
        path: Vec<u8>,
    },
}

impl Location {
    /// Reads an address.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown scheme or a malformed address.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let shown = text.to_string_lossy();
        if bytes.is_empty() {
            return Err(invalid("''", "an empty path", "write . for this directory"));
        }
        let Some((scheme, rest)) = split_scheme(bytes) else {
            return Ok(local(bytes));
        };
        match scheme {
            b"file" => Ok(local(rest)),
            b"s3" => Self::parse_s3(rest, &shown),
            b"sftp" => Self::parse_sftp(rest, &shown),
            _ => Err(invalid(
                &shown,
                "unknown scheme",
                "use a local path, s3://bucket/prefix or sftp://user@host/path",
            )),
        }
    }

    fn parse_s3(rest: &[u8], shown: &str) -> Result<Self> {
        let text = std::str::from_utf8(rest)
            .map_err(|_| invalid(shown, "keys are UTF-8", "write s3://bucket/prefix"))?;
        let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
        if bucket.is_empty() {
            return Err(invalid(shown, "no bucket", "write s3://bucket/prefix"));
        }
        Ok(Self::S3 {
            bucket: bucket.to_owned(),
            key: key.trim_matches('/').to_owned(),
        })
    }

    fn parse_sftp(rest: &[u8], shown: &str) -> Result<Self> {
        let hint = "write sftp://user@host:port/path";
        let cut = rest
            .iter()
            .position(|&byte| byte == b'/')
            .unwrap_or(rest.len());
        let (authority, path) = rest.split_at(cut);
        let authority =
            std::str::from_utf8(authority).map_err(|_| invalid(shown, "no host name", hint))?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(invalid(
                &format!("sftp://…@{host}"),
                "passwords don't belong into addresses",
                "use a key or ssh-agent",
            ));
        }
        let (host, port) = split_port(host);
        let port = port
            .map(str::parse)
            .transpose()
            .map_err(|_| invalid(shown, "the port is no number", hint))?;
        // ssh would take a leading dash as an option.
        let is_option = |text: &str| text.is_empty() || text.starts_with('-');
        if is_option(host) || user.is_some_and(is_option) {
            return Err(invalid(shown, "no host name", hint));
        }
        let path = match path.strip_prefix(b"/~/") {
            Some(relative) => relative,
            None if path == b"/~" => b"",
            None => path,
        };
        Ok(Self::Sftp {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
            path: trim_end_slashes(path).to_vec(),
        })
    }

    /// The name a copy of this gets inside a directory; `None` when it has none of its own, as the
    /// root of a disk or bucket, `.` and `..`.
    #[must_use]
    pub fn name(&self) -> Option<Vec<u8>> {
        let path = match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::S3 { key, .. } => key.as_bytes(),
            Self::Sftp { path, .. } => path,
        };
        let name = crate::base_name(trim_end_slashes(path));
        (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec())
    }
}

fn local(path: &[u8]) -> Location {
    let path = OsString::from_vec(trim_end_slashes(path).to_vec());
    Location::Local(PathBuf::from(path))
}

fn invalid(shown: &str, cause: &'static str, hint: &str) -> Error {
    Error::new(ErrorKind::Invalid, "understand", shown)
        .cause(cause)
        .hint(hint)
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    if let Some(rest) = host.strip_prefix('[')
        && let Some((address, port)) = rest.split_once(']')
    {
        return (address, port.strip_prefix(':'));
    }
    match host.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host, None),
    }
}

/// Splits `scheme://rest`. A scheme is letters, digits, `+`, `-` and `.` (RFC 3986, section 3.1);
/// anything else before `://` is a strange file name.
fn split_scheme(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = text.windows(3).position(|window| window == b"://")?;
    let scheme = &text[..cut];
    let valid = scheme.first()?.is_ascii_alphabetic()
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    valid.then_some((scheme, &text[cut + 3..]))
}

fn trim_end_slashes(path: &[u8]) -> &[u8] {
    let mut end = path.len();
    while end > 1 && path[end - 1] == b'/' {
        end -= 1;
    }
    &path[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(parse("a/b").unwrap(), Location::Local("a/b".into()));
        assert_eq!(
            parse("a:b://c d").unwrap(),
            Location::Local("a:b://c d".into())
        );
        assert_eq!(
            parse("s3://b/k/l/").unwrap(),
            Location::S3 {
                bucket: "b".into(),
                key: "k/l".into()
            }
        );
        assert_eq!(
            parse("sftp://me@host:2222/data/").unwrap(),
            Location::Sftp {
                user: Some("me".into()),
                host: "host".into(),
                port: Some(2222),
                path: b"/data".to_vec()
            }
        );
        assert_eq!(
            parse("sftp://[::1]:22/~/x").unwrap(),
            Location::Sftp {
                user: None,
                host: "::1".into(),
                port: Some(22),
                path: b"x".to_vec()
            }
        );
    }

    #[test]
    fn nonsense_is_refused_with_what_to_write() {
        for text in [
            "",
            "gopher://x/y",
            "s3:///key",
            "sftp:///path",
            "sftp://-oProxyCommand=x/path",
            "sftp://u:secret@host/",
            "sftp://host:port/",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn names_come_from_the_last_component() {
        for (text, name) in [
            ("/a/b/", Some("b")),
            ("/", None),
            (".", None),
            ("..", None),
            ("s3://b", None),
            ("s3://b/k", Some("k")),
        ] {
            let found = parse(text).unwrap().name();
            assert_eq!(found.as_deref(), name.map(str::as_bytes), "{text}");
        }
    }
}
