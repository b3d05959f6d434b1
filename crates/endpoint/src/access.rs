//! Opening of addresses with the credentials that users already have.

mod names;
mod reach;
mod spelling;

use std::{path::PathBuf, sync::Arc};

pub(crate) use names::resolves;
use names::{below, named};
pub use names::{is_slip, meant, nearest};
use reach::refuse_plain;

use posthaste_types::ByteRate;

use crate::{
    Actor, Boxed, Endpoint, Error, ErrorKind, Location, Protocol, Result, Store, azure,
    config::{self, Profile},
    ftp::Ftp,
    gateway::Gateways,
    gcs,
    limits::{Limited, Limits, Registry},
    location::Server,
    peer::{self, Peer, StartOptions},
    plugin::{Launch, Plugin},
    posix::{DraftRules, Posix},
    reach::Reach,
    relay::{Credential, FingerprintError, read_secret_file},
    s3,
    sftp::Sftp,
    site::Site,
    webdav::WebDav,
};

/// Settings for opening addresses.
#[derive(Debug, Clone, Default)]
pub struct Access {
    profile: Option<String>,
    ssh_options: Vec<String>,
    profiles_file: Option<PathBuf>,
    start: StartOptions,
    gateways: Arc<Gateways>,
    limits: Registry,
    actor: Actor,
    given: Option<Arc<Given>>,
    unsigned: bool,
    is_typed: bool,
    reach: Reach,
}

/// Cost of reading from a place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prices {
    /// Cost of a gigabyte (10^9 bytes), in millionths of a dollar.
    pub egress_micro_usd: u64,
    /// Cost of a thousand GETs, in millionths of a dollar.
    pub get_micro_usd: u64,
}

/// Profile that is in no file.
#[derive(Debug)]
struct Given {
    /// Name that stands for it in addresses.
    host: String,
    chosen: Chosen,
}

/// Explicitly chosen profile.
#[derive(Debug, Clone)]
pub(crate) struct Chosen {
    pub name: String,
    /// Our own profile; `None` if only `~/.aws` can know it.
    pub ours: Option<Profile>,
}

impl Access {
    /// Creates an access with the credentials of `profile`, or of the environment, and options for
    /// `ssh`.
    #[must_use]
    pub fn new(profile: Option<String>, ssh_options: Vec<String>) -> Self {
        Self {
            profile,
            ssh_options,
            ..Self::default()
        }
    }

    /// Returns an access with the credentials of another profile. Endpoints that both open with one
    /// profile share its caps.
    #[must_use]
    pub fn with_profile(&self, profile: String) -> Self {
        Self {
            profile: Some(profile),
            ..self.clone()
        }
    }

    /// Returns an access that touches files of this machine with the rights of `actor`. Places
    /// reached over a network, or by a program, are reached as before.
    #[must_use]
    pub fn acting(&self, actor: Actor) -> Self {
        Self {
            actor,
            ..self.clone()
        }
    }

    /// Returns an access for which `HOST:path` is a place below the address of this profile,
    /// whatever the file of profiles says. The profile is shown, and its caps apply, under `name`.
    #[must_use]
    pub fn with_given(&self, host: String, name: String, profile: Profile) -> Self {
        let chosen = Chosen {
            name,
            ours: Some(profile),
        };
        Self {
            given: Some(Arc::new(Given { host, chosen })),
            ..self.clone()
        }
    }

    /// Reads profiles from `path` rather than from `~/.config/posthaste/profiles.toml`.
    #[must_use]
    pub fn with_profiles(mut self, path: PathBuf) -> Self {
        self.profiles_file = Some(path);
        self
    }

    fn profile(&self, name: &str) -> Result<Option<Profile>> {
        config::profile(self.profiles_file.as_deref(), name)
    }

    /// Sets how posthaste is started at the other end of SSH.
    #[must_use]
    pub fn with_start(mut self, start: StartOptions) -> Self {
        self.start = start;
        self
    }

    /// Reaches other posthastes through the gateways that lead to them.
    #[must_use]
    pub fn with_gateways(mut self, gateways: Gateways) -> Self {
        self.gateways = Arc::new(gateways);
        self
    }

    /// Resolves `NAME:path` to a place below the address of the profile `NAME`, which wins over a
    /// host of that name. [`Access::open`] accepts the location as it was written.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::PermissionDenied`] for an unusable `profiles.toml`.
    pub fn resolve(&self, location: Location) -> Result<Location> {
        Ok(self.place(location)?.0)
    }

    /// Returns the cost of reading from `location`, as its profile states. Paths of this machine
    /// cost nothing, unless the `url` of a profile names them.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn prices(&self, location: Location) -> Result<Prices> {
        let profile = self.ours_for(location)?;
        Ok(profile.map_or_else(Prices::default, |profile| Prices {
            egress_micro_usd: profile.egress_micro_usd,
            get_micro_usd: profile.get_micro_usd,
        }))
    }

    /// Returns the profile's cap in bytes per second for transfers to and from `location`; none for
    /// paths of this machine.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn rate_max(&self, location: Location) -> Result<Option<ByteRate>> {
        Ok(self
            .ours_for(location)?
            .and_then(|profile| profile.rate_max))
    }

    /// Returns the service user's or the credential's profile for a place beyond this machine.
    fn ours_for(&self, location: Location) -> Result<Option<Profile>> {
        if matches!(location, Location::Local(_)) {
            return Ok(None);
        }
        let (_, chosen) = self.place(location)?;
        Ok(chosen.and_then(|chosen| chosen.ours))
    }

    /// Returns the fallback for a `location` that fails permanently, if its profile names one: the
    /// same path below another address.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn fallback(&self, location: &Location) -> Result<Option<Location>> {
        let Some((name, path)) = named(location) else {
            return Ok(None);
        };
        let profile = self.profile(name)?;
        let base = profile.and_then(|profile| profile.fallback);
        base.map(|base| below(&base, &path)).transpose()
    }

    /// Returns the address where a stream is parked that can't be read twice and that `location`
    /// can't store, if its profile names one.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn parking(&self, location: &Location) -> Result<Option<String>> {
        let profile = match named(location) {
            Some((name, _)) => self.profile(name)?,
            None => None,
        };
        let chosen = || match &self.profile {
            Some(name) => self.profile(name),
            None => Ok(None),
        };
        let profile = match profile {
            Some(profile) => Some(profile),
            None => chosen()?,
        };
        Ok(profile.and_then(|profile| profile.park))
    }

    /// Returns the real location, and the profile that belongs to it.
    fn place(&self, location: Location) -> Result<(Location, Option<Chosen>)> {
        if let (Some((host, path)), Some(given)) = (named(&location), &self.given)
            && host == given.host
            && let Some(url) = given
                .chosen
                .ours
                .as_ref()
                .and_then(|profile| profile.url.as_ref())
        {
            return Ok((below(url, &path)?, Some(given.chosen.clone())));
        }
        if let Some((name, path)) = named(&location)
            && let Some(profile) = self.profile(name)?
            && let Some(url) = &profile.url
        {
            let chosen = Chosen {
                name: name.to_owned(),
                ours: Some(profile.clone()),
            };
            return Ok((below(url, &path)?, Some(chosen)));
        }
        let chosen = match &self.profile {
            Some(name) => Some(Chosen {
                name: name.clone(),
                ours: self.profile(name)?,
            }),
            None => None,
        };
        Ok((location, chosen))
    }

    /// Returns whether anything was opened with a profile, which may have caps now or later: then
    /// [`Access::renew_caps`] is worth a call every second or so.
    #[must_use]
    pub fn may_have_caps(&self) -> bool {
        !self.limits.is_empty()
    }

    /// Reloads the profiles and applies their current caps to open endpoints.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`]; the caps then stay as they are.
    pub fn renew_caps(&self) -> Result<()> {
        self.limits.renew(|name| self.profile(name))
    }

    /// Opens `location`. `rules` govern how files are written. Requests and bytes keep to the caps
    /// of the profile, together with all endpoints opened with it before.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Invalid`] for an unknown profile; [`crate::ErrorKind::Unauthenticated`]
    /// and [`crate::ErrorKind::Unreachable`] if opening connects.
    pub fn open(
        &self,
        location: Location,
        rules: DraftRules,
    ) -> Boxed<'_, Result<Arc<dyn Endpoint>>> {
        Box::pin(async move {
            let was_local = matches!(location, Location::Local(_));
            let written = location.clone();
            let (location, mut chosen) = self.place(location)?;
            location.refuse_steps()?;
            if let (Location::Server(server), None) = (&location, &chosen)
                && server.protocol == Protocol::Posthaste
            {
                chosen = Some(Chosen {
                    ours: self.profile(&server.host)?,
                    name: server.host.clone(),
                });
            }
            let profile = chosen.as_ref().filter(|_| !was_local);
            if let Some(chosen) = &chosen {
                refuse_plain(&location, chosen)?;
            }
            let reach = self.reach_of(&written, (&location, chosen.as_ref()));
            let limits =
                profile.map(|chosen| self.limits.limits(&chosen.name, chosen.ours.as_ref()));
            let opening = self.open_place((location, reach), chosen, rules, limits.clone());
            let endpoint = match opening.await {
                Ok(endpoint) => endpoint,
                Err(error) => return Err(self.name_host(written, error).await),
            };
            Ok(match limits {
                Some(limits) => Arc::new(Limited::new(endpoint, limits)),
                None => endpoint,
            })
        })
    }

    /// Returns options for `ssh`, a command's before a profile's: `ssh` uses the first of each.
    fn ssh_options(&self, chosen: Option<&Chosen>) -> Vec<String> {
        let profile = chosen.and_then(|chosen| chosen.ours.as_ref());
        let of_profile = profile.map_or(&[][..], |profile| &profile.ssh_options);
        self.ssh_options.iter().chain(of_profile).cloned().collect()
    }

    async fn open_place(
        &self,
        (location, reach): (Location, Reach),
        chosen: Option<Chosen>,
        rules: DraftRules,
        limits: Option<Limits>,
    ) -> Result<Arc<dyn Endpoint>> {
        match location {
            Location::Local(path) => {
                let files = Posix::new(path, rules).acting(self.actor.clone());
                Ok(Arc::new(files))
            }
            Location::S3 { bucket, key } => {
                let known = chosen.as_ref();
                let how = (self.unsigned, reach);
                s3::open_chosen((&bucket, &key), known, how, (limits, rules))
            }
            Location::Sftp {
                user,
                host,
                port,
                path,
            } => {
                let host = crate::sftp::Host {
                    user,
                    host,
                    port,
                    options: self.ssh_options(chosen.as_ref()),
                };
                refuse_ssh(&host, &reach).await?;
                Ok(Arc::new(Sftp::open(host, path, rules).await?))
            }
            Location::Bucket {
                store: Store::Azblob,
                bucket,
                key,
            } => azure::open_chosen(&bucket, &key, chosen.as_ref(), reach, (limits, rules)),
            Location::Bucket {
                store: Store::Gcs,
                bucket,
                key,
            } => gcs::open_chosen(&bucket, &key, chosen.as_ref(), reach, (limits, rules)),
            Location::Server(server) => {
                let held_to = (limits, rules);
                self.open_server(&server, chosen, reach, held_to).await
            }
            Location::Host {
                user, host, path, ..
            } => {
                let host = self.ssh_host(user, &host, None, chosen.as_ref());
                refuse_ssh(&host, &reach).await?;
                self.open_host(host, path, rules).await
            }
            Location::Plugin { scheme, rest } => {
                let launch = Launch::find(&scheme, chosen.as_ref())?
                    .ok_or_else(|| no_such_scheme(&scheme))?;
                Ok(Arc::new(Plugin::open(launch, rest, rules).await?))
            }
        }
    }
}

impl Access {
    /// Opens a place that is named by its host.
    async fn open_server(
        &self,
        server: &Server,
        chosen: Option<Chosen>,
        reach: Reach,
        (limits, rules): (Option<Limits>, DraftRules),
    ) -> Result<Arc<dyn Endpoint>> {
        let known = chosen.as_ref();
        Ok(match server.protocol {
            Protocol::Https if azure::is_address(server) => {
                azure::open_address(server, known, reach, (limits, rules))?
            }
            Protocol::Http | Protocol::Https => Arc::new(Site::open_chosen(server, known, reach)?),
            Protocol::WebDav | Protocol::WebDavs => {
                Arc::new(WebDav::open_chosen(server, rules, known, reach)?)
            }
            Protocol::Ftp | Protocol::Ftps => {
                Arc::new(Ftp::open_chosen(server, rules, known, reach).await?)
            }
            Protocol::Posthaste => {
                let address = relay_address(server, chosen, &self.gateways)?;
                let shown = format!("posthaste://{}", server.host);
                reach
                    .refuse_host(&shown, &address.host, address.port)
                    .await?;
                Arc::new(Peer::open(address, &server.path, rules).await?)
            }
        })
    }

    /// Opens posthaste if it can be started, else SFTP.
    async fn open_host(
        &self,
        host: crate::sftp::Host,
        path: Vec<u8>,
        rules: DraftRules,
    ) -> Result<Arc<dyn Endpoint>> {
        let start = self.start.clone();
        let gateways = Arc::clone(&self.gateways);
        match Peer::start(host.clone(), &path, rules, start, gateways).await? {
            Ok(peer) => Ok(Arc::new(peer)),
            Err(why) => {
                self.start.notices.warn(&format!(
                    "no posthaste on {} ({why}): using SFTP, which is slower",
                    host.host
                ));
                Ok(Arc::new(Sftp::open(host, path, rules).await?))
            }
        }
    }
}

/// Fails where `ssh` would log in somewhere that a connection may not go.
async fn refuse_ssh(host: &crate::sftp::Host, reach: &Reach) -> Result<()> {
    if reach.is_anywhere() {
        return Ok(());
    }
    match crate::ssh::leads_to(host).await {
        Some((name, port)) => reach.refuse_host(&host.host, &name, port).await,
        None => Ok(()),
    }
}

/// Returns a relay's address, its key and our secret, from the chosen profile or the host's.
fn relay_address(
    server: &Server,
    chosen: Option<Chosen>,
    gateways: &Gateways,
) -> Result<peer::Address> {
    let Server { host, port, .. } = server;
    let port = port.unwrap_or(peer::PORT);
    let chosen = chosen.unwrap_or_else(|| Chosen {
        name: host.clone(),
        ours: None,
    });
    if chosen.ours.is_none() && chosen.name != *host {
        return Err(config::no_profile(&chosen.name));
    }
    let missing = |what: &str| {
        Error::new(
            ErrorKind::Invalid,
            "connect to",
            format!("posthaste://{host}"),
        )
        .cause(format!("no {what} in a profile {}", chosen.name))
        .hint("see \"posthaste relays\" in docs/guide/copy.md")
    };
    let profile = chosen.ours.as_ref().ok_or_else(|| missing("fingerprint"))?;
    let fingerprint = profile.fingerprint.as_deref();
    let fingerprint = fingerprint.ok_or_else(|| missing("fingerprint"))?;
    let secret_file = profile.secret_file.as_deref();
    let secret = read_secret_file(secret_file.ok_or_else(|| missing("secret_file"))?)?;
    Ok(peer::Address {
        host: host.clone(),
        port,
        fingerprint: fingerprint.parse().map_err(|cause: FingerprintError| {
            Error::new(ErrorKind::Invalid, "use profile", &*chosen.name).cause(cause)
        })?,
        credential: Credential::Secret(secret),
        ways: gateways.ways_to_host(host, port)?,
    })
}

fn no_such_scheme(scheme: &str) -> Error {
    Error::new(ErrorKind::Invalid, "understand", format!("{scheme}://…"))
        .cause("unknown scheme")
        .hint(format!(
            "use a local path, s3://bucket/prefix or sftp://user@host/path, or install \
             posthaste-plugin-{scheme}"
        ))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use super::*;

    #[test]
    fn reading_costs_what_the_profile_of_an_address_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profiles.toml");
        let text = "[cloud]\nurl = \"s3://runs\"\nusd_per_gb_out = 0.09\nusd_per_1000_gets = 0.0004\n[other]\nusd_per_gb_out = 0.02\n";
        std::fs::write(&path, text).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        let access = Access::new(None, Vec::new()).with_profiles(path);
        let prices = |access: &Access, address: &str| {
            let location = Location::parse(address.as_ref()).unwrap();
            let prices = access.prices(location).unwrap();
            (prices.egress_micro_usd, prices.get_micro_usd)
        };
        assert_eq!(prices(&access, "cloud:run7"), (90_000, 400));
        assert_eq!(prices(&access, "s3://runs/run7"), (0, 0));
        let other = access.with_profile("other".into());
        assert_eq!(prices(&other, "s3://runs/run7"), (20_000, 0));
        assert_eq!(prices(&other, "cloud:run7"), (90_000, 400));
        assert_eq!(prices(&other, "/runs/run7"), (0, 0));
    }

    #[test]
    fn paths_go_below_the_address_of_a_profile() {
        let location = |text: &str| Location::parse(OsStr::from_bytes(text.as_bytes())).unwrap();
        for (base, path, whole) in [
            ("s3://b/k", "x/y", "s3://b/k/x/y"),
            ("s3://b/", "/x", "s3://b/x"),
            ("sftp://me@h/~/data", "", "sftp://me@h/~/data"),
            ("dtn:", "x", "dtn:x"),
            ("https://h", "x y", "https://h/x y"),
            ("https://h/d", "t/", "https://h/d/t/"),
            ("https://h/d", "/", "https://h/d"),
            ("s3://b/k", "x/", "s3://b/k/x"),
            ("dtn:", "x/", "dtn:x/"),
        ] {
            let named_so = location(&format!("name:{path}"));
            let (_, path) = named(&named_so).unwrap();
            let found = below(base, &path).unwrap();
            assert_eq!(found, location(whole), "{base} {named_so:?}");
        }
    }
}
