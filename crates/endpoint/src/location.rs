//! Addresses as people write them: a local path, `s3://bucket/key`, `sftp://user@host:port/path`,
//! `user@host:path`.

mod below;
mod spelling;

use std::{
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use crate::{Error, ErrorKind, Result};

/// Location of a source or destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// Path on this machine.
    Local(PathBuf),
    /// Bucket and a key or prefix in it, without slashes at either end.
    S3 {
        /// The bucket.
        bucket: String,
        /// The key; empty for the whole bucket.
        key: String,
    },
    /// Path on a host that runs an SSH server.
    Sftp {
        /// The user, if not `ssh`'s default.
        user: Option<String>,
        /// Host, or its alias in `ssh_config`.
        host: String,
        /// The port, if not `ssh`'s default.
        port: Option<u16>,
        /// Path: absolute, or relative to the login directory if written as `/~/path`.
        path: Vec<u8>,
    },
    /// Bucket or container of another object store and a key or prefix in it.
    Bucket {
        /// Kind of store.
        store: Store,
        /// Bucket or container.
        bucket: String,
        /// The key; empty for the whole bucket.
        key: String,
    },
    /// Path on a server.
    Server(Server),
    /// Path on a host on which posthaste is started over SSH: `user@host:path`.
    Host {
        /// The user, if not `ssh`'s default.
        user: Option<String>,
        /// Host, or its alias in `ssh_config`.
        host: String,
        /// Path: absolute, or relative to the login directory.
        path: Vec<u8>,
        /// True if it was written with a slash at its end, which matters below an `http` address.
        slash: bool,
    },
    /// Any other scheme: a plug-in may know it.
    Plugin {
        /// The scheme.
        scheme: String,
        /// Text after `scheme://`.
        rest: Vec<u8>,
    },
}

/// Object stores that are neither S3 nor compatible with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Azure Blob Storage, `azblob://container/path` or `az://…`.
    Azblob,
    /// Google Cloud Storage, `gs://bucket/path`.
    Gcs,
}

/// Protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `http://`: to read from.
    Http,
    /// `https://`: to read from.
    Https,
    /// `webdav://`: WebDAV over HTTP.
    WebDav,
    /// `webdavs://`: WebDAV over HTTPS.
    WebDavs,
    /// `ftp://`.
    Ftp,
    /// `ftps://`: FTP with TLS.
    Ftps,
    /// `posthaste://`: a posthaste relay.
    Posthaste,
}

impl Protocol {
    /// Returns its scheme in addresses.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::WebDav => "webdav",
            Self::WebDavs => "webdavs",
            Self::Ftp => "ftp",
            Self::Ftps => "ftps",
            Self::Posthaste => "posthaste",
        }
    }

    /// Returns whether all traffic goes over TLS.
    pub(crate) const fn has_tls(self) -> bool {
        matches!(self, Self::Https | Self::WebDavs | Self::Ftps)
    }

    /// Returns whether anybody on the way can read the traffic, credentials included.
    pub(crate) const fn is_plain(self) -> bool {
        matches!(self, Self::Http | Self::WebDav | Self::Ftp)
    }
}

/// Path on a server, `scheme://user@host:port/path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Protocol of the server.
    pub protocol: Protocol,
    /// The user, if the address names one.
    pub user: Option<String>,
    /// Host: a name, or an address without brackets.
    pub host: String,
    /// The port, if not the protocol's own.
    pub port: Option<u16>,
    /// Absolute path with its slash; empty for the root. Percent-escapes are decoded.
    pub path: Vec<u8>,
    /// True if an `http` path was written with a slash at its end: it is requested that way.
    pub slash: bool,
    /// Text after `?` in an `http` address, as written: often a signature, and so a secret.
    pub query: Option<String>,
}

impl Location {
    /// Parses an address.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unknown scheme or a malformed address.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let shown = shown_address(text);
        if bytes.is_empty() {
            return Err(invalid("''", "an empty path", "write . for this directory"));
        }
        let Some((scheme, rest)) = split_scheme(bytes) else {
            return Self::parse_host(bytes, &shown);
        };
        let server = |protocol| Self::parse_server(protocol, rest, &shown);
        // The scheme may be in any case (RFC 3986, section 3.1).
        let scheme = &*scheme.to_ascii_lowercase();
        match scheme {
            b"file" => Ok(local(rest)),
            b"s3" => Self::parse_s3(rest, &shown),
            b"sftp" => Self::parse_sftp(rest, &shown),
            b"azblob" | b"az" => Self::parse_bucket(Store::Azblob, rest, &shown),
            b"gs" | b"gcs" => Self::parse_bucket(Store::Gcs, rest, &shown),
            b"http" => server(Protocol::Http),
            b"https" => server(Protocol::Https),
            b"webdav" | b"dav" => server(Protocol::WebDav),
            b"webdavs" | b"davs" => server(Protocol::WebDavs),
            b"ftp" => server(Protocol::Ftp),
            b"ftps" => server(Protocol::Ftps),
            b"posthaste" => server(Protocol::Posthaste),
            _ => Ok(Self::Plugin {
                scheme: String::from_utf8_lossy(scheme).into_owned(),
                rest: rest.to_vec(),
            }),
        }
    }

    /// Parses a path on a host: a colon before the first slash makes one, as with scp and rsync.
    fn parse_host(bytes: &[u8], shown: &str) -> Result<Self> {
        let (head, _) = split_authority(bytes);
        let Some(colon) = colon_behind_host(head) else {
            return Ok(local(bytes));
        };
        let hint = "write user@host:path, or ./NAME for a local file with a colon in its name";
        let (authority, path) = (&bytes[..colon], &bytes[colon + 1..]);
        let Authority { user, host, .. } = Authority::parse(authority, shown, hint)?;
        Ok(Self::Host {
            user,
            host,
            path: trim_end_slashes(path).to_vec(),
            slash: path.ends_with(b"/"),
        })
    }

    fn parse_bucket(store: Store, rest: &[u8], shown: &str) -> Result<Self> {
        let hint = match store {
            Store::Azblob => "write azblob://container/path",
            Store::Gcs => "write gs://bucket/path",
        };
        let (bucket, key) = split_bucket(rest, shown, hint)?;
        Ok(Self::Bucket { store, bucket, key })
    }

    fn parse_server(protocol: Protocol, rest: &[u8], shown: &str) -> Result<Self> {
        let hint = format!("write {}://host:port/path", protocol.scheme());
        let (rest, query) = match protocol {
            Protocol::Http | Protocol::Https => split_query(rest),
            Protocol::WebDav
            | Protocol::WebDavs
            | Protocol::Ftp
            | Protocol::Ftps
            | Protocol::Posthaste => (rest, None),
        };
        let shown = shown.split('?').next().unwrap_or_default();
        let query = match query {
            Some(query) => match std::str::from_utf8(query) {
                Ok(query) => Some(query.to_owned()),
                Err(_) => return Err(invalid(shown, "its query is not UTF-8", &hint)),
            },
            None => None,
        };
        let (authority, path) = split_authority(rest);
        let Authority { user, host, port } = Authority::parse(authority, shown, &hint)?;
        let path = match protocol {
            Protocol::Posthaste => path.to_vec(),
            Protocol::Http
            | Protocol::Https
            | Protocol::WebDav
            | Protocol::WebDavs
            | Protocol::Ftp
            | Protocol::Ftps => unescaped(path),
        };
        let is_web = matches!(protocol, Protocol::Http | Protocol::Https);
        let slash = is_web && path.ends_with(b"/");
        let path = match &*path {
            b"/" => Vec::new(),
            path => trim_end_slashes(path).to_vec(),
        };
        Ok(Self::Server(Server {
            protocol,
            user,
            host,
            port,
            path,
            slash,
            query,
        }))
    }

    fn parse_s3(rest: &[u8], shown: &str) -> Result<Self> {
        let (bucket, key) = split_bucket(rest, shown, "write s3://bucket/prefix")?;
        Ok(Self::S3 { bucket, key })
    }

    fn parse_sftp(rest: &[u8], shown: &str) -> Result<Self> {
        let (authority, path) = split_authority(rest);
        let Authority { user, host, port } =
            Authority::parse(authority, shown, "write sftp://user@host:port/path")?;
        let path = match path.strip_prefix(b"/~/") {
            Some(relative) => relative,
            None if path == b"/~" => b"",
            None => path,
        };
        Ok(Self::Sftp {
            user,
            host,
            port,
            path: trim_end_slashes(path).to_vec(),
        })
    }

    /// Returns the [`crate::Capabilities::scheme`] of the endpoint that opens this; `None` for a
    /// plug-in.
    pub(crate) fn scheme(&self) -> Option<&'static str> {
        Some(match self {
            Self::Local(_) => "file",
            Self::S3 { .. } => "s3",
            Self::Sftp { .. } => "sftp",
            Self::Bucket { store, .. } => match store {
                Store::Azblob => "azblob",
                Store::Gcs => "gs",
            },
            Self::Server(server) => match server.protocol {
                Protocol::Https if crate::azure::is_address(server) => "azblob",
                Protocol::Http | Protocol::Https => "http",
                Protocol::WebDav | Protocol::WebDavs => "webdav",
                Protocol::Ftp | Protocol::Ftps => "ftp",
                Protocol::Posthaste => "posthaste",
            },
            Self::Host { .. } => "posthaste",
            Self::Plugin { .. } => return None,
        })
    }

    /// Returns a copy's name in a directory; `None` for the root of a disk or bucket, `.` and `..`.
    #[must_use]
    pub fn name(&self) -> Option<Vec<u8>> {
        let path = match self {
            Self::Local(path) => path.as_os_str().as_bytes(),
            Self::S3 { key, .. } => key.as_bytes(),
            Self::Bucket { key, .. } => key.as_bytes(),
            Self::Sftp { path, .. } | Self::Host { path, .. } => path,
            Self::Server(server) => &server.path,
            Self::Plugin { rest, .. } => match rest.iter().position(|&byte| byte == b'/') {
                Some(cut) => &rest[cut..],
                None => b"",
            },
        };
        let name = crate::base_name(trim_end_slashes(path));
        (!matches!(name, b"" | b"." | b"..")).then(|| name.to_vec())
    }
}

/// Returns an address as it may be shown: without a password, and without the query of a web
/// address, which may be a signature.
#[must_use]
pub fn shown_address(text: &OsStr) -> String {
    let shown = text.to_string_lossy();
    let Some((scheme, rest)) = shown.split_once("://") else {
        return shown.into_owned();
    };
    let rest = match scheme {
        "http" | "https" => rest.split('?').next().unwrap_or_default(),
        _ => rest,
    };
    match password_in(rest) {
        Some(password) => format!("{scheme}://…{}", &rest[password.end..]),
        None => format!("{scheme}://{rest}"),
    }
}

/// Finds the password in `user:password@host/path`; it may have slashes, as keys of stores do.
fn password_in(rest: &str) -> Option<Range<usize>> {
    let authority = rest.split('/').next().unwrap_or_default();
    let colon = authority.find(':')?;
    let is_host = authority.starts_with('[') || authority.starts_with("arn:");
    let is_port = || authority[colon + 1..].bytes().all(|c| c.is_ascii_digit());
    let at = match authority.rfind('@') {
        Some(at) => at,
        None if is_host || is_port() => return None,
        None => rest.rfind('@')?,
    };
    (colon < at).then_some(colon + 1..at)
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

/// Host with user and port, `user@host:port`.
struct Authority {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl Authority {
    fn parse(text: &[u8], shown: &str, hint: &str) -> Result<Self> {
        let text = std::str::from_utf8(text).map_err(|_| invalid(shown, "no host name", hint))?;
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        if user.is_some_and(|user| user.contains(':')) {
            let scheme = shown
                .split_once("://")
                .map_or_else(String::new, |(scheme, _)| format!("{scheme}://"));
            return Err(invalid(
                &format!("{scheme}…@{host}"),
                "passwords don't belong into addresses",
                "use a key, ssh-agent or a profile",
            ));
        }
        let (host, port) = split_port(host);
        let port = port
            .map(str::parse)
            .transpose()
            .map_err(|_| invalid(shown, "the port is no number", hint))?;
        // ssh would read a leading dash as an option.
        let is_option = |text: &str| text.is_empty() || text.starts_with('-');
        if is_option(host) || user.is_some_and(is_option) {
            return Err(invalid(shown, "no host name", hint));
        }
        if let Some(odd) = host.chars().find(|char| is_of_no_name(*char)) {
            let cause = format!("no host has {odd:?} in its name");
            return Err(Error::new(ErrorKind::Invalid, "understand", shown)
                .cause(cause)
                .hint(hint.to_owned()));
        }
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        })
    }
}

/// Returns whether no name of a host, or of a profile that stands for one, has this character.
fn is_of_no_name(char: char) -> bool {
    char.is_whitespace() || char.is_control() || r#""'`$;&|<>(){}*?!\,"#.contains(char)
}

/// Finds the colon behind the host in `user@host:…`. Brackets keep the colons of an IPv6 address.
fn colon_behind_host(head: &[u8]) -> Option<usize> {
    let first = head.iter().position(|&byte| byte == b':')?;
    let at = head[..first].iter().position(|&byte| byte == b'@');
    let host = at.map_or(0, |at| at + 1);
    if head[host] != b'[' {
        return Some(first);
    }
    let end = head.iter().position(|&byte| byte == b']')?;
    // Text between the bracket and the colon makes no host; the parser of the host reports it.
    let colon = head[end..].iter().position(|&byte| byte == b':')?;
    Some(end + colon)
}

/// Splits `authority/path`; the path keeps its slash.
fn split_authority(rest: &[u8]) -> (&[u8], &[u8]) {
    let cut = rest.iter().position(|&byte| byte == b'/');
    rest.split_at(cut.unwrap_or(rest.len()))
}

/// Splits off the text after `?`.
fn split_query(rest: &[u8]) -> (&[u8], Option<&[u8]>) {
    match rest.iter().position(|&byte| byte == b'?') {
        Some(cut) => (&rest[..cut], Some(&rest[cut + 1..])),
        None => (rest, None),
    }
}

/// Undoes the percent-escapes of a path; returns it unchanged if one is broken.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let decoded = std::str::from_utf8(path).ok().and_then(crate::web::decode);
    decoded
        .filter(|decoded| !decoded.contains(&0))
        .unwrap_or_else(|| path.to_vec())
}

/// Splits `bucket/key`.
fn split_bucket(rest: &[u8], shown: &str, hint: &str) -> Result<(String, String)> {
    let text = std::str::from_utf8(rest).map_err(|_| invalid(shown, "keys are UTF-8", hint))?;
    let (bucket, key) = text.split_once('/').unwrap_or((text, ""));
    if bucket.is_empty() {
        return Err(invalid(shown, "no bucket", hint));
    }
    if bucket.contains('@') || password_in(text).is_some() {
        let cause = "credentials don't belong into addresses";
        return Err(invalid(shown, cause, "use a profile, or the environment"));
    }
    Ok((bucket.to_owned(), key.trim_matches('/').to_owned()))
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    if let Some(rest) = host.strip_prefix('[')
        && let Some((address, port)) = rest.split_once(']')
    {
        // Other text there is no port: it is kept, to be refused.
        let port = match port {
            "" => None,
            _ => Some(port.strip_prefix(':').unwrap_or("no number")),
        };
        return (address, port);
    }
    match host.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host, None),
    }
}

/// Splits `scheme://rest`. A scheme is letters, digits, `+`, `-` and `.` (RFC 3986, section 3.1);
/// anything else before `://` is an unusual file name.
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
    fn addresses_of_ipv6_are_hosts_everywhere() {
        for (text, wanted_user, wanted_path) in [
            ("me@[::1]:/data/x", Some("me"), "/data/x"),
            ("me@[fe80::1%eth0]:x:y", Some("me"), "x:y"),
            ("[::1]:x@y", None, "x@y"),
            ("[::1]:", None, ""),
        ] {
            let Location::Host {
                user, host, path, ..
            } = parse(text).unwrap()
            else {
                panic!("{text} is a path on a host");
            };
            assert!(matches!(&*host, "::1" | "fe80::1%eth0"), "{host}");
            assert_eq!(user.as_deref(), wanted_user);
            assert_eq!(path, wanted_path.as_bytes());
        }
        for scheme in ["http", "webdav", "ftp", "posthaste", "sftp"] {
            let found = parse(&format!("{scheme}://[::1]:81/x")).unwrap();
            let (host, port) = if let Location::Sftp { host, port, .. } = found {
                (host, port)
            } else if let Location::Server(server) = found {
                (server.host, server.port)
            } else {
                panic!("{found:?} is no server");
            };
            assert_eq!((&*host, port), ("::1", Some(81)), "{scheme}");
            assert!(parse(&format!("{scheme}://[::1]81/x")).is_err());
        }
        assert!(matches!(parse("./[::1]:x").unwrap(), Location::Local(_)));
        assert!(matches!(parse("[::1]").unwrap(), Location::Local(_)));
    }

    #[test]
    fn a_slash_at_the_end_of_a_web_address_is_kept_in_mind() {
        for (address, slash) in [
            ("http://h/d/", true),
            ("https://h/", true),
            ("http://h/d", false),
            ("webdav://h/d/", false),
        ] {
            let Location::Server(server) = parse(address).unwrap() else {
                panic!("it is a server");
            };
            assert_eq!(server.slash, slash, "{address}");
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        assert_eq!(parse("a/b").unwrap(), Location::Local("a/b".into()));
        assert_eq!(
            parse("./a:b://c d").unwrap(),
            Location::Local("./a:b://c d".into())
        );
        assert_eq!(
            parse("me@host:data/").unwrap(),
            Location::Host {
                user: Some("me".into()),
                host: "host".into(),
                path: b"data".to_vec(),
                slash: true
            }
        );
        assert_eq!(
            parse("davs://me@host:99/data/").unwrap(),
            Location::Server(Server {
                protocol: Protocol::WebDavs,
                user: Some("me".into()),
                host: "host".into(),
                port: Some(99),
                path: b"/data".to_vec(),
                slash: false,
                query: None
            })
        );
        assert_eq!(
            parse("https://host/a%20b%/c?sig=%2F").unwrap(),
            Location::Server(Server {
                protocol: Protocol::Https,
                user: None,
                host: "host".into(),
                port: None,
                path: b"/a%20b%/c".to_vec(),
                slash: false,
                query: Some("sig=%2F".into())
            })
        );
        let Location::Server(server) = parse("ftp://host/a%20b/%C3%A9").unwrap() else {
            panic!("it is a server");
        };
        assert_eq!(server.path, "/a b/é".as_bytes());
        assert_eq!(parse("az://c/k").unwrap(), parse("azblob://c/k/").unwrap());
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
            "-oProxyCommand=x:path",
            "gs:///key",
            "s3:///key",
            "sftp:///path",
            "sftp://-oProxyCommand=x/path",
            "sftp://u:secret@host/",
            "sftp://host:port/",
            "my host:x",
            "me@my\thost:x",
            "sftp://a b/x",
            "https://a$b/x",
            "https://host:port/?secret",
            "s3://bob:secret@bucket/x",
            "s3://bob:se/secret@bucket/x",
            "gs://bob:secret@bucket",
            "az://:secret@bucket",
            "ftp://bob:se/secret@host/x",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn addresses_are_shown_without_what_is_secret() {
        for (text, shown) in [
            ("x://u:p@h/d", "x://…@h/d"),
            ("x://u:p/q@h/d", "x://…@h/d"),
            ("https://h/d?sig=1", "https://h/d"),
            ("s3://b/a?b:c@d", "s3://b/a?b:c@d"),
            ("sftp://me@h:22/a@b", "sftp://me@h:22/a@b"),
            ("sftp://h:22/a@b", "sftp://h:22/a@b"),
            ("ftp://[::1]:21/a@b", "ftp://[::1]:21/a@b"),
            ("me@h:a:b@c", "me@h:a:b@c"),
        ] {
            assert_eq!(shown_address(OsStr::new(text)), shown);
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
