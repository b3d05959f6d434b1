//! Normalizes the spelling of each place, whichever way people write it.

use std::os::unix::ffi::OsStrExt;

use super::{Location, Server};
use crate::{Error, ErrorKind, Locus, Result};

/// The port of SSH, unless `ssh_config` names another.
const SSH_PORT: u16 = 22;

impl Location {
    /// Spells the place in one way: hosts in lower case, with their ports, and paths without double
    /// slashes and steps up. Two places of one spelling are one; links and other names of a host
    /// are not resolved.
    #[must_use]
    pub fn spelling(&self) -> String {
        let ssh = |user: &Option<String>, host: &str, port: Option<u16>, path: &[u8]| {
            let place = format!(
                "ssh://{}:{}",
                host.to_ascii_lowercase(),
                port.unwrap_or(SSH_PORT)
            );
            if path.starts_with(b"/") {
                return format!("{place}{}", plain(path));
            }
            // A path that begins at home differs for each user.
            let user = user.as_deref().unwrap_or_default();
            format!("{place}/~{user}{}", plain(path))
        };
        match self {
            Self::Local(path) => format!("file://{}", plain(path.as_os_str().as_bytes())),
            Self::S3 { bucket, key } => format!("s3://{bucket}/{}", stepped(key)),
            Self::Bucket { store, bucket, key } => {
                format!("{store:?}://{bucket}/{}", stepped(key))
            }
            Self::Sftp {
                user,
                host,
                port,
                path,
            } => ssh(user, host, *port, path),
            Self::Host {
                user, host, path, ..
            } => ssh(user, host, None, path),
            Self::Server(server) => server.spelling(),
            Self::Plugin { scheme, rest } => {
                format!("{scheme}://{}", String::from_utf8_lossy(rest))
            }
        }
    }
}

impl Location {
    /// Fails for a place in a bucket whose key has a step in it: some stores treat that as a step,
    /// and others as a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`].
    pub(crate) fn refuse_steps(&self) -> Result<()> {
        let (Self::S3 { key, .. } | Self::Bucket { key, .. }) = self else {
            return Ok(());
        };
        match key.split('/').any(|name| matches!(name, "." | "..")) {
            false => Ok(()),
            true => Err(Error::new(ErrorKind::Invalid, "open", self.spelling())
                .cause("stores differ in what they take `.` and `..` of a key for")
                .hint("write the address without them")
                .at(Locus::Client)),
        }
    }
}

impl Server {
    fn spelling(&self) -> String {
        let (scheme, host) = (self.protocol.scheme(), self.host.to_ascii_lowercase());
        format!("{scheme}://{host}:{}{}", self.port(), plain(&self.path))
    }
}

/// Returns a path in its shortest spelling, which begins with a slash unless nothing is left of it.
fn plain(path: &[u8]) -> String {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let shown = names.iter().map(|name| String::from_utf8_lossy(name));
    shown.fold(String::new(), |path, name| path + "/" + &name)
}

/// Returns a key as seen by a store that keeps objects as files, and resolves its steps.
fn stepped(key: &str) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in key.split('/') {
        match name {
            "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_place_is_spelled_in_one_way() {
        let spelled = |text: &str| Location::parse(OsStr::new(text)).unwrap().spelling();
        for (one, other) in [
            ("/data/run", "file:///data//x/../run/"),
            (
                "webdavs://Store.Org/runs/1",
                "davs://u@store.org:443//runs/./1/",
            ),
            ("sftp://Host/data/run", "sftp://me@host:22/data//run"),
            ("host:/data/run", "sftp://host/data/run"),
            ("host:run", "sftp://host/~/run"),
            ("s3://b/run/", "s3://b/run"),
            ("s3://b/x/../run", "s3://b/./run"),
            ("gs://b/x/../run", "gs://b/run"),
            ("S3://b/run", "s3://b/run"),
            ("WebDAV://h/run", "webdav://h/run"),
            ("ftp://h/a%20b", "ftp://h:21/a b"),
        ] {
            assert_eq!(spelled(one), spelled(other), "{one}");
        }
        let parse = |text: &str| Location::parse(OsStr::new(text)).unwrap();
        for stepping in ["s3://b/x/../y", "gs://b/./y", "az://b/.."] {
            assert!(parse(stepping).refuse_steps().is_err(), "{stepping}");
        }
        for plain in ["s3://b/x/..y/.z", "sftp://h/x/../y"] {
            assert!(parse(plain).refuse_steps().is_ok(), "{plain}");
        }
        for (one, other) in [
            ("s3://b/a//b", "s3://b/a/b"),
            ("webdav://h/a", "webdavs://h/a"),
            ("sftp://h/a", "sftp://h:23/a"),
            ("a@host:run", "b@host:run"),
            ("gs://b/a", "az://b/a"),
        ] {
            assert_ne!(spelled(one), spelled(other), "{one}");
        }
    }
}
