//! What can be set about a transfer, and within what.

use core::{fmt, str::FromStr, time::Duration};
use posthaste_types::{ByteRate, Bytes, record};

use super::Class;

/// The bandwidth of a path nobody measured: what most campuses have at least, and few WAN paths
/// exceed by more than ten.
const BANDWIDTH_ASSUMED: ByteRate = ByteRate::new(125_000_000);

record! {
    /// How a path is used. None of the three is ever zero.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Setting {
        /// Files moved at once, each on a channel of its own.
        pub concurrency: u16,
        /// Streams that one file is split over.
        pub parallelism: u16,
        /// Files asked for before the one in hand is done, on each channel; 1 for none.
        pub pipelining: u16,
    }
}

impl Setting {
    /// The most modest: one file at a time over one stream.
    pub const ONE: Self = Self::new(1, 1, 1);

    /// A setting; zeros become ones.
    #[must_use]
    pub const fn new(concurrency: u16, parallelism: u16, pipelining: u16) -> Self {
        const fn at_least_one(value: u16) -> u16 {
            if value == 0 { 1 } else { value }
        }
        Self {
            concurrency: at_least_one(concurrency),
            parallelism: at_least_one(parallelism),
            pipelining: at_least_one(pipelining),
        }
    }

    /// Streams at once in all.
    #[must_use]
    pub fn streams(self) -> u32 {
        u32::from(self.concurrency) * u32::from(self.parallelism)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{},{},{}",
            self.concurrency, self.parallelism, self.pipelining
        )
    }
}

/// A text that is no setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingError;

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a setting is three numbers from 1 on: files at once, streams a file, files ahead, like 8,2,8")
    }
}

impl core::error::Error for SettingError {}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let mut numbers = text.split(',').map(|number| {
            let number: u16 = number.trim().parse().ok()?;
            (number > 0).then_some(number)
        });
        let mut next = || numbers.next().flatten().ok_or(SettingError);
        let setting = Self::new(next()?, next()?, next()?);
        if numbers.next().is_some() {
            return Err(SettingError);
        }
        Ok(setting)
    }
}

record! {
    /// What is known of the path and of this end before anything is sent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PathFacts {
        /// The way there and back.
        pub rtt: Duration,
        /// What the path carries, if anybody knows.
        pub bandwidth: Option<ByteRate>,
        /// The most one stream can have in flight.
        pub buffer: Bytes,
        /// Processors this end may use.
        pub cores: u16,
        /// The fewest bytes of a large file that a stream carries before it can turn to others.
        pub piece: Bytes,
    }
}

impl PathFacts {
    /// What the path holds when it is full (the bandwidth-delay product); at least one byte. A
    /// bandwidth nobody knows counts as 1 Gbit/s.
    #[must_use]
    pub fn bdp(&self) -> Bytes {
        let bandwidth = self.bandwidth.unwrap_or(BANDWIDTH_ASSUMED);
        bandwidth.volume(self.rtt).max(Bytes::new(1))
    }

    /// The class of a file of `size` on this path.
    #[must_use]
    pub fn class(&self, size: Bytes) -> Class {
        Class::of(size, self.bdp())
    }
}

record! {
    /// The most of each that protocol, endpoints and people allow, and the fewest files at once; 1 where there is no such thing.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// Files at once, at least: no more than the most of them.
        pub concurrency_min: u16,
        /// Files at once.
        pub concurrency_max: u16,
        /// Streams a file.
        pub parallelism_max: u16,
        /// Files asked for ahead.
        pub pipelining_max: u16,
    }
}

impl Bounds {
    /// The nearest setting within the bounds.
    #[must_use]
    pub fn clamp(&self, setting: Setting) -> Setting {
        Setting::new(
            (setting.concurrency.max(self.concurrency_min)).min(self.concurrency_max),
            setting.parallelism.min(self.parallelism_max),
            setting.pipelining.min(self.pipelining_max),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bandwidth_counts_as_a_gigabit() {
        let facts = PathFacts {
            rtt: Duration::from_millis(60),
            bandwidth: None,
            buffer: Bytes::mebi(4),
            cores: 2,
            piece: Bytes::ZERO,
        };
        assert_eq!(facts.bdp(), Bytes::new(7_500_000));
        assert_eq!(facts.class(Bytes::new(749_999)), Class::Small);
        assert_eq!(facts.class(Bytes::new(750_000)), Class::Middle);
    }

    #[test]
    fn a_setting_is_never_zero() {
        let bounds = Bounds {
            concurrency_min: 1,
            concurrency_max: 0,
            parallelism_max: 0,
            pipelining_max: 0,
        };
        assert_eq!(bounds.clamp(Setting::new(0, 9, 9)), Setting::ONE);
    }
}
