//! Settings of a transfer, and their bounds.

use core::{fmt, str::FromStr, time::Duration};
use posthaste_types::{ByteRate, Bytes, record};

use super::Class;

/// Assumed bandwidth of an unmeasured path: most campuses have at least this, and few WAN paths
/// exceed it more than tenfold.
const BANDWIDTH_ASSUMED: ByteRate = ByteRate::new(125_000_000);

record! {
    /// Use of a path. None of the three values is ever zero.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Setting {
        /// Files moved at once, each on its own channel.
        pub concurrency: u16,
        /// Streams that one file is split over.
        pub parallelism: u16,
        /// Files asked for before the current one is done, on each channel; 1 for none.
        pub pipelining: u16,
    }
}

impl Setting {
    /// Smallest setting: one file at a time over one stream.
    pub const ONE: Self = Self::new(1, 1, 1);

    /// Returns a setting; zeros become ones.
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

    /// Returns the number of streams at once.
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
    /// Facts about the path and this end, known before anything is sent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PathFacts {
        /// Round trip.
        pub rtt: Duration,
        /// Rate of the path, if known.
        pub bandwidth: Option<ByteRate>,
        /// Most bytes that one stream can have in flight.
        pub buffer: Bytes,
        /// Processors this end may use.
        pub cores: u16,
        /// Fewest bytes of a large file that a stream carries before it can turn to others.
        pub piece: Bytes,
    }
}

impl PathFacts {
    /// Returns the bandwidth-delay product, at least one byte. An unknown bandwidth counts as 1
    /// Gbit/s.
    #[must_use]
    pub fn bdp(&self) -> Bytes {
        let bandwidth = self.bandwidth.unwrap_or(BANDWIDTH_ASSUMED);
        bandwidth.volume(self.rtt).max(Bytes::new(1))
    }

    /// Returns the class of a file of `size` on this path.
    #[must_use]
    pub fn class(&self, size: Bytes) -> Class {
        Class::of(size, self.bdp())
    }
}

record! {
    /// Largest values that protocol, endpoints and people allow, and the fewest files at once; 1
    /// for an unsupported one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Bounds {
        /// Fewest files at once: no more than `concurrency_max`.
        pub concurrency_min: u16,
        /// Most files at once.
        pub concurrency_max: u16,
        /// Most streams per file.
        pub parallelism_max: u16,
        /// Most files asked for ahead.
        pub pipelining_max: u16,
    }
}

impl Bounds {
    /// Returns the nearest setting within the bounds.
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
