//! Range of ports, as firewalls open them.

use std::{ops::RangeInclusive, str::FromStr};

/// `LOW-HIGH`, or one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// Returns the ports.
    pub fn range(self) -> RangeInclusive<u16> {
        self.low..=self.high
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| text.parse::<u16>().ok().filter(|&port| port > 0);
        match (port(low), port(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high }),
            _ => Err("write two ports, the lower first, like 50000-51000".to_owned()),
        }
    }
}

impl std::fmt::Display for PortRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_they_are_shown() {
        for text in ["50000-51000", "7-7"] {
            assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
        }
        assert_eq!("80".parse::<PortRange>().unwrap().range(), 80..=80);
        for text in ["", "0-5", "9-8", "1-70000", "1-2-3", "a-b", "-5"] {
            assert!(text.parse::<PortRange>().is_err(), "{text}");
        }
    }
}
