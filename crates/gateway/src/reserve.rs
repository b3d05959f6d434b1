//! Reserves rates on this machine's egress links, and enforces them.
//!
//! ```text
//! REST ──► desk: calendar (posthaste-plan), written down before it is answered
//!            │ what begins, changes, ends
//!            ▼
//!          tree: HTB on the device, a class for each reservation that runs, one for everybody else
//!            ▲                                ▲
//!   streams: SO_PRIORITY names the class      flows: filters on addresses and ports
//! ```
//!
//! A class has its rate guaranteed and may borrow up to the whole link. It borrows only bandwidth
//! that is unused, and an idle link helps no deadline while data waits. `tc` of iproute2 builds the
//! tree, the program with which operators would inspect or remove it: the netlink libraries know no
//! HTB classes.

mod book;
mod desk;
mod flow;
mod http;
mod store;
mod tc;
mod tree;
mod wire;

use std::str::FromStr;

use posthaste_endpoint::{Error, ErrorKind};
use posthaste_types::ByteRate;

pub(crate) use desk::Desk;
pub(crate) use http::{Answer, BODY_BYTES_MAX, PATH, Question, tell};

/// Longest name that the kernel gives a device.
const DEVICE_BYTES_MAX: usize = 15;
/// Lowest rate of a tree: HTB counts in packets.
const RATE_MIN: ByteRate = ByteRate::new(125_000);

/// Device on which egress rates are reserved: `eth1=10Gbit`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserve {
    /// Kernel's name of the device.
    pub device: String,
    /// Rate of its link.
    pub rate: ByteRate,
}

impl FromStr for Reserve {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let read = || {
            let (device, rate) = text.split_once('=')?;
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
            let is_device = (1..=DEVICE_BYTES_MAX).contains(&device.len())
                && device.bytes().all(is_name)
                && device.as_bytes()[0].is_ascii_alphanumeric();
            let rate = read_bits(rate).filter(|rate| is_device && *rate >= RATE_MIN)?;
            Some(Self {
                device: device.to_owned(),
                rate,
            })
        };
        read().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, "reserve on", text.to_owned())
                .cause("it is not DEVICE=RATE with a rate of 1 Mbit or more")
                .hint("write eth1=10Gbit, or eth1=940Mbit")
        })
    }
}

/// Reads a rate as links are sold: bits a second, decimal.
fn read_bits(text: &str) -> Option<ByteRate> {
    let text = text.trim().trim_end_matches("/s").to_ascii_lowercase();
    let number = text.strip_suffix("bit")?;
    let (number, kilos) = match number.as_bytes().last()? {
        b'k' => (&number[..number.len() - 1], 1),
        b'm' => (&number[..number.len() - 1], 2),
        b'g' => (&number[..number.len() - 1], 3),
        b't' => (&number[..number.len() - 1], 4),
        _ => (number, 0),
    };
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let bits = digits.checked_mul(1000u128.pow(kilos))? / scale;
    u64::try_from(bits / 8).ok().map(ByteRate::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_rates_are_read_as_they_are_sold() {
        for (text, device, rate) in [
            ("eth1=1Gbit", "eth1", 125_000_000),
            ("bond0.12=2.5gbit/s", "bond0.12", 312_500_000),
            ("v-1=8Mbit", "v-1", 1_000_000),
            ("ib0=0.4Tbit", "ib0", 50_000_000_000),
        ] {
            let read: Reserve = text.parse().unwrap();
            assert_eq!(
                (read.device.as_str(), read.rate.get()),
                (device, rate),
                "{text}"
            );
        }
        for text in [
            "",
            "eth1",
            "eth1=",
            "=1Gbit",
            "eth1=1G",
            "eth1=bit",
            "eth1=-1Gbit",
            "eth1=900Kbit",
            "eth 1=1Gbit",
            "eth1\nqdisc=1Gbit",
            "-d=1Gbit",
            "a123456789012345=1Gbit",
            "eth1=1.2.3Gbit",
            "eth1=99999999999999999Tbit",
        ] {
            assert!(text.parse::<Reserve>().is_err(), "{text} was taken");
        }
    }
}
