use alloc::string::{String, ToString};
use core::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Sub, SubAssign},
    str::FromStr,
    time::Duration,
};

use crate::record;

record! {
    /// An amount of data. Arithmetic saturates: an amount never wraps into a small one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Bytes {
        count: u64,
    }
}

record! {
    /// An amount of data a second.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct ByteRate {
        bytes_per_s: u64,
    }
}

/// A size or rate that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantityError {
    text: String,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no size: write a number with B, K, M, G, T or P, like 64M",
            self.text
        )
    }
}

impl core::error::Error for QuantityError {}

impl Bytes {
    /// No data.
    pub const ZERO: Self = Self { count: 0 };

    /// Returns `count` bytes.
    #[must_use]
    pub const fn new(count: u64) -> Self {
        Self { count }
    }

    /// Returns `count` mebibytes.
    #[must_use]
    pub const fn mebi(count: u64) -> Self {
        Self {
            count: count.saturating_mul(1 << 20),
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.count
    }

    /// Returns the number of pieces of `size`, the last one perhaps short; zero for no data.
    #[must_use]
    pub const fn pieces(self, size: Self) -> u64 {
        if size.count == 0 {
            0
        } else {
            self.count.div_ceil(size.count)
        }
    }

    /// Multiplies, saturating.
    #[must_use]
    pub const fn times(self, factor: u64) -> Self {
        Self {
            count: self.count.saturating_mul(factor),
        }
    }
}

impl ByteRate {
    /// No data per second.
    pub const ZERO: Self = Self { bytes_per_s: 0 };

    /// Returns this many bytes a second.
    #[must_use]
    pub const fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s }
    }

    /// Returns the bytes a second.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.bytes_per_s
    }

    /// Returns the mean rate of `bytes` over `span`; zero for no time.
    #[must_use]
    pub fn over(bytes: Bytes, span: Duration) -> Self {
        let micros = span.as_micros();
        if micros == 0 {
            return Self::ZERO;
        }
        let rate = u128::from(bytes.count) * 1_000_000 / micros;
        Self {
            bytes_per_s: u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }

    /// Returns the time that `bytes` take at this rate; a thousand years if the rate is zero.
    #[must_use]
    pub fn time_for(self, bytes: Bytes) -> Duration {
        const NEVER: Duration = Duration::from_secs(1000 * 365 * 86400);
        if bytes.count == 0 {
            return Duration::ZERO;
        }
        if self.bytes_per_s == 0 {
            return NEVER;
        }
        let micros = u128::from(bytes.count) * 1_000_000 / u128::from(self.bytes_per_s);
        u64::try_from(micros)
            .map_or(NEVER, Duration::from_micros)
            .min(NEVER)
    }

    /// Returns the bytes that pass in `span`.
    #[must_use]
    pub fn volume(self, span: Duration) -> Bytes {
        let bytes = u128::from(self.bytes_per_s) * span.as_micros() / 1_000_000;
        Bytes {
            count: u64::try_from(bytes).unwrap_or(u64::MAX),
        }
    }

    /// Returns `self * numerator / denominator`, saturating. A zero denominator gives zero.
    #[must_use]
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        if denominator == 0 {
            return Self::ZERO;
        }
        let rate = u128::from(self.bytes_per_s) * u128::from(numerator) / u128::from(denominator);
        Self {
            bytes_per_s: u64::try_from(rate).unwrap_or(u64::MAX),
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
        }
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_sub(other.count),
        }
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}

impl Add for ByteRate {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            bytes_per_s: self.bytes_per_s.saturating_add(other.bytes_per_s),
        }
    }
}

impl Sum for ByteRate {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, Add::add)
    }
}

/// Writes `count` with a binary prefix and at most three digits before it.
fn write_scaled(f: &mut fmt::Formatter<'_>, count: u64, unit: &str) -> fmt::Result {
    const PREFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let step = (0..PREFIXES.len())
        .rev()
        .find(|step| count >> (10 * step) > 0)
        .unwrap_or(0);
    if step == 0 {
        return f.pad(&alloc::format!("{count} {unit}"));
    }
    let tenths = (u128::from(count) * 10) >> (10 * step);
    f.pad(&alloc::format!(
        "{}.{} {}{unit}",
        tenths / 10,
        tenths % 10,
        PREFIXES[step]
    ))
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.count, "B")
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.bytes_per_s, "B/s")
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    /// Reads `64M`, `64MiB`, `1.5G` or plain bytes; prefixes are binary, as rclone's are.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError {
            text: text.to_string(),
        };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, suffix) = trimmed.split_at(digits.unwrap_or(trimmed.len()));
        let suffix = suffix.trim();
        let prefix = suffix
            .strip_suffix("iB")
            .or(suffix.strip_suffix('B'))
            .unwrap_or(suffix);
        let shift = match prefix {
            "" => 0,
            "K" | "k" => 10,
            "M" | "m" => 20,
            "G" | "g" => 30,
            "T" | "t" => 40,
            "P" | "p" => 50,
            _ => return Err(error()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = whole.len()
            + number
                .split_once('.')
                .map_or(0, |(_, fraction)| fraction.len());
        if digits == 0 || fraction.len() > 9 {
            return Err(error());
        }
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| error())?
        };
        let divisor = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(9));
        let below_one: u64 = if fraction.is_empty() {
            0
        } else {
            fraction.parse().map_err(|_| error())?
        };
        let count = (u128::from(whole) << shift) + (u128::from(below_one) << shift) / divisor;
        Ok(Self {
            count: u64::try_from(count).map_err(|_| error())?,
        })
    }
}

impl FromStr for ByteRate {
    type Err = QuantityError;

    /// Reads `10M` or `10MiB/s` as bytes a second.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let bytes: Bytes = text.trim().trim_end_matches("/s").parse()?;
        Ok(Self {
            bytes_per_s: bytes.get(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn sizes_are_read_as_rclone_reads_them() {
        for (text, count) in [
            ("0", 0),
            ("1", 1),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("1.5G", 3 << 29),
            (".5K", 512),
            ("7 k", 7 << 10),
        ] {
            assert_eq!(text.parse(), Ok(Bytes::new(count)), "{text}");
        }
        for text in [
            "",
            ".",
            "M",
            "1.2.3",
            "-1",
            "1X",
            "99999999999P",
            "1.0123456789K",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text} was taken");
        }
        assert_eq!("10M/s".parse(), Ok(ByteRate::new(10 << 20)));
    }

    #[test]
    fn sizes_are_shown_with_one_decimal() {
        assert_eq!(format!("{}", Bytes::new(1023)), "1023 B");
        assert_eq!(format!("{}", Bytes::new(3 << 29)), "1.5 GiB");
        assert_eq!(format!("{}", ByteRate::new(10 << 20)), "10.0 MiB/s");
        assert_eq!(format!("{}", Bytes::new(u64::MAX)), "15.9 EiB");
    }

    #[test]
    fn a_rate_and_a_time_give_back_the_volume() {
        let rate = ByteRate::over(Bytes::mebi(30), Duration::from_secs(3));
        assert_eq!(rate, ByteRate::new(10 << 20));
        assert_eq!(rate.time_for(Bytes::mebi(30)), Duration::from_secs(3));
        assert_eq!(rate.volume(Duration::from_secs(3)), Bytes::mebi(30));
        assert!(ByteRate::ZERO.time_for(Bytes::new(1)) > Duration::from_secs(1 << 30));
    }
}
