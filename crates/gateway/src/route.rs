//! Targets that a gateway allows, and the routes to them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    gateway::{CONNECTIONS_MAX, Hop, Pattern, Segment, Target},
    relay::read_secret_file,
};
use posthaste_types::{Bytes, QuantityError};
use serde::Deserialize;

/// Largest table read, in bytes: people write them by hand.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Route to targets, and its next gateway.
#[derive(Debug, Clone)]
struct Route {
    to: Vec<Pattern>,
    /// Next gateway; `None` for a direct connection to the target.
    via: Option<Hop>,
    /// Settings of its segment.
    own: Segment,
    /// Connections that may carry one stream to that gateway.
    connections: u8,
}

/// Rules and routes of a gateway.
#[derive(Debug, Clone, Default)]
pub struct Table {
    allow: Vec<Pattern>,
    routes: Vec<Route>,
    /// Settings of segments without a route of their own, including those to clients.
    segment: Segment,
}

/// Table as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    allow: Vec<String>,
    congestion: Option<String>,
    buffer: Option<String>,
    #[serde(default)]
    route: Vec<WrittenRoute>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoute {
    to: Vec<String>,
    via: Option<String>,
    secret_file: Option<PathBuf>,
    congestion: Option<String>,
    buffer: Option<String>,
    connections: Option<i64>,
}

/// Next step towards a target.
#[derive(Debug, Clone)]
pub(crate) struct Way<'a> {
    pub via: Option<&'a Hop>,
    pub segment: Segment,
    /// Connections that may carry one stream to that gateway.
    pub connections: u8,
}

impl Table {
    /// Reads a table from a TOML file; paths of secrets are relative to it.
    ///
    /// # Errors
    /// Errors of reading; [`ErrorKind::Invalid`] if the table is invalid.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display().to_string();
        let failed = |cause| Error::io("read the routes in", shown.clone(), cause);
        if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(Error::new(ErrorKind::Invalid, "read the routes in", shown)
                .cause("it is larger than 1 MiB"));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        let written: Written = toml::from_str(&text).map_err(|cause| {
            Error::new(ErrorKind::Invalid, "read the routes in", shown.clone())
                .cause(cause.to_string().trim_end().replace('\n', "; "))
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        Self::from_written(written, folder).map_err(|error| error.with("file", shown))
    }

    fn from_written(written: Written, folder: &Path) -> Result<Self> {
        let mut table = Self {
            segment: Segment {
                congestion: written.congestion,
                buffer: amount(written.buffer)?,
            },
            ..Self::default()
        };
        table.allow = patterns(&written.allow)?;
        for route in written.route {
            let connections = connections(route.connections, route.via.is_some())?;
            let via = match (route.via, route.secret_file) {
                (Some(via), Some(file)) => Some(Hop {
                    address: via.parse()?,
                    secret: read_secret_file(&folder.join(file))?,
                }),
                (None, None) => None,
                (Some(via), None) => {
                    return Err(Error::new(ErrorKind::Invalid, "read the route over", via)
                        .cause("no secret_file")
                        .hint("name the file with that gateway's secret"));
                }
                (None, Some(file)) => {
                    let file = file.display().to_string();
                    return Err(Error::new(ErrorKind::Invalid, "read the route with", file)
                        .cause("no `via` whose secret that could be"));
                }
            };
            table.routes.push(Route {
                to: patterns(&route.to)?,
                via,
                own: Segment {
                    congestion: route.congestion,
                    buffer: amount(route.buffer)?,
                },
                connections,
            });
        }
        Ok(table)
    }

    /// Allows further targets.
    #[must_use]
    pub fn allowing(mut self, places: impl IntoIterator<Item = Pattern>) -> Self {
        self.allow.extend(places);
        self
    }

    /// Sets up segments for which no route says more.
    #[must_use]
    pub fn with_segment(mut self, congestion: Option<String>, buffer: Option<Bytes>) -> Self {
        self.segment.congestion = congestion.or(self.segment.congestion);
        self.segment.buffer = buffer.or(self.segment.buffer);
        self
    }

    /// Returns whether no target is allowed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.allow.is_empty()
    }

    /// Returns each setting of a segment.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> {
        let of_routes = self.routes.iter().map(|route| self.segment_of(route));
        of_routes.chain([self.segment.clone()])
    }

    /// Returns the settings of a route's segment: its own, or else the table's.
    fn segment_of(&self, route: &Route) -> Segment {
        let (own, usual) = (&route.own, &self.segment);
        Segment {
            congestion: own.congestion.clone().or_else(|| usual.congestion.clone()),
            buffer: own.buffer.or(usual.buffer),
        }
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns whether a rule allows the target as it was named.
    pub(crate) fn allows(&self, target: &Target) -> bool {
        self.allow.iter().any(|rule| rule.is_about(target))
    }

    /// Returns whether a rule that does not allow every host allows the target as it was named.
    pub(crate) fn names(&self, target: &Target) -> bool {
        let is_about = |rule: &Pattern| !rule.is_of_all() && rule.is_about(target);
        self.allow.iter().any(is_about)
    }

    /// Returns whether a rule allows an address as such.
    pub(crate) fn allows_address(&self, address: std::net::IpAddr, port: u16) -> bool {
        self.allow
            .iter()
            .any(|rule| rule.is_about_address(address, port))
    }

    /// Returns whether names must be resolved to be checked or routed.
    pub(crate) fn needs_addresses(&self) -> bool {
        let of_routes = self.routes.iter().flat_map(|route| &route.to);
        self.allow
            .iter()
            .chain(of_routes)
            .any(Pattern::is_of_addresses)
    }

    /// Returns the first route that matches the target or one of its addresses, or else a direct
    /// connection.
    pub(crate) fn way(&self, target: &Target, addresses: &[std::net::IpAddr]) -> Way<'_> {
        let is_about = |rule: &Pattern| {
            let mut all = addresses.iter();
            rule.is_about(target) || all.any(|&at| rule.is_about_address(at, target.port))
        };
        let found = self
            .routes
            .iter()
            .find(|route| route.to.iter().any(is_about));
        found.map_or(
            Way {
                via: None,
                segment: self.segment.clone(),
                connections: 1,
            },
            |route| Way {
                via: route.via.as_ref(),
                segment: self.segment_of(route),
                connections: route.connections,
            },
        )
    }
}

fn amount(text: Option<String>) -> Result<Option<Bytes>> {
    let Some(text) = text else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|cause: QuantityError| {
        Error::new(ErrorKind::Invalid, "read the buffer", text).cause(cause)
    })
}

fn connections(count: Option<i64>, has_via: bool) -> Result<u8> {
    let Some(count) = count else {
        return Ok(1);
    };
    let wrong = |cause: String| {
        let count = format!("connections = {count}");
        Error::new(ErrorKind::Invalid, "read the route with", count).cause(cause)
    };
    if !has_via {
        return Err(wrong("no `via` that could put them together again".into()));
    }
    let known = u8::try_from(count).ok();
    known
        .filter(|count| (1..=CONNECTIONS_MAX).contains(count))
        .ok_or_else(|| wrong(format!("it is not 1 to {CONNECTIONS_MAX}")))
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>> {
    texts.iter().map(|text| text.parse()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<Table> {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("far.secret");
        fs::write(&secret, "0718".repeat(16)).unwrap();
        let mut mode = fs::metadata(&secret).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o600);
        fs::set_permissions(&secret, mode).unwrap();
        let file = folder.path().join("routes.toml");
        fs::write(&file, text).unwrap();
        Table::read(&file)
    }

    #[test]
    fn the_first_route_that_is_about_it_is_taken() {
        let table = table(
            "allow = ['*:*']\ncongestion = 'cubic'\n\
             [[route]]\nto = ['near.far.example:*']\n\
             [[route]]\nto = ['*.far.example:*', '10.2.0.0/16:*']\nvia = 'gw:7423'\n\
             secret_file = 'far.secret'\ncongestion = 'bbr'\nbuffer = '16MiB'\nconnections = 4\n",
        )
        .unwrap();
        let way = |target: &str, addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|at| at.parse().unwrap()).collect();
            let way = table.way(&target.parse().unwrap(), &addresses);
            (
                way.via.map(|hop| hop.address.to_string()),
                way.segment.congestion.clone(),
                way.connections,
            )
        };
        let bbr = (Some("gw:7423".to_owned()), Some("bbr".to_owned()), 4);
        let straight = (None, Some("cubic".to_owned()), 1);
        assert_eq!(way("near.far.example:1", &[]), straight);
        assert_eq!(way("a.far.example:1", &[]), bbr);
        assert_eq!(way("b:1", &["10.2.3.4"]), bbr);
        assert_eq!(way("10.2.3.4:1", &[]), bbr);
        assert_eq!(way("b:1", &["10.3.3.4"]), straight);
    }

    #[test]
    fn what_is_said_of_all_segments_is_meant_for_those_of_routes_that_say_nothing() {
        let table = table(
            "congestion = 'cubic'\n[[route]]\nto = ['a:1']\nvia = 'gw:7423'\nsecret_file = 'far.secret'\n\
             [[route]]\nto = ['b:1']\ncongestion = 'reno'\nbuffer = '16MiB'\n",
        )
        .unwrap()
        .with_segment(Some("bbr".into()), Some(Bytes::mebi(8)));
        let segment = |target: &str| table.way(&target.parse().unwrap(), &[]).segment;
        let bbr = Segment {
            congestion: Some("bbr".into()),
            buffer: Some(Bytes::mebi(8)),
        };
        let reno = Segment {
            congestion: Some("reno".into()),
            buffer: Some(Bytes::mebi(16)),
        };
        assert_eq!(segment("a:1"), bbr);
        assert_eq!(segment("b:1"), reno);
        assert_eq!(segment("c:1"), bbr);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (text, said) in [
            ("allow = ['x']", "not HOSTS:PORTS"),
            ("alow = []", "alow"),
            ("[[route]]\nto = []\nvia = 'gw:1'", "no secret_file"),
            ("[[route]]\nto = []\nsecret_file = 'far.secret'", "no `via`"),
            ("[[route]]\nto = []\nconnections = 2", "no `via`"),
            (
                "[[route]]\nto = []\nvia = 'gw:1'\nsecret_file = 'far.secret'\nconnections = 17",
                "not 1 to 16",
            ),
            (
                "[[route]]\nto = []\nvia = 'gw:1'\nsecret_file = 'far.secret'\nconnections = -1",
                "not 1 to 16",
            ),
            (
                "[[route]]\nto = []\nvia = 'gw:1'\nsecret_file = 'none'",
                "none",
            ),
        ] {
            let error = table(text).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
