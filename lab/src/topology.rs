//! Description of a laboratory in TOML: hosts, links between them, and changes over time.

mod check;
pub(crate) mod quantity;
mod route;
mod setting;

use std::{collections::BTreeMap, fmt, path::Path};

use serde::{Deserialize, Serialize};

pub use check::Change;
pub use quantity::{Rate, Share, Size, Span};
pub(crate) use setting::WIRE_BYTES_MAX;
pub use setting::{Access, AccessSetting, Conditions, Setting, State};

/// Most hosts: each has an address in one /24.
pub const HOSTS_MAX: usize = 64;

/// Most links: the emulator examines all of them at each event.
pub const LINKS_MAX: usize = 128;

/// Most scripted changes: a script, not a recording.
pub const CHANGES_MAX: usize = 10_000;

/// The size of an IP packet on every link, in bytes, as on Ethernet.
pub const MTU_BYTES: usize = 1500;

/// The host with this place in [`Topology::hosts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(crate) usize);

/// The link with this place in [`Topology::links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub(crate) usize);

/// Direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the first end to the second.
    Forth,
    /// From the second end to the first.
    Back,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Forth, Self::Back];
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forth => "forth",
            Self::Back => "back",
        })
    }
}

/// A host: a network namespace with one address.
#[derive(Debug, Clone)]
pub struct Host {
    /// Its name, which resolves on every host.
    pub name: String,
    /// Egress shared by all its traffic.
    pub up: Access,
    /// Ingress shared by all its traffic.
    pub down: Access,
    /// True if it forwards packets of others.
    pub forwards: bool,
    /// Kernel settings of its namespace, by name with dots.
    pub sysctl: BTreeMap<String, String>,
}

/// A link between two hosts.
#[derive(Debug, Clone)]
pub struct Link {
    /// Its name, and that of its interface on both hosts.
    pub name: String,
    /// The hosts it joins.
    pub ends: [HostId; 2],
    /// Initial conditions from the first end to the second.
    pub forth: Conditions,
    /// Initial conditions from the second end to the first.
    pub back: Conditions,
}

/// A whole laboratory, checked.
///
/// ```
/// let topology = posthaste_lab::Topology::parse(
///     r#"
///     name = "pair"
///     host = [{ name = "near" }, { name = "far" }]
///     link = [{ name = "wan", ends = ["near", "far"], rate = "1Gbit/s", delay = "30ms" }]
///     "#,
/// )?;
/// assert_eq!(topology.hosts().len(), 2);
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Topology {
    name: String,
    seed: u64,
    framing_bytes: u64,
    hosts: Vec<Host>,
    links: Vec<Link>,
    changes: Vec<(Span, Change)>,
    /// Link to take, by host, then by destination.
    routes: Vec<Vec<Option<LinkId>>>,
}

impl Topology {
    /// Reads a topology from a file.
    ///
    /// # Errors
    /// Fails if it can't be read or is invalid: one line that begins with the path.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| anyhow::anyhow!("can't read {shown}: {error}"))?;
        Self::parse(&text).map_err(|error| {
            let separator = if error.to_string().starts_with("line ") {
                ", "
            } else {
                ": "
            };
            anyhow::anyhow!("{shown}{separator}{error}")
        })
    }

    /// Reads a topology from TOML.
    ///
    /// # Errors
    /// Fails if it is invalid: one line with the place and the reason.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        check::parse(text).map_err(anyhow::Error::msg)
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the seed of all chance.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the framing of each packet on a link, in bytes.
    #[must_use]
    pub fn framing_bytes(&self) -> u64 {
        self.framing_bytes
    }

    /// Returns its hosts, as written.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns its links, as written.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Changes with their time after the start, in order of time.
    #[must_use]
    pub fn changes(&self) -> &[(Span, Change)] {
        &self.changes
    }

    /// Returns the host of that name.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<HostId> {
        let place = self.hosts.iter().position(|host| host.name == name)?;
        Some(HostId(place))
    }

    /// Returns the link of that name.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<LinkId> {
        let place = self.links.iter().position(|link| link.name == name)?;
        Some(LinkId(place))
    }

    /// Returns the link from a host towards another; none to itself.
    #[must_use]
    pub fn next_link(&self, from: HostId, to: HostId) -> Option<&Link> {
        let link = (*self.routes.get(from.0)?.get(to.0)?)?;
        self.links.get(link.0)
    }

    /// Reads a change of this topology from words `name=value`.
    ///
    /// # Errors
    /// Fails if there is no such link or host, or a word is none of theirs; one line.
    pub fn change(&self, target: &str, words: &[String]) -> anyhow::Result<Change> {
        check::change_from_words(self, target, words).map_err(anyhow::Error::msg)
    }
}

#[cfg(test)]
mod tests;
