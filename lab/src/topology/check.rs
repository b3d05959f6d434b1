//! Reads topologies and changes, and rejects those that can't be built, in one line.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{
    Access, AccessSetting, CHANGES_MAX, Conditions, Direction, HOSTS_MAX, Host, HostId, LINKS_MAX,
    Link, LinkId, Rate, Setting, Share, Size, Span, State, Topology, route,
};

/// The longest name of a laboratory or host: it becomes a piece of a file's name.
const NAME_LETTERS_MAX: usize = 40;

/// The longest name of a link: it becomes an interface's, whose limit this is (`IFNAMSIZ`).
const LINK_LETTERS_MAX: usize = 15;

/// The most framing a packet may have, in bytes.
const FRAMING_BYTES_MAX: u64 = 1000;

/// Change at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A link changes.
    Link {
        /// The link.
        link: LinkId,
        /// Direction; none for both.
        direction: Option<Direction>,
        /// New values.
        setting: Setting,
    },
    /// A host's access changes.
    Host {
        /// The host.
        host: HostId,
        /// New values.
        setting: AccessSetting,
    },
}

/// Table with fields of its own besides those of a [`Setting`]. Written out rather than flattened,
/// so that an error knows its line.
macro_rules! with_setting {
    ($name:ident { $($(#[$mark:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            $($(#[$mark])* $field: $type,)*
            rate: Option<Rate>,
            delay: Option<Span>,
            queue: Option<Size>,
            loss: Option<Share>,
            burst_every: Option<u64>,
            burst_length: Option<u64>,
            burst_loss: Option<Share>,
            jitter: Option<Span>,
            reorder: Option<bool>,
            state: Option<State>,
        }

        impl $name {
            fn setting(&self) -> Setting {
                Setting {
                    rate: self.rate,
                    delay: self.delay,
                    queue: self.queue,
                    loss: self.loss,
                    burst_every: self.burst_every,
                    burst_length: self.burst_length,
                    burst_loss: self.burst_loss,
                    jitter: self.jitter,
                    reorder: self.reorder,
                    state: self.state,
                }
            }
        }
    };
}

with_setting!(LinkTable {
    name: String,
    ends: [String; 2],
    forth: Option<Setting>,
    back: Option<Setting>,
});

with_setting!(ChangeTable {
    #[serde(default)]
    at: Span,
    link: Option<String>,
    host: Option<String>,
    direction: Option<Direction>,
    up: Option<Rate>,
    down: Option<Rate>,
    up_queue: Option<Size>,
    down_queue: Option<Size>,
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: String,
    #[serde(default)]
    up: Rate,
    #[serde(default)]
    down: Rate,
    up_queue: Option<Size>,
    down_queue: Option<Size>,
    forwards: Option<bool>,
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    name: String,
    #[serde(default = "first_seed")]
    seed: u64,
    #[serde(default)]
    framing_bytes: u64,
    #[serde(rename = "host")]
    hosts: Vec<HostTable>,
    #[serde(default, rename = "link")]
    links: Vec<LinkTable>,
    #[serde(default, rename = "change")]
    changes: Vec<ChangeTable>,
}

fn first_seed() -> u64 {
    1
}

/// Reads and checks a topology.
pub(super) fn parse(text: &str) -> Result<Topology, String> {
    let table: TopologyTable = toml::from_str(text).map_err(|error| in_one_line(text, &error))?;
    check_name("laboratory", &table.name, NAME_LETTERS_MAX)?;
    check_counts(&table)?;
    let mut topology = Topology {
        name: table.name,
        seed: table.seed,
        framing_bytes: table.framing_bytes,
        hosts: Vec::new(),
        links: Vec::new(),
        changes: Vec::new(),
        routes: Vec::new(),
    };
    for host in table.hosts {
        let forwards = host.forwards.unwrap_or(true);
        topology.hosts.push(check_host(host, forwards)?);
    }
    for link in &table.links {
        let link = check_link(&topology, link)?;
        topology.links.push(link);
    }
    check_names(&topology)?;
    for change in &table.changes {
        let resolved = resolve(&topology, change)?;
        topology.changes.push((change.at, resolved));
    }
    topology.changes.sort_by_key(|(at, _)| *at);
    check_script(&topology)?;
    topology.routes = route::all(&topology.hosts, &topology.links);
    check_routes(&topology)?;
    Ok(topology)
}

/// Returns the error of the TOML reader, with the line and without the picture.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim().replace('\n', "; ");
    match error.span() {
        Some(span) => {
            let before = text.get(..span.start).unwrap_or(text);
            format!("line {}: {message}", before.matches('\n').count() + 1)
        }
        None => message,
    }
}

fn check_counts(table: &TopologyTable) -> Result<(), String> {
    let counts = [
        ("hosts", table.hosts.len(), HOSTS_MAX),
        ("links", table.links.len(), LINKS_MAX),
        ("changes", table.changes.len(), CHANGES_MAX),
    ];
    for (what, count, most) in counts {
        if count > most {
            return Err(format!("{count} {what}, {most} at most"));
        }
    }
    if table.hosts.is_empty() {
        return Err("there is no host".to_owned());
    }
    if table.framing_bytes > FRAMING_BYTES_MAX {
        return Err(format!("framing_bytes is {FRAMING_BYTES_MAX} at most"));
    }
    Ok(())
}

fn check_name(what: &str, name: &str, most: usize) -> Result<(), String> {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let fine = name.starts_with(plain)
        && name.len() <= most
        && name.chars().all(|letter| plain(letter) || letter == '-');
    if fine {
        return Ok(());
    }
    Err(format!(
        "\"{name}\" is no name of a {what}: {most} letters a-z, digits and - at most, a letter or \
         digit first"
    ))
}

fn check_host(host: HostTable, forwards: bool) -> Result<Host, String> {
    check_name("host", &host.name, NAME_LETTERS_MAX)?;
    if host.name == "localhost" {
        return Err("no host can be called \"localhost\"".to_owned());
    }
    for name in host.sysctl.keys() {
        let known = name.starts_with("net.")
            && name.split('.').all(|word| {
                let fine = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
                !word.is_empty() && word.chars().all(fine)
            });
        if !known {
            return Err(format!(
                "host {}: \"{name}\" is no kernel setting of a network namespace (net.…)",
                host.name
            ));
        }
    }
    let access = |rate, queue, what| -> Result<Access, String> {
        let access = Access { rate, queue };
        access
            .check()
            .map_err(|error| format!("host {}: {what}: {error}", host.name))?;
        Ok(access)
    };
    Ok(Host {
        up: access(host.up, host.up_queue, "up")?,
        down: access(host.down, host.down_queue, "down")?,
        forwards,
        sysctl: host.sysctl,
        name: host.name,
    })
}

fn check_link(topology: &Topology, table: &LinkTable) -> Result<Link, String> {
    check_name("link", &table.name, LINK_LETTERS_MAX)?;
    if matches!(table.name.as_str(), "lo" | "all" | "default") {
        return Err(format!("no link can be called \"{}\"", table.name));
    }
    let end = |name: &str| {
        topology.host(name).ok_or_else(|| {
            let names: Vec<&str> = topology.hosts.iter().map(|host| &*host.name).collect();
            format!(
                "link {}: there is no host \"{name}\"; there are: {}",
                table.name,
                names.join(", ")
            )
        })
    };
    let ends = [end(&table.ends[0])?, end(&table.ends[1])?];
    if ends[0] == ends[1] {
        return Err(format!(
            "link {} joins {} to itself",
            table.name, table.ends[0]
        ));
    }
    let twin = topology
        .links
        .iter()
        .find(|other| other.ends.contains(&ends[0]) && other.ends.contains(&ends[1]));
    if let Some(twin) = twin {
        return Err(format!(
            "links {} and {} join the same hosts: only one of them would be used",
            twin.name, table.name
        ));
    }
    let both = Conditions::default().with(&table.setting());
    let one_way = |setting: &Option<Setting>| -> Result<Conditions, String> {
        let conditions = both.with(&setting.unwrap_or_default());
        conditions
            .check()
            .map_err(|error| format!("link {}: {error}", table.name))?;
        Ok(conditions)
    };
    Ok(Link {
        name: table.name.clone(),
        ends,
        forth: one_way(&table.forth)?,
        back: one_way(&table.back)?,
    })
}

/// Checks that no two links or hosts share a name, as a change names one of them.
fn check_names(topology: &Topology) -> Result<(), String> {
    let hosts = topology.hosts.iter().map(|host| &host.name);
    let links = topology.links.iter().map(|link| &link.name);
    let mut seen = BTreeSet::new();
    for name in hosts.chain(links) {
        if !seen.insert(name) {
            return Err(format!("two are called \"{name}\""));
        }
    }
    Ok(())
}

fn resolve(topology: &Topology, table: &ChangeTable) -> Result<Change, String> {
    let access = AccessSetting {
        up: table.up,
        down: table.down,
        up_queue: table.up_queue,
        down_queue: table.down_queue,
    };
    let setting = table.setting();
    match (&table.link, &table.host) {
        (Some(name), None) => {
            let link = topology
                .link(name)
                .ok_or_else(|| format!("a change is of link \"{name}\", which there is not"))?;
            if access != AccessSetting::default() {
                return Err(format!("link {name}: only hosts have up and down"));
            }
            if setting == Setting::default() {
                return Err(format!("a change of link {name} changes nothing"));
            }
            Ok(Change::Link {
                link,
                direction: table.direction,
                setting,
            })
        }
        (None, Some(name)) => {
            let host = topology
                .host(name)
                .ok_or_else(|| format!("a change is of host \"{name}\", which there is not"))?;
            if setting != Setting::default() || table.direction.is_some() {
                return Err(format!(
                    "host {name}: only up, down and their queues change"
                ));
            }
            if access == AccessSetting::default() {
                return Err(format!("a change of host {name} changes nothing"));
            }
            Ok(Change::Host {
                host,
                setting: access,
            })
        }
        (Some(_), Some(_)) | (None, None) => {
            Err("a change is of one link or of one host".to_owned())
        }
    }
}

/// Plays the script, to find a moment at which a link would be impossible.
fn check_script(topology: &Topology) -> Result<(), String> {
    let mut now: Vec<[Conditions; 2]> = topology
        .links
        .iter()
        .map(|link| [link.forth, link.back])
        .collect();
    for (at, change) in &topology.changes {
        match change {
            Change::Link {
                link,
                direction,
                setting,
            } => {
                for way in Direction::ALL {
                    if direction.is_none_or(|only| only == way) {
                        let conditions = &mut now[link.0][way as usize];
                        *conditions = conditions.with(setting);
                        conditions.check().map_err(|error| {
                            format!("link {} at {at}: {error}", topology.links[link.0].name)
                        })?;
                    }
                }
            }
            Change::Host { host, setting } => {
                let Host { name, up, down, .. } = &topology.hosts[host.0];
                let (up, down) = setting.on(*up, *down);
                for access in [up, down] {
                    access
                        .check()
                        .map_err(|error| format!("host {name} at {at}: {error}"))?;
                }
            }
        }
    }
    Ok(())
}

fn check_routes(topology: &Topology) -> Result<(), String> {
    for (from, row) in topology.routes.iter().enumerate() {
        for (to, link) in row.iter().enumerate() {
            if from != to && link.is_none() {
                return Err(format!(
                    "no links lead from {} to {}",
                    topology.hosts[from].name, topology.hosts[to].name
                ));
            }
        }
    }
    Ok(())
}

/// Reads a change from words `name=value`, checked against the conditions at the start.
pub(super) fn change_from_words(
    topology: &Topology,
    target: &str,
    words: &[String],
) -> Result<Change, String> {
    let kind = match (topology.link(target), topology.host(target)) {
        (Some(_), _) => "link",
        (None, Some(_)) => "host",
        (None, None) => return Err(format!("there is no link or host \"{target}\"")),
    };
    let mut table = toml::Table::new();
    table.insert(kind.to_owned(), target.into());
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| format!("\"{word}\" is not NAME=VALUE, such as rate=100Mbit/s"))?;
        let value = match value {
            "true" | "false" => toml::Value::Boolean(value == "true"),
            _ if name == "burst_every" || name == "burst_length" => value
                .parse()
                .map(toml::Value::Integer)
                .map_err(|_| format!("{name} is a number, not \"{value}\""))?,
            _ => value.into(),
        };
        if table.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} stands there twice"));
        }
    }
    let table: ChangeTable = table
        .try_into()
        .map_err(|error: toml::de::Error| error.message().trim().replace('\n', "; "))?;
    resolve(topology, &table)
}
