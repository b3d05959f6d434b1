//! Places of listings: the credentials, the endpoint and the path there.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use posthaste_endpoint::{Error, ErrorKind, Location, Protocol, Result};

/// Directory of an endpoint, opened with one credential. Equal places are the same directory as the
/// same owner sees it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Properties that all places opened together share.
    root: Arc<Root>,
    /// Path at the endpoint, with `/` between names.
    path: Vec<u8>,
}

/// Endpoint without a path, as one credential opens it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Root {
    /// Named profile; the environment's credentials without.
    profile: Option<String>,
    /// Address without its path. It may contain a signature, so it is never shown.
    authority: String,
    site: Site,
    /// Owner whose rights or credential opens it, and the number of that credential; none if all
    /// see the same.
    whose: Option<(String, u64)>,
}

/// Server that reads and writes share, by any caller and under any of its addresses.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Site(String);

/// Written place: listings of it, above it and below it are outdated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    site: Site,
    path: Vec<u8>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {}",
            self.root.site,
            String::from_utf8_lossy(&self.path)
        )
    }
}

impl Place {
    /// Resolves an address with a profile to a place. `resolve` returns what is behind `NAME:path`,
    /// where NAME is a profile. Blocking: links in local paths are followed.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an address that is invalid here, and errors of following links.
    pub(crate) fn of(
        address: &str,
        profile: Option<&str>,
        resolve: impl FnOnce(Location) -> Result<Location>,
    ) -> Result<Self> {
        let location = Location::parse(OsStr::new(address))?;
        let mut profile = profile;
        let mut path = path_of(&location).to_vec();
        let mut site = site_of(&location);
        if let Location::Local(local) = &location {
            profile = None;
            path = followed(local)?;
        } else if goes_up(&path) {
            return Err(invalid(
                address,
                "its path goes up",
                "write where it leads, without `..`",
            ));
        }
        if let Location::Host {
            user: None, host, ..
        } = &location
        {
            let resolved = resolve(location.clone())?;
            if resolved != location {
                // The profile of that name opens it, whatever else was named.
                profile = Some(host);
                path = trimmed_start(&path).to_vec();
            }
            site = site_of(&resolved);
        }
        let root = Root {
            profile: profile.map(str::to_owned),
            authority: authority_of(&location),
            site,
            whose: None,
        };
        Ok(Self {
            root: Arc::new(root),
            path,
        })
    }

    /// Returns the place as an owner sees it with the credential of this number, or as nobody else
    /// does.
    pub(crate) fn seen_by(self, owner: &str, number: u64) -> Self {
        let root = Root {
            whose: Some((owner.to_owned(), number)),
            ..(*self.root).clone()
        };
        Self {
            root: Arc::new(root),
            ..self
        }
    }

    pub(crate) fn site(&self) -> &Site {
        &self.root.site
    }

    pub(crate) fn root(&self) -> &Arc<Root> {
        &self.root
    }

    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the path of a place on this machine.
    pub(crate) fn local(&self) -> Option<&Path> {
        let is_local = self.root.authority == LOCAL;
        is_local.then(|| Path::new(OsStr::from_bytes(&self.path)))
    }

    /// Returns the subdirectory of this name.
    pub(crate) fn child(&self, name: &[u8]) -> Self {
        let is_bare = self.path.is_empty() && !self.root.has_slash();
        let slash: &[u8] = if is_bare || self.path.ends_with(b"/") {
            b""
        } else {
            b"/"
        };
        Self {
            root: Arc::clone(&self.root),
            path: [&self.path, slash, name].concat(),
        }
    }

    /// Returns its parent, and its name there.
    pub(crate) fn parent(&self) -> Option<(Self, &[u8])> {
        let slash = self.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = match slash {
            None => (&b""[..], &self.path[..]),
            Some(0) if self.root.has_slash() => (&b""[..], &self.path[1..]),
            Some(0) => (&b"/"[..], &self.path[1..]),
            Some(at) => (&self.path[..at], &self.path[at + 1..]),
        };
        let parent = Self {
            root: Arc::clone(&self.root),
            path: above.to_vec(),
        };
        (!name.is_empty()).then_some((parent, name))
    }

    /// Returns the directory at this path below it.
    pub(crate) fn below_it(&self, path: &[u8]) -> Self {
        if path.is_empty() {
            return self.clone();
        }
        self.child(path)
    }

    /// Returns whether it is this directory or lies below it.
    pub(crate) fn lies_in(&self, other: &Self) -> bool {
        let rest = self.path.strip_prefix(&*other.path);
        let is_below = |rest: &[u8]| {
            rest.is_empty()
                || other.path.is_empty()
                || other.path.ends_with(b"/")
                || rest.starts_with(b"/")
        };
        self.root == other.root && rest.is_some_and(is_below)
    }

    /// Returns the path of the endpoint that lists this directory and its neighbours.
    pub(crate) fn top(&self) -> Vec<u8> {
        let scheme = self.root.authority.split(':').next().unwrap_or_default();
        match scheme {
            "file" => b"/".to_vec(),
            "sftp" if self.path.starts_with(b"/") => b"/".to_vec(),
            "sftp" | "s3" | "azblob" | "gs" | "webdav" | "webdavs" => Vec::new(),
            _ if self.root.is_named() => Vec::new(),
            _ => self.path.clone(),
        }
    }

    /// Returns its path at an endpoint opened at `base`; none if it does not lie there.
    pub(crate) fn below<'p>(&'p self, base: &[u8]) -> Option<&'p [u8]> {
        let is_absolute = |path: &[u8]| path.starts_with(b"/");
        if base.is_empty() {
            let fits = self.root.has_slash() || !is_absolute(&self.path);
            return fits.then(|| trimmed_start(&self.path));
        }
        let rest = self.path.strip_prefix(base)?;
        let is_below = rest.is_empty() || base.ends_with(b"/") || is_absolute(rest);
        is_below.then(|| trimmed_start(rest))
    }

    /// Returns the address of `path` at the same endpoint, to be opened with its profile.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if such an address can't be written.
    pub(crate) fn location(&self, path: &[u8]) -> Result<Location> {
        let authority = OsStr::new(&self.root.authority[..]);
        if self.root.authority == LOCAL {
            return Ok(Location::Local(OsStr::from_bytes(path).into()));
        }
        let mut location = Location::parse(authority)?;
        let text = || {
            String::from_utf8(path.to_vec()).map_err(|_| {
                Error::new(ErrorKind::Invalid, "list", "a directory").cause("its name is not UTF-8")
            })
        };
        match &mut location {
            Location::Local(local) => *local = OsStr::from_bytes(path).into(),
            Location::S3 { key, .. } | Location::Bucket { key, .. } => *key = text()?,
            Location::Sftp { path: there, .. } | Location::Host { path: there, .. } => {
                *there = path.to_vec();
            }
            Location::Server(server) => server.path = path.to_vec(),
            Location::Plugin { rest, .. } => *rest = path.to_vec(),
        }
        Ok(location)
    }

    /// Returns whether a write makes an earlier listing of this directory untrue.
    pub(crate) fn is_touched_by(&self, written: &Written) -> bool {
        self.root.site == written.site && overlap(&self.path, &written.path, self.root.is_named())
    }
}

impl Root {
    pub(crate) fn profile(&self) -> Option<&String> {
        self.profile.as_ref()
    }

    /// Returns the owner whose rights or credential opens it, if that makes a difference.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.whose.as_ref().map(|(owner, _)| owner.as_str())
    }

    /// Returns whether its path, if any, begins with a slash.
    fn has_slash(&self) -> bool {
        let scheme = self.authority.split("://").next().unwrap_or_default();
        matches!(
            scheme,
            "http" | "https" | "webdav" | "webdavs" | "ftp" | "ftps" | "posthaste"
        )
    }

    /// Returns whether it is opened by a profile whose own path is not part of this path.
    fn is_named(&self) -> bool {
        self.authority.ends_with(':') && self.profile.as_deref() == self.authority.strip_suffix(':')
    }

    /// Returns its bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let owner = self.owner().map_or(0, str::len);
        let profile = self.profile.as_ref().map_or(0, String::len);
        self.authority.len() + profile + self.site.0.len() + owner
    }
}

impl Site {
    /// Returns whether it is on this machine.
    pub(crate) fn is_here(&self) -> bool {
        self.0 == HERE
    }

    /// Returns whether it is accessed over SSH.
    pub(crate) fn is_ssh(&self) -> bool {
        self.0.starts_with(SSH)
    }
}

impl Written {
    /// Returns what a request that goes to an address writes, and so the listings it touches.
    /// Blocking.
    ///
    /// # Errors
    /// Errors of [`Place::of`].
    pub(crate) fn at(
        address: &str,
        resolve: impl FnOnce(Location) -> Result<Location>,
    ) -> Result<Self> {
        let location = resolve(Location::parse(OsStr::new(address))?)?;
        let path = match &location {
            Location::Local(local) => followed(local)?,
            Location::S3 { .. }
            | Location::Sftp { .. }
            | Location::Bucket { .. }
            | Location::Server(_)
            | Location::Host { .. }
            | Location::Plugin { .. } => path_of(&location).to_vec(),
        };
        Ok(Self {
            site: site_of(&location),
            path,
        })
    }
}

/// Authority shared by all places on this machine.
const LOCAL: &str = "file:";
const HERE: &str = "here";
/// Prefix of hosts accessed over SSH.
const SSH: &str = "ssh ";

/// Returns whether one path lies at, above or below the other. Paths with possibly different roots
/// may overlap, and so may paths of profiles.
fn overlap(one: &[u8], other: &[u8], is_named: bool) -> bool {
    let is_absolute = |path: &[u8]| path.starts_with(b"/");
    if is_named || is_absolute(one) != is_absolute(other) {
        return true;
    }
    let (one, other) = (trimmed(one), trimmed(other));
    let (short, long) = if one.len() < other.len() {
        (one, other)
    } else {
        (other, one)
    };
    let rest = long.strip_prefix(short);
    rest.is_some_and(|rest| short.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

fn trimmed_start(path: &[u8]) -> &[u8] {
    let start = path.iter().take_while(|byte| **byte == b'/').count();
    &path[start..]
}

fn trimmed(path: &[u8]) -> &[u8] {
    let path = trimmed_start(path);
    let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
    &path[..path.len() - slashes]
}

fn goes_up(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// Returns an absolute path with links resolved as far as it exists.
fn followed(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display().to_string();
    if !path.is_absolute() {
        let hint = "the service has directories of its own: write the path from the root on";
        return Err(invalid(&shown, "it is no absolute path", hint));
    }
    let followed = match std::fs::canonicalize(path) {
        Ok(followed) => followed,
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {
            crate::jobs::places::as_far_as_it_is(path)
        }
        Err(cause) => return Err(Error::io("list", shown, cause)),
    };
    Ok(followed.as_os_str().as_bytes().to_vec())
}

fn path_of(location: &Location) -> &[u8] {
    match location {
        Location::Local(path) => path.as_os_str().as_bytes(),
        Location::S3 { key, .. } | Location::Bucket { key, .. } => key.as_bytes(),
        Location::Sftp { path, .. } | Location::Host { path, .. } => path,
        Location::Server(server) => &server.path,
        Location::Plugin { rest, .. } => rest,
    }
}

/// Returns the address of the root, without the path.
fn authority_of(location: &Location) -> String {
    let user = |user: &Option<String>| match user {
        Some(user) => format!("{user}@"),
        None => String::new(),
    };
    let port = |port: Option<u16>| port.map_or_else(String::new, |port| format!(":{port}"));
    match location {
        Location::Local(_) => LOCAL.to_owned(),
        Location::S3 { bucket, .. } => format!("s3://{bucket}"),
        Location::Sftp {
            user: who,
            host,
            port: at,
            path: _,
        } => format!("sftp://{}{}{}", user(who), bracketed(host), port(*at)),
        Location::Bucket { store, bucket, .. } => match store {
            posthaste_endpoint::Store::Azblob => format!("azblob://{bucket}"),
            posthaste_endpoint::Store::Gcs => format!("gs://{bucket}"),
        },
        Location::Server(server) => {
            let query = server.query.as_ref();
            let query = query.map_or_else(String::new, |query| format!("?{query}"));
            format!(
                "{}://{}{}{}{query}",
                server.protocol.scheme(),
                user(&server.user),
                bracketed(&server.host),
                port(server.port)
            )
        }
        Location::Host {
            user: who, host, ..
        } => format!("{}{}:", user(who), bracketed(host)),
        Location::Plugin { scheme, .. } => format!("{scheme}://"),
    }
}

/// Returns an IPv6 address in brackets, as in URLs.
fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn site_of(location: &Location) -> Site {
    Site(match location {
        Location::Local(_) => HERE.to_owned(),
        Location::S3 { bucket, .. } | Location::Bucket { bucket, .. } => format!("bucket {bucket}"),
        Location::Sftp { host, .. } | Location::Host { host, .. } => {
            format!("{SSH}{}", host.to_lowercase())
        }
        Location::Server(server) => match server.protocol {
            Protocol::Http
            | Protocol::Https
            | Protocol::WebDav
            | Protocol::WebDavs
            | Protocol::Ftp
            | Protocol::Ftps
            | Protocol::Posthaste => format!("server {}", server.host.to_lowercase()),
        },
        Location::Plugin { scheme, .. } => format!("plug-in {scheme}"),
    })
}

fn invalid(address: &str, cause: &'static str, hint: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "list", address)
        .cause(cause)
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(address: &str, profile: Option<&str>) -> Place {
        Place::of(address, profile, named).unwrap()
    }

    /// Resolves `archive:` as a profile, and leaves everything else.
    fn named(location: Location) -> Result<Location> {
        if let Location::Host {
            user: None,
            host,
            path,
            ..
        } = &location
            && host == "archive"
        {
            let path = String::from_utf8_lossy(path);
            return Location::parse(OsStr::new(&format!("s3://vault/base/{path}")));
        }
        Ok(location)
    }

    #[test]
    fn a_directory_has_one_place_however_it_is_come_to() {
        for (address, name, child) in [
            ("s3://b", "run", "s3://b/run"),
            ("s3://b/run/", "a b", "s3://b/run/a b"),
            ("sftp://me@h:22/", "x", "sftp://me@h:22/x"),
            ("sftp://h/data", "x", "sftp://h/data/x"),
            ("sftp://h/~", "x", "sftp://h/~/x"),
            ("webdav://h:8080", "x", "webdav://h:8080/x"),
            ("https://h/a?sig=1", "x", "https://h/a/x?sig=1"),
            ("archive:", "x", "archive:x"),
            ("archive:/x", "y", "archive:x/y"),
            ("/", "tmp", "/tmp"),
        ] {
            let (parent, child) = (place(address, None), place(child, None));
            assert_eq!(parent.child(name.as_bytes()), child, "{address}");
            assert_eq!(child.parent(), Some((parent, name.as_bytes())), "{address}");
        }
        assert!(place("s3://b", None).parent().is_none());
        assert!(place("sftp://h/", None).parent().is_none());
        assert!(place("webdav://h", None).parent().is_none());
    }

    #[test]
    fn what_lies_in_a_directory_is_known_by_its_path() {
        let lies = |one: &str, other: &str| place(one, None).lies_in(&place(other, None));
        assert!(lies("s3://b/x/y", "s3://b/x") && lies("s3://b/x", "s3://b/x"));
        assert!(lies("s3://b/x", "s3://b") && lies("/tmp", "/"));
        assert!(!lies("s3://b/xy", "s3://b/x") && !lies("s3://b", "s3://b/x"));
        assert!(!lies("s3://c/x", "s3://b"));
    }

    #[test]
    fn credentials_keep_places_apart() {
        let with = |profile| place("s3://vault/base/x", profile);
        assert_ne!(with(Some("archive")), with(Some("mine")));
        assert_ne!(with(Some("archive")), with(None));
        assert_ne!(with(Some("archive")), place("archive:x", None));
        // A named profile or credential is used whatever else was given.
        assert_eq!(place("archive:x", Some("mine")), place("archive:x", None));
        assert_eq!(place("/tmp", Some("mine")), place("/tmp", None));
    }

    #[test]
    fn endpoints_are_opened_where_their_neighbours_are_listed_too() {
        for (address, top, below) in [
            ("s3://b/run/a", "", "run/a"),
            ("sftp://h/data/x", "/", "data/x"),
            ("sftp://h/~/x", "", "x"),
            ("webdav://h/x", "", "x"),
            ("https://h/x/y", "/x/y", ""),
            ("me@h:/x/y", "/x/y", ""),
            ("archive:x", "", "x"),
            ("/tmp", "/", "tmp"),
        ] {
            let place = place(address, None);
            assert_eq!(place.top(), top.as_bytes(), "{address}");
            assert_eq!(place.below(top.as_bytes()), Some(below.as_bytes()));
            let there = place.location(place.path()).unwrap();
            let then = path_of(&there);
            assert_eq!(then, place.path(), "{address}");
        }
        assert_eq!(place("sftp://h/~/x", None).below(b"/"), None);
        assert_eq!(place("sftp://h/x", None).below(b""), None);
        assert_eq!(place("me@h:/xy", None).below(b"/x"), None);
        assert_eq!(place("me@h:/x/y", None).below(b"/x"), Some(&b"y"[..]));
    }

    #[test]
    fn what_is_written_touches_what_lies_there_and_above_and_below() {
        let written = |address: &str| Written::at(address, named).unwrap();
        let run = written("s3://vault/base/run");
        for (address, is_touched) in [
            ("s3://vault/base/run", true),
            ("s3://vault/base/run/deep/er", true),
            ("s3://vault/base", true),
            ("s3://vault", true),
            ("s3://vault/base/run-2", false),
            ("s3://vault/other", false),
            ("s3://other/base/run", false),
            // The path of the profile is not part of this path.
            ("archive:run", true),
            ("/tmp", false),
        ] {
            let touched = place(address, Some("p")).is_touched_by(&run);
            assert_eq!(touched, is_touched, "{address}");
        }
        let over = written("archive:run");
        assert_eq!(over, run);
        let ssh = written("sftp://me@h/data");
        for address in ["sftp://h/data/x", "other@h:/data", "sftp://h/~/x", "H:x"] {
            assert!(place(address, None).is_touched_by(&ssh), "{address}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (address, why) in [
            ("relative/path", "absolute"),
            ("s3://b/../x", "goes up"),
            ("sftp://h/a/../../etc", "goes up"),
            ("s3://", "s3://"),
            ("", "empty"),
        ] {
            let refused = Place::of(address, None, named).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{address}");
            assert!(refused.to_string().contains(why), "{refused}");
        }
        assert_eq!(place("/tmp/../tmp", None), place("/tmp", None));
    }
}
