//! Containment of places.

use std::os::unix::ffi::OsStrExt;

use super::{Location, Protocol, Server, trim_end_slashes};

impl Location {
    /// Returns whether the location is `base` or lies below it: the same place, as both are parsed,
    /// and no step up on the way.
    #[must_use]
    pub fn lies_below(&self, base: &Self) -> bool {
        match (self, base) {
            (Self::S3 { bucket, key }, Self::S3 { bucket: b, key: k }) => {
                bucket == b && is_below(key.as_bytes(), k.as_bytes())
            }
            (
                Self::Bucket { store, bucket, key },
                Self::Bucket {
                    store: s,
                    bucket: b,
                    key: k,
                },
            ) => (store, bucket) == (s, b) && is_below(key.as_bytes(), k.as_bytes()),
            (Self::Server(server), Self::Server(of)) => {
                let is_users = server.user.is_none() || server.user == of.user;
                let is_same = server.protocol == of.protocol
                    && server.host.eq_ignore_ascii_case(&of.host)
                    && server.port() == of.port();
                let is_plain = server.query.is_none();
                is_users && is_same && is_plain && is_below(&server.path, &of.path)
            }
            (
                Self::Sftp {
                    user,
                    host,
                    port,
                    path,
                },
                Self::Sftp {
                    user: u,
                    host: h,
                    port: p,
                    path: of,
                },
            ) => (user, port) == (u, p) && host.eq_ignore_ascii_case(h) && is_below(path, of),
            (
                Self::Host {
                    user, host, path, ..
                },
                Self::Host {
                    user: u,
                    host: h,
                    path: of,
                    ..
                },
            ) => user == u && host.eq_ignore_ascii_case(h) && is_below(path, of),
            (Self::Local(path), Self::Local(of)) => {
                is_below(path.as_os_str().as_bytes(), of.as_os_str().as_bytes())
            }
            (
                Self::Plugin { scheme, rest },
                Self::Plugin {
                    scheme: s,
                    rest: of,
                },
            ) => scheme == s && is_below(rest, of),
            (
                Self::Local(_)
                | Self::S3 { .. }
                | Self::Sftp { .. }
                | Self::Bucket { .. }
                | Self::Server(_)
                | Self::Host { .. }
                | Self::Plugin { .. },
                _,
            ) => false,
        }
    }
}

impl Server {
    /// Returns the port it is reached at.
    pub(crate) fn port(&self) -> u16 {
        self.port.unwrap_or(match self.protocol {
            Protocol::Http | Protocol::WebDav => 80,
            Protocol::Https | Protocol::WebDavs => 443,
            Protocol::Ftp => 21,
            Protocol::Ftps => 990,
            Protocol::Posthaste => 0,
        })
    }
}

/// Returns whether `path` is `base` or lies below it, with no step up on the way.
fn is_below(path: &[u8], base: &[u8]) -> bool {
    let base = trim_end_slashes(base);
    let base = if base == b"/" { b"" } else { base };
    let goes_up = path
        .split(|&byte| byte == b'/')
        .any(|name| matches!(name, b"." | b".."));
    let rest = path.strip_prefix(base);
    !goes_up && rest.is_some_and(|rest| base.is_empty() || rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn what_lies_below_is_the_same_place() {
        let parse = |text: &str| Location::parse(OsStr::new(text)).unwrap();
        for (address, base) in [
            ("s3://b/a/x", "s3://b/a"),
            ("s3://b/a", "s3://b/a/"),
            ("s3://b/x", "s3://b"),
            ("https://H/d/x", "https://h:443/d"),
            ("webdavs://h/d", "webdavs://u@h/d"),
            ("h:a/b", "h:a"),
            ("/a/b", "/a"),
        ] {
            assert!(parse(address).lies_below(&parse(base)), "{address} {base}");
        }
        for (address, base) in [
            ("s3://b/ab", "s3://b/a"),
            ("s3://c/a", "s3://b/a"),
            ("http://h/d", "https://h/d"),
            ("https://h.evil/d", "https://h/d"),
            ("https://h:8443/d", "https://h/d"),
            ("https://v@h/d", "https://u@h/d"),
            ("https://h/d/%2e%2e/x", "https://h/d"),
            ("https://h/d/../x", "https://h/d"),
            ("https://h/d?x", "https://h/d"),
            ("h:a/../b", "h:a"),
            ("/a/../b", "/a"),
            ("gs://b/a", "s3://b/a"),
        ] {
            assert!(!parse(address).lies_below(&parse(base)), "{address} {base}");
        }
    }
}
