//! Flows: packets of a reservation, by addresses and ports.

use std::{fmt, net::IpAddr, str::FromStr};

use posthaste_endpoint::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

use posthaste_endpoint::gateway::split_port;

/// Most rules of one flow in the kernel: each packet is compared with all of them.
const RULES_MAX: usize = 64;
const TCP_AND_UDP: [u8; 2] = [6, 17];

/// End of a flow: `10.1.0.0/16`, `192.0.2.9:2811`, `[2001:db8::/32]:443`, `*:50000-51000`, `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Side {
    network: Option<(IpAddr, u8)>,
    /// First and last port.
    ports: Option<(u16, u16)>,
}

impl FromStr for Side {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let whole = || {
            Some(Self {
                network: Some(read_network(text)?),
                ports: None,
            })
        };
        let both = || {
            let (hosts, ports) = split_port(text)?;
            let network = match hosts {
                "*" => None,
                hosts => Some(read_network(hosts)?),
            };
            Some(Self {
                network,
                ports: read_ports(ports)?,
            })
        };
        let read = if text == "*" {
            Some(Self::default())
        } else {
            whole().or_else(both)
        };
        read.ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "read the flow", text.to_owned())
                .cause("it is not NETWORK or NETWORK:PORTS")
                .hint("write 10.1.0.0/16, 192.0.2.9:2811, [2001:db8::/32]:443 or *:50000-51000")
        })
    }
}

fn read_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (
            address.parse::<IpAddr>().ok()?,
            Some(bits.parse::<u8>().ok()?),
        ),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some((address, bits))
}

/// Reads ports; the inner `None` means all of them.
fn read_ports(text: &str) -> Option<Option<(u16, u16)>> {
    if text == "*" {
        return Some(None);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first > 0 && first <= last).then_some(Some((first, last)))
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            None => f.write_str("*")?,
            Some((address, bits)) if self.ports.is_some() && address.is_ipv6() => {
                write!(f, "[{address}/{bits}]")?
            }
            Some((address, bits)) => write!(f, "{address}/{bits}")?,
        }
        match self.ports {
            None => Ok(()),
            Some((first, last)) if first == last => write!(f, ":{first}"),
            Some((first, last)) => write!(f, ":{first}-{last}"),
        }
    }
}

/// Flow as written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default = "anywhere")]
    from: String,
    #[serde(default = "anywhere")]
    to: String,
}

fn anywhere() -> String {
    "*".to_owned()
}

/// Packets from one side to the other, as they leave the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub(super) struct Flow {
    from: Side,
    to: Side,
}

impl TryFrom<Written> for Flow {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self, Error> {
        let flow = Self {
            from: written.from.parse()?,
            to: written.to.parse()?,
        };
        let invalid = |why: &str| {
            Error::new(ErrorKind::Invalid, "read the flow", flow.to_string()).cause(why.to_owned())
        };
        if flow
            == (Self {
                from: Side::default(),
                to: Side::default(),
            })
        {
            return Err(invalid("it is about everything"));
        }
        if flow.families().is_empty() {
            return Err(invalid("one end is IPv4 and the other IPv6"));
        }
        if flow.rules().len() > RULES_MAX {
            return Err(invalid(
                "its ports make more than 64 rules: write ranges that begin and end at powers of two",
            ));
        }
        Ok(flow)
    }
}

impl From<Flow> for Written {
    fn from(flow: Flow) -> Self {
        Self {
            from: flow.from.to_string(),
            to: flow.to.to_string(),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Returns `tc`'s name of the protocol.
    pub(super) const fn protocol(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ipv6",
        }
    }

    const fn selector(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }

    const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl Flow {
    fn families(&self) -> Vec<Family> {
        let sides = [self.from.network, self.to.network];
        let fits = |family: &Family| {
            sides
                .iter()
                .flatten()
                .all(|(address, _)| Family::of(*address) == *family)
        };
        Family::ALL.into_iter().filter(fits).collect()
    }

    /// Returns the rules of `tc`'s u32, any of which must match. Every kernel that has HTB has u32.
    /// Its ports are at their place in packets without IP options, and packets that carry data have
    /// none.
    pub(super) fn rules(&self) -> Vec<(Family, String)> {
        let has_ports = self.from.ports.is_some() || self.to.ports.is_some();
        let protocols: Vec<Option<u8>> = if has_ports {
            TCP_AND_UDP.map(Some).to_vec()
        } else {
            vec![None]
        };
        let mut rules = Vec::new();
        for family in self.families() {
            let ip = family.selector();
            for protocol in &protocols {
                for from in blocks(self.from.ports) {
                    for to in blocks(self.to.ports) {
                        let mut rule = String::new();
                        for (word, side) in [("src", self.from), ("dst", self.to)] {
                            if let Some((address, bits)) = side.network {
                                rule += &format!(" match {ip} {word} {address}/{bits}");
                            }
                        }
                        if let Some(protocol) = protocol {
                            rule += &format!(" match {ip} protocol {protocol} 0xff");
                        }
                        for (word, block) in [("sport", from), ("dport", to)] {
                            if let Some((value, mask)) = block {
                                rule += &format!(" match {ip} {word} {value} {mask:#06x}");
                            }
                        }
                        rules.push((family, rule));
                    }
                }
            }
        }
        rules
    }
}

/// Splits a range into the fewest blocks of a value and a mask; all ports become one block that is
/// `None`.
fn blocks(ports: Option<(u16, u16)>) -> Vec<Option<(u16, u16)>> {
    let Some((first, last)) = ports else {
        return vec![None];
    };
    let (mut at, end) = (u32::from(first), u32::from(last) + 1);
    let mut made = Vec::new();
    while at < end {
        let aligned = if at == 0 {
            16
        } else {
            at.trailing_zeros().min(16)
        };
        let bits = (0..=aligned)
            .rev()
            .find(|bits| at + (1 << bits) <= end)
            .unwrap_or(0);
        let (value, mask) = (
            u16::try_from(at),
            u16::try_from(0xffff & (0xffff_u32 << bits)),
        );
        if let (Ok(value), Ok(mask)) = (value, mask) {
            made.push(Some((value, mask)));
        }
        at += 1 << bits;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(from: &str, to: &str) -> Result<Flow, Error> {
        Written {
            from: from.to_owned(),
            to: to.to_owned(),
        }
        .try_into()
    }

    #[test]
    fn a_flow_is_read_and_becomes_rules() {
        let read = flow("10.1.0.0/16", "192.0.2.9:2811").unwrap();
        assert_eq!(read.to_string(), "10.1.0.0/16 to 192.0.2.9/32:2811");
        let rules: Vec<String> = read.rules().into_iter().map(|(_, rule)| rule).collect();
        assert_eq!(
            rules,
            [6, 17].map(|protocol| format!(
                " match ip src 10.1.0.0/16 match ip dst 192.0.2.9/32 match ip protocol {protocol} 0xff \
                 match ip dport 2811 0xffff"
            ))
        );
        let six = flow("*", "[2001:db8::/32]:50000-50003").unwrap();
        assert_eq!(
            six.rules()[0].1,
            " match ip6 dst 2001:db8::/32 match ip6 protocol 6 0xff match ip6 dport 50000 0xfffc"
        );
        assert_eq!(
            flow("2001:db8::1", "*").unwrap().rules(),
            [(Family::V6, " match ip6 src 2001:db8::1/128".to_owned())]
        );
        assert_eq!(flow("*:80", "*").unwrap().rules().len(), 4);
        assert_eq!(
            flow("10.0.0.1:*", "*").unwrap(),
            flow("10.0.0.1", "*").unwrap()
        );
    }

    #[test]
    fn what_is_no_flow_is_refused() {
        for (from, to) in [
            ("*", "*"),
            ("10.0.0.1", "::1"),
            ("10.0.0.0/33", "*"),
            ("a.b:1", "*"),
            ("10.0.0.1:0", "*"),
            ("10.0.0.1:9-8", "*"),
            ("10.0.0.1:1-65535", "*:1-65535"),
            ("10.0.0.1 flowid 1:1", "*"),
            ("", "*"),
        ] {
            assert!(flow(from, to).is_err(), "{from} to {to} was taken");
        }
    }

    proptest! {
        #[test]
        fn blocks_are_their_range_and_nothing_else(one in 1u16.., other in 1u16.., tries in proptest::collection::vec(any::<u16>(), 50)) {
            let (first, last) = (one.min(other), one.max(other));
            let blocks: Vec<_> = blocks(Some((first, last))).into_iter().flatten().collect();
            prop_assert!(blocks.len() <= 30);
            for port in tries.into_iter().chain([first, last, first - 1, last.saturating_add(1)]) {
                let count = blocks.iter().filter(|(value, mask)| port & mask == *value).count();
                prop_assert_eq!(count, usize::from((first..=last).contains(&port)), "{}", port);
            }
        }

        #[test]
        fn a_flow_survives_its_own_text(network: u32, bits in 0u8..=32, port in 1u16..) {
            let address = std::net::Ipv4Addr::from(network);
            let read = flow(&format!("{address}/{bits}:{port}"), "*").unwrap();
            let text = serde_json::to_string(&read).unwrap();
            prop_assert_eq!(serde_json::from_str::<Flow>(&text).unwrap(), read);
        }
    }
}
