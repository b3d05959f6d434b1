//! Targets of streams.

use std::{fmt, net::IpAddr, str::FromStr};

use crate::{Error, ErrorKind};

/// Longest host name of DNS.
const NAME_BYTES_MAX: usize = 253;

/// Host by name or address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// Name, in lower case, resolved by the last gateway.
    Name(String),
    /// An address. IPv4 addresses are never written as IPv6 here, so that rules can't be
    /// circumvented.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address without brackets; `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let is_sound = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && text.bytes().all(is_name)
            && text.split('.').all(|label| !label.is_empty())
            // Some resolvers read 127.1 and 0x7f000001 as addresses.
            && !text.rsplit('.').next().is_some_and(is_numeric);
        is_sound.then(|| Self::Name(text.to_ascii_lowercase()))
    }
}

/// Returns whether a resolver could mistake the last label of a name for part of an address.
fn is_numeric(label: &str) -> bool {
    let digits = label.strip_prefix("0x").or(label.strip_prefix("0X"));
    digits.map_or_else(
        || label.bytes().all(|byte| byte.is_ascii_digit()),
        |digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}

/// Host and port: `dtn.example.org:22`, `10.1.2.3:443`, `[2001:db8::1]:80`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Host.
    pub host: Host,
    /// TCP port.
    pub port: u16,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Splits `host:port` with brackets around IPv6.
#[must_use]
pub fn split_port(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        return Some((host, port.strip_prefix(':')?));
    }
    text.rsplit_once(':')
        .filter(|(host, _)| !host.contains(':'))
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (host, port) = split_port(text)?;
            let port = port.parse().ok().filter(|&port| port > 0)?;
            let host = Host::read(host)?;
            Some(Self { host, port })
        };
        read().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "read the address", text.to_owned())
                .cause("it is not HOST:PORT")
                .hint("write dtn.example.org:22, 10.1.2.3:22 or [2001:db8::1]:22")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn targets_are_read_and_shown() {
        for (text, shown) in [
            ("DTN.example.org:22", "dtn.example.org:22"),
            ("dtn.:22", "dtn:22"),
            ("10.1.2.3:443", "10.1.2.3:443"),
            ("[2001:db8::1]:80", "[2001:db8::1]:80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_target_or_hides_one_is_refused() {
        for text in [
            "",
            ":",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:70000",
            "::1:22",
            "[::1]22",
            "a b:1",
            "a..b:1",
            "127.1:80",
            "0x7f000001:80",
            "2130706433:80",
            "a/b:1",
            "a\r\n:1",
            "ü:1",
        ] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_reads_the_same_as_shown(text in "\\PC{0,40}(:[0-9]{1,5})?") {
            if let Ok(target) = text.parse::<Target>() {
                prop_assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
            }
        }
    }
}
