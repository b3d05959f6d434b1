//! Names in addresses: known profiles, and unknown hosts.

use std::{
    ffi::{OsStr, OsString},
    net::ToSocketAddrs,
    os::unix::ffi::OsStringExt,
};

use super::{Access, no_such_scheme};
use crate::{
    Error, ErrorKind, Location, Protocol, Result, config, plugin::Launch, proxy::Proxies, sftp, ssh,
};

/// Most letters, changed, missing or swapped, by which a word may differ from the intended one.
const NEAR: usize = 2;
/// Length of the shortest run in which a wrong letter is a slip: `site-a` and `site-b` are two
/// names.
const SLIP_WITHIN: usize = 4;

/// Schemes after which users forget the slashes.
const SCHEMES: [&str; 9] = [
    "s3", "gs", "az", "azblob", "sftp", "http", "https", "webdav", "ftp",
];

/// Returns the known name that `word` probably means, if any.
pub fn nearest<'n>(word: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let far = |known: &str| (strsim::osa_distance(word, known), known.len());
    let near = known.into_iter().min_by_key(|known| far(known))?;
    (far(near).0 <= NEAR && far(near).0 < word.chars().count()).then_some(near)
}

/// Returns whether `word` is `known` with a single typing error, so that it is unlikely to be
/// another name.
#[must_use]
pub fn is_slip(word: &str, known: &str) -> bool {
    let same = |(one, other): &(u8, u8)| one == other;
    let before = word.bytes().zip(known.bytes()).take_while(same).count();
    let backwards = word.bytes().rev().zip(known.bytes().rev());
    let after = backwards.take_while(same).count();
    let letters = |bytes: &mut dyn Iterator<Item = u8>| {
        let run = bytes.take_while(u8::is_ascii_alphabetic);
        run.count()
    };
    // Word in which they differ, and the difference.
    let run = |text: &str| {
        let (behind, ahead) = text.as_bytes().split_at(before.min(text.len()));
        letters(&mut behind.iter().rev().copied()) + letters(&mut ahead.iter().copied())
    };
    let is_of_letters = |text: &str| {
        let end = text.len().saturating_sub(after).max(before);
        let middle = text.as_bytes().get(before..end).unwrap_or_default();
        middle.iter().all(u8::is_ascii_alphabetic)
    };
    strsim::osa_distance(word, known) == 1
        && run(word).max(run(known)) >= SLIP_WITHIN
        && [word, known].into_iter().all(is_of_letters)
}

/// Returns `hint`, preceded by the intended name if a similar one exists.
pub fn meant<'n>(word: &str, known: impl IntoIterator<Item = &'n str>, hint: &str) -> String {
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`? {hint}"),
        None => hint.to_owned(),
    }
}

impl Access {
    /// Returns whether there is a profile of that name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::PermissionDenied`] for an unusable `profiles.toml`.
    pub fn has_profile(&self, name: &str) -> Result<bool> {
        Ok(self.profile(name)?.is_some())
    }

    /// Returns an access for an address that a waiting user typed: an unknown host is then not
    /// found rather than temporarily unreachable.
    #[must_use]
    pub fn typed(self) -> Self {
        Self {
            is_typed: true,
            ..self
        }
    }

    /// Fails for an address whose scheme belongs to no plug-in, or whose host is neither known to a
    /// resolver nor a profile. Hosts that a resolver can't answer now, or that only a proxy, a
    /// gateway or a store knows, pass. Blocking.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for such a name, perhaps with the intended profile; errors of
    /// [`Access::resolve`].
    pub fn refuse_unknown_host(&self, location: &Location) -> Result<()> {
        let (place, chosen) = self.place(location.clone())?;
        let (host, is_known) = match &place {
            Location::Host { host, user, .. } => {
                let host = self.ssh_host(user.clone(), host, None, chosen.as_ref());
                (host.host.clone(), ssh::knows(&host))
            }
            Location::Sftp {
                user, host, port, ..
            } => {
                let host = self.ssh_host(user.clone(), host, *port, chosen.as_ref());
                (host.host.clone(), ssh::knows(&host))
            }
            Location::Server(server) => {
                let is_behind = match server.protocol {
                    Protocol::Posthaste => !self.gateways.is_empty(),
                    Protocol::Http | Protocol::Https | Protocol::WebDav | Protocol::WebDavs => {
                        Proxies::of_environment()?.are_there()
                    }
                    Protocol::Ftp | Protocol::Ftps => false,
                };
                (server.host.clone(), is_behind || resolves(&server.host))
            }
            Location::Plugin { scheme, .. } => {
                return match Launch::find(scheme, chosen.as_ref())? {
                    Some(_) => Ok(()),
                    None => Err(no_such_scheme(scheme)),
                };
            }
            Location::Local(_) | Location::S3 { .. } | Location::Bucket { .. } => return Ok(()),
        };
        match is_known {
            true => Ok(()),
            false => Err(self.unknown_host(ErrorKind::NotFound, location, &host)),
        }
    }

    /// Returns an error about an address with an unknown host.
    fn unknown_host(&self, kind: ErrorKind, location: &Location, host: &str) -> Error {
        let fail = |cause: String| Error::new(kind, "find", host).cause(cause);
        let Some((name, _)) = named(location) else {
            return fail("no host has that name".into()).hint("check the address");
        };
        let profiles = config::profiles(self.profiles_file.as_deref()).unwrap_or_default();
        if profiles.names().any(|known| known == name) {
            let cause = format!("the profile `{name}` has no url, and no host has that name");
            return fail(cause).hint(format!(
                "give it one in profiles.toml, or write the whole address with --profile {name}"
            ));
        }
        if SCHEMES.contains(&&*name.to_ascii_lowercase()) {
            let hint = format!("write {name}://…: an address has two slashes after its colon");
            return fail("no host has that name".into()).hint(hint);
        }
        let hint = "profiles are in ~/.config/posthaste/profiles.toml";
        fail(format!("no profile `{name}`, and no host of that name")).hint(meant(
            name,
            profiles.names(),
            hint,
        ))
    }

    /// Adds to an error of an unreachable place that its host name is unknown, if so.
    pub(super) async fn name_host(&self, location: Location, error: Error) -> Error {
        if error.kind() != ErrorKind::Unreachable {
            return error;
        }
        let access = self.clone();
        let looked = tokio::task::spawn_blocking(move || access.refuse_unknown_host(&location));
        match looked.await {
            Ok(Err(unknown)) if unknown.kind() == ErrorKind::NotFound => {
                let unknown = unknown.at(error.locus());
                match self.is_typed {
                    true => unknown,
                    // A resolver may know it again later.
                    false => unknown.of_kind(ErrorKind::Unreachable),
                }
            }
            Ok(Ok(()) | Err(_)) | Err(_) => error,
        }
    }

    pub(super) fn ssh_host(
        &self,
        user: Option<String>,
        host: &str,
        port: Option<u16>,
        chosen: Option<&super::Chosen>,
    ) -> sftp::Host {
        sftp::Host {
            user,
            host: host.to_owned(),
            port,
            options: self.ssh_options(chosen),
        }
    }
}

/// Returns whether a host has an address, as far as can be determined: a failing resolver proves
/// nothing.
pub(crate) fn resolves(host: &str) -> bool {
    match (host, 0).to_socket_addrs() {
        Ok(_) => true,
        Err(cause) => cause.to_string().contains("Temporary failure"),
    }
}

/// Splits `NAME:path` if `NAME` can be a profile's. A slash at the end of the path stays.
pub(super) fn named(location: &Location) -> Option<(&str, Vec<u8>)> {
    match location {
        Location::Host {
            user: None,
            host,
            path,
            slash,
        } => {
            let slash: &[u8] = if *slash { b"/" } else { b"" };
            Some((host, [path, slash].concat()))
        }
        Location::Host { user: Some(_), .. }
        | Location::Local(_)
        | Location::S3 { .. }
        | Location::Sftp { .. }
        | Location::Bucket { .. }
        | Location::Server(_)
        | Location::Plugin { .. } => None,
    }
}

/// Returns the address `path` below the address `base`.
pub(super) fn below(base: &str, path: &[u8]) -> Result<Location> {
    let start = path.iter().take_while(|&&byte| byte == b'/').count();
    let path = &path[start..];
    if path.is_empty() {
        return Location::parse(OsStr::new(base));
    }
    let slash = if base.ends_with(['/', ':']) { "" } else { "/" };
    let text = [base.as_bytes(), slash.as_bytes(), path].concat();
    Location::parse(&OsString::from_vec(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_near() {
        let known = ["home", "ash", "site-a", "site-b"];
        for (word, wanted) in [
            ("hmoe", Some("home")),
            ("ahs", Some("ash")),
            ("x", None),
            ("elsewhere", None),
            ("site-c", Some("site-a")),
        ] {
            assert_eq!(nearest(word, known), wanted, "{word}");
        }
    }

    #[test]
    fn a_slip_is_no_other_name() {
        for (word, known, wanted) in [
            ("hmoe", "home", true),
            ("hoome", "home", true),
            ("hme", "home", true),
            ("hone", "home", true),
            ("home", "home", false),
            ("home2", "home", false),
            ("site-c", "site-a", false),
            ("ash", "ask", false),
            ("r1", "r2", false),
            ("archive", "home", false),
        ] {
            assert_eq!(is_slip(word, known), wanted, "{word}");
        }
    }

    #[test]
    fn a_host_that_nobody_knows_is_told_with_the_profile_that_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profiles.toml");
        std::fs::write(&file, "[\"cloud.invalid\"]\nurl = \"s3://bucket\"\n").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).unwrap();
        let access = Access::new(None, Vec::new()).with_profiles(file);
        let look = |address: &str| {
            let location = Location::parse(address.as_ref()).unwrap();
            access
                .refuse_unknown_host(&location)
                .map_err(|error| error.to_string())
        };
        let said = look("clowd.invalid:x").unwrap_err();
        assert!(said.contains("no profile `clowd.invalid`"), "{said}");
        assert!(said.contains("did you mean `cloud.invalid`?"), "{said}");
        for known in [
            "cloud.invalid:x",
            "/x",
            "sftp://127.0.0.1/x",
            "ftp://localhost/x",
            "s3://no/x",
        ] {
            look(known).unwrap();
        }
        for unknown in [
            "sftp://typo.invalid/x",
            "me@typo.invalid:x",
            "ftp://typo.invalid/x",
        ] {
            let said = look(unknown).unwrap_err();
            assert!(said.contains("no host has that name"), "{said}");
        }
    }
}
