//! Known gateways: `gateways.toml`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{HOPS_MAX, Hop, Host, Pattern, Target, Way};
use crate::{
    Error, ErrorKind, Result,
    relay::{RelayAddress, read_secret_file},
};

/// Longest file read, in bytes: people write it by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Separator between the gateways in a way's name.
const BETWEEN_GATEWAYS: &str = " > ";
/// Most routes to one place beside the direct one.
const WAYS_MAX: usize = 4;

/// A gateway as written in the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    address: String,
    secret_file: PathBuf,
    /// Name of the gateway behind which it lies.
    via: Option<String>,
    /// Places that posthaste's own transfers reach by it.
    #[serde(default)]
    to: Vec<String>,
}

/// Gateways by name. Their secrets are read when a route is requested.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gateways {
    by_name: BTreeMap<String, Known>,
    to: BTreeMap<String, Vec<Pattern>>,
    file: PathBuf,
}

impl Gateways {
    /// Returns no gateways, as for a file that does not exist.
    #[must_use]
    pub fn none(file: PathBuf) -> Self {
        Self {
            file,
            ..Self::default()
        }
    }

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Reads them from a TOML file; paths of secrets are relative to it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and the other errors of reading; [`ErrorKind::Invalid`] if it makes
    /// no sense.
    pub fn read(file: &Path) -> Result<Self> {
        let shown = file.display().to_string();
        let invalid = |cause: String| {
            Error::new(ErrorKind::Invalid, "read the gateways in", shown.clone()).cause(cause)
        };
        let failed = |cause| Error::io("read the gateways in", shown.clone(), cause);
        if fs::metadata(file).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(invalid("it is larger than 1 MiB".to_owned()));
        }
        let text = fs::read_to_string(file).map_err(failed)?;
        let by_name: BTreeMap<String, Known> =
            toml::from_str(&text).map_err(|cause| invalid(cause.message().to_owned()))?;
        let mut to = BTreeMap::new();
        for (name, known) in &by_name {
            let patterns: Result<Vec<Pattern>> = known.to.iter().map(|text| text.parse()).collect();
            to.insert(
                name.clone(),
                patterns.map_err(|error| error.with("gateway", name).with("file", &shown))?,
            );
        }
        let gateways = Self {
            by_name,
            to,
            file: file.to_owned(),
        };
        for name in gateways.by_name.keys() {
            gateways.chain(name)?;
        }
        Ok(gateways)
    }

    /// Returns the gateways on the way to the one of this name, the nearest first and itself last.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is none of this name; errors of reading a secret.
    pub fn hops(&self, name: &str) -> Result<Vec<Hop>> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        let chain = self.chain(name)?.into_iter();
        chain
            .map(|known| {
                Ok(Hop {
                    address: known.address.parse()?,
                    secret: read_secret_file(&folder.join(&known.secret_file))?,
                })
            })
            .collect()
    }

    /// Returns the ways to a place that the file says are to be used, in the order of the gateways'
    /// names, the direct one last. A place is judged by its name: names are not looked up.
    ///
    /// # Errors
    /// See [`Self::hops`].
    pub fn ways_to(&self, target: &Target) -> Result<Vec<Way>> {
        let mut ways = Vec::new();
        for (name, to) in &self.to {
            if ways.len() < WAYS_MAX && to.iter().any(|pattern| pattern.is_about(target)) {
                ways.push(Way {
                    name: self.way_name(name),
                    hops: self.hops(name)?,
                });
            }
        }
        ways.push(Way::straight());
        Ok(ways)
    }

    /// Returns the ways to a relay: only the direct one if no gateway can lead to a host of such a
    /// name.
    ///
    /// # Errors
    /// The errors of [`Self::ways_to`] and of an address that makes no sense.
    pub fn ways_to_relay(&self, address: &RelayAddress) -> Result<Vec<Way>> {
        let (host, port) = address.host_and_port()?;
        self.ways_to_host(&host, port)
    }

    /// Returns the ways to a port of a host, by name or address without brackets.
    ///
    /// # Errors
    /// See [`Self::ways_to`].
    pub fn ways_to_host(&self, host: &str, port: u16) -> Result<Vec<Way>> {
        match Host::read(host) {
            Some(host) => self.ways_to(&Target { host, port }),
            None => Ok(vec![Way::straight()]),
        }
    }

    /// Returns whether the gateway of this name lies on a way to a relay that the file says is to
    /// be used.
    #[must_use]
    pub fn leads_to_relay(&self, name: &str, address: &RelayAddress) -> bool {
        let place = address.host_and_port().ok();
        let place = place.and_then(|(host, port)| Some((Host::read(&host)?, port)));
        let Some((host, port)) = place else {
            return false;
        };
        let target = Target { host, port };
        let leading = self.to.iter();
        let mut leading = leading.filter(|(_, to)| to.iter().any(|to| to.is_about(&target)));
        leading.any(|(last, _)| self.names_to(last).contains(&name))
    }

    /// Returns whether a way, by its name, leads through the gateway of this name.
    #[must_use]
    pub fn passes(way: &str, gateway: &str) -> bool {
        way.split(BETWEEN_GATEWAYS).any(|passed| passed == gateway)
    }

    /// Returns the gateways on the way over the one of this name, as a person writes them.
    fn way_name(&self, name: &str) -> String {
        self.names_to(name).join(BETWEEN_GATEWAYS)
    }

    /// Returns the names of the gateways on the way over the one of this name, the nearest first.
    fn names_to<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let mut names = vec![name];
        // Loops were refused when the file was read.
        while let Some(via) = names.last().and_then(|name| self.by_name.get(*name))
            && let Some(via) = &via.via
            && names.len() < HOPS_MAX
        {
            names.push(via);
        }
        names.reverse();
        names
    }

    fn chain(&self, name: &str) -> Result<Vec<&Known>> {
        let shown = || self.file.display().to_string();
        let mut chain = Vec::new();
        let mut next = Some(name);
        while let Some(name) = next {
            let known = self.by_name.get(name).ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "find the gateway", name.to_owned())
                    .cause(format!("no gateway `{name}` in {}", shown()))
                    .hint("add it there, or write HOST:PORT and --secret-file")
            })?;
            if chain.len() == HOPS_MAX {
                return Err(
                    Error::new(ErrorKind::Invalid, "find the way to", name.to_owned()).cause(
                        format!(
                            "`via` in {} makes a loop, or a chain of more than {HOPS_MAX}",
                            shown()
                        ),
                    ),
                );
            }
            chain.push(known);
            next = known.via.as_deref();
        }
        chain.reverse();
        Ok(chain)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str) -> Result<(Gateways, tempfile::TempDir)> {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        fs::write(&secret, "0718".repeat(16)).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let file = folder.path().join("gateways.toml");
        fs::write(&file, text).unwrap();
        Gateways::read(&file).map(|gateways| (gateways, folder))
    }

    fn shown(ways: &[Way]) -> Vec<Vec<String>> {
        let names = |way: &Way| {
            let hops = way.hops.iter().map(|hop| hop.address.to_string());
            hops.collect()
        };
        ways.iter().map(names).collect()
    }

    #[test]
    fn a_place_is_reached_by_the_gateways_that_lead_there_and_straight_last() {
        let (gateways, _folder) = read(
            "[far]\naddress = 'far:1'\nsecret_file = 'secret'\nvia = 'near'\nto = ['*.far.example:*']\n\
             [near]\naddress = 'near:1'\nsecret_file = 'secret'\n\
             [other]\naddress = 'other:1'\nsecret_file = 'secret'\nto = ['10.2.0.0/16:7421']\n",
        )
        .unwrap();
        let ways = |target: &str| shown(&gateways.ways_to(&target.parse().unwrap()).unwrap());
        let straight: Vec<String> = Vec::new();
        assert_eq!(
            ways("a.far.example:7421"),
            [
                vec!["near:1".to_owned(), "far:1".to_owned()],
                straight.clone()
            ]
        );
        assert_eq!(
            ways("10.2.3.4:7421"),
            [vec!["other:1".to_owned()], straight.clone()]
        );
        assert_eq!(ways("10.2.3.4:22"), [straight]);
        let relay = |url: &str| RelayAddress {
            url: url.to_owned(),
            fingerprint: format!("sha256:{}", "07".repeat(32)).parse().unwrap(),
        };
        let leading = |url: &str| -> Vec<&str> {
            let all = ["far", "near", "other", "none"].into_iter();
            all.filter(|name| gateways.leads_to_relay(name, &relay(url)))
                .collect()
        };
        assert_eq!(leading("https://a.far.example:7421"), ["far", "near"]);
        assert_eq!(leading("https://10.2.3.4:7421"), ["other"]);
        assert!(leading("https://10.2.3.4:22").is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, said) in [
            ("[a]\naddress = 'a:1'", "secret_file"),
            ("[a]\naddress = 'a:1'\nsecret_file = 's'\nvia = 'a'", "loop"),
            (
                "[a]\naddress = 'a:1'\nsecret_file = 's'\nvia = 'b'",
                "no gateway `b`",
            ),
            (
                "[a]\naddress = 'a:1'\nsecret_file = 's'\nto = ['x']",
                "HOSTS:PORTS",
            ),
            ("[a]\naddress = 'a:1'\nsecret_file = 's'\nfor = 1", "for"),
        ] {
            let error = read(text).map(drop).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let (gateways, _folder) =
            read("[a]\naddress = 'a:1'\nsecret_file = 'none'\nto = ['*:*']").unwrap();
        let error = gateways.ways_to(&"b:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
