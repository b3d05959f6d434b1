//! Patterns of places, for rules.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket},
    str::FromStr,
};

use super::target::{Host, Target, split_port};
use crate::{Error, ErrorKind};

/// Places: `dtn.example.org:22`, `*.example.org:*`, `10.2.0.0/16:2000-2100`, `[2001:db8::/32]:443`,
/// `*:443`.
///
/// `*` and names match no loopback and no link-local address, whatever a name resolves to: a rule
/// must write those as addresses. A listener there trusts its own machine. `*` matches no other address
/// of this machine either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    hosts: Hosts,
    /// First and last port.
    ports: (u16, u16),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    All,
    /// Names with this suffix, which starts with a dot.
    Below(String),
    Name(String),
    /// Addresses with this prefix, of so many bits.
    Network(IpAddr, u8),
}

impl Pattern {
    /// Returns whether the pattern matches this place by its name, or by its address if it has no
    /// name.
    #[must_use]
    pub fn is_about(&self, target: &Target) -> bool {
        match &target.host {
            Host::Name(name) => self.has_port(target.port) && self.hosts.has_name(name),
            Host::Address(address) => self.is_about_address(*address, target.port),
        }
    }

    /// Returns whether the pattern matches an address as such.
    #[must_use]
    pub fn is_about_address(&self, address: IpAddr, port: u16) -> bool {
        self.has_port(port) && self.hosts.has_address(address.to_canonical())
    }

    /// Returns whether the pattern matches every host.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.hosts == Hosts::All
    }

    /// Returns whether the pattern is about addresses, so that a name must be resolved first.
    #[must_use]
    pub fn is_of_addresses(&self) -> bool {
        matches!(self.hosts, Hosts::Network(..))
    }

    fn has_port(&self, port: u16) -> bool {
        (self.ports.0..=self.ports.1).contains(&port)
    }
}

impl From<&Target> for Pattern {
    fn from(target: &Target) -> Self {
        Self {
            hosts: Hosts::of(target.host.clone()),
            ports: (target.port, target.port),
        }
    }
}

impl Hosts {
    /// Returns the hosts that consist of one.
    fn of(host: Host) -> Self {
        match host {
            Host::Name(name) => Self::Name(name),
            Host::Address(address) => {
                Self::Network(address, if address.is_ipv4() { 32 } else { 128 })
            }
        }
    }

    fn has_name(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Below(end) => name.ends_with(end.as_str()),
            Self::Name(own) => own == name,
            Self::Network(..) => false,
        }
    }

    fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Self::All => !is_of_this_machine(address) && !is_own(address),
            Self::Below(_) | Self::Name(_) => false,
            Self::Network(network, bits) => {
                shared_bits(*network, address).is_some_and(|shared| shared >= u32::from(*bits))
            }
        }
    }
}

/// Returns whether an address means the gateway's own machine, its link (where clouds keep their
/// credentials), or nobody.
#[must_use]
pub fn is_of_this_machine(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
                // "This network", which some kernels treat as loopback.
                || address.octets()[0] == 0
                || CLOUDS_V4.contains(&address)
        }
        IpAddr::V6(address) => {
            address.is_loopback()
                || address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                || CLOUDS_V6.contains(&address)
                || within(address).is_some_and(|within| is_of_this_machine(within.into()))
        }
    }
}

/// Returns whether an address is one of this machine's: the kernel would send from it to it.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent.
    let socket = UdpSocket::bind((any, 0));
    let chosen = socket.and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    chosen.is_ok_and(|chosen| chosen.ip() == address)
}

/// Addresses of clouds' secrets for their machines, beside link-local ones: Alibaba, Azure, Oracle.
const CLOUDS_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];
/// IPv6 addresses of the same kind: Scaleway, Oracle, Amazon, Google.
const CLOUDS_V6: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Returns the IPv4 address that an IPv6 address leads to: behind NAT64 (RFC 6052, and RFC 8215 in
/// its form of 96 bits), by 6to4 (RFC 3056), to a server of Teredo (RFC 4380), translated (RFC 2765)
/// or as such (RFC 4291, section 2.5.5.1).
fn within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low] => {
            Some(of(high, low))
        }
        [0x2002, high, low, ..] | [0x2001, 0, high, low, ..] => Some(of(high, low)),
        [0, 0, 0, 0, 0 | 0xffff, 0, high, low] => Some(of(high, low)),
        _ => None,
    }
}

/// Returns the number of leading bits that two addresses share; `None` if their families differ.
fn shared_bits(one: IpAddr, other: IpAddr) -> Option<u32> {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            Some((one.to_bits() ^ other.to_bits()).leading_zeros())
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

impl FromStr for Pattern {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read(text).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "read the rule", text.to_owned())
                .cause("it is not HOSTS:PORTS")
                .hint("write dtn.example.org:22, *.example.org:*, 10.2.0.0/16:2000-2100 or [2001:db8::/32]:443")
        })
    }
}

fn read(text: &str) -> Option<Pattern> {
    let (hosts, ports) = split_port(text)?;
    let ports = match ports.split_once('-') {
        _ if ports == "*" => (1, u16::MAX),
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => (ports.parse().ok()?, ports.parse().ok()?),
    };
    let hosts = if hosts == "*" {
        Hosts::All
    } else if let Some(end) = hosts.strip_prefix('*') {
        let Host::Name(name) = Host::read(end.strip_prefix('.')?)? else {
            return None;
        };
        Hosts::Below(format!(".{name}"))
    } else if let Some((network, bits)) = hosts.split_once('/') {
        let network: IpAddr = network.parse().ok()?;
        let most = if network.is_ipv4() { 32 } else { 128 };
        Hosts::Network(network, bits.parse().ok().filter(|&bits| bits <= most)?)
    } else {
        Hosts::of(Host::read(hosts)?)
    };
    (ports.0 > 0 && ports.0 <= ports.1).then_some(Pattern { hosts, ports })
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::All => f.write_str("*")?,
            Hosts::Below(end) => write!(f, "*{end}")?,
            Hosts::Name(name) => f.write_str(name)?,
            Hosts::Network(IpAddr::V4(network), bits) => write!(f, "{network}/{bits}")?,
            Hosts::Network(IpAddr::V6(network), bits) => write!(f, "[{network}/{bits}]")?,
        }
        match self.ports {
            (1, u16::MAX) => f.write_str(":*"),
            (first, last) if first == last => write!(f, ":{first}"),
            (first, last) => write!(f, ":{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_about(pattern: &str, target: &str) -> bool {
        let pattern: Pattern = pattern.parse().unwrap();
        assert_eq!(pattern.to_string().parse::<Pattern>().unwrap(), pattern);
        pattern.is_about(&target.parse().unwrap())
    }

    #[test]
    fn patterns_are_about_what_they_say() {
        assert!(is_about("dtn.example.org:22", "DTN.example.org.:22"));
        assert!(!is_about("dtn.example.org:22", "dtn.example.org:23"));
        assert!(is_about("*.example.org:*", "a.b.example.org:9"));
        assert!(!is_about("*.example.org:*", "example.org:9"));
        assert!(!is_about("*.example.org:*", "badexample.org:9"));
        assert!(is_about("10.2.0.0/16:2000-2100", "10.2.255.1:2100"));
        assert!(!is_about("10.2.0.0/16:2000-2100", "10.3.0.1:2100"));
        assert!(!is_about("10.2.0.0/16:2000-2100", "10.2.0.1:2101"));
        assert!(is_about("[2001:db8::/32]:443", "[2001:db8:1::1]:443"));
        assert!(is_about("10.1.1.1:1", "[::ffff:10.1.1.1]:1"));
        assert!(is_about("0.0.0.0/0:*", "127.0.0.1:1"));
        assert!(!is_about("0.0.0.0/0:*", "[2001:db8::1]:1"));
    }

    #[test]
    fn a_star_does_not_mean_the_gateways_own_machine() {
        for own in [
            "127.0.0.1:22",
            "127.9.9.9:22",
            "[::1]:22",
            "169.254.169.254:80",
            "0.0.0.0:22",
        ] {
            assert!(!is_about("*:*", own), "{own}");
        }
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
        // Whatever else it has, if it has any.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let found = socket
            .connect("192.0.2.1:9")
            .and_then(|()| socket.local_addr());
        for address in found.iter().map(|found| found.ip()) {
            assert!(is_own(address) && !is_about("*:*", &format!("{address}:22")));
            assert!(is_about(&format!("{address}:22"), &format!("{address}:22")));
        }
        assert!(is_about("*:*", "192.0.2.1:22") && is_about("127.0.0.0/8:22", "127.0.0.1:22"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "*",
            "a:",
            "*a.b:1",
            "a:2-1",
            "a:0",
            "10.0.0.0/33:1",
            "a/8:1",
            "*.10:1",
            "::1/8:1",
        ] {
            assert!(text.parse::<Pattern>().is_err(), "{text}");
        }
    }
}
