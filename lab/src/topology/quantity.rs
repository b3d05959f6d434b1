//! Quantities as people write them: `1Gbit/s`, `30ms`, `7.5MB`, `0.01%`. Exact: no floats.

use std::{fmt, num::NonZeroU64, time::Duration};

use serde::{Deserialize, Serialize};

/// Nanoseconds in a second.
const NANOS_PER_S: u128 = 1_000_000_000;

/// The whole, in the parts a [`Share`] counts: 10^12, so that "0.0001%" is exact.
const WHOLE: u64 = 1_000_000_000_000;

/// The longest delay, jitter or moment: a day.
const SPAN_MAX: Duration = Duration::from_secs(86_400);

/// Most digits of a number: none that makes sense is longer, and all fit into 128 bits.
const DIGITS_MAX: usize = 18;

/// Rate in bits a second, or without limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(Option<NonZeroU64>);

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self(None);

    /// Returns the limit in bits a second, if there is one.
    #[must_use]
    pub fn bits_per_s(self) -> Option<u64> {
        self.0.map(NonZeroU64::get)
    }

    /// Returns the time for so many bytes, rounded down to a nanosecond; zero without limit.
    #[must_use]
    pub fn time_of(self, bytes: u64) -> Duration {
        let Some(bits_per_s) = self.0 else {
            return Duration::ZERO;
        };
        let nanos = u128::from(bytes) * 8 * NANOS_PER_S / u128::from(bits_per_s.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns the bytes that pass in this time; none without a limit.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bits_per_s = self.0.map_or(0, NonZeroU64::get);
        let bytes = u128::from(bits_per_s) * time.as_nanos() / NANOS_PER_S / 8;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl TryFrom<String> for Rate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if matches!(text.as_str(), "off" | "unlimited") {
            return Ok(Self::UNLIMITED);
        }
        let units = [
            ("bit", 1),
            ("kbit", 1_000),
            ("Mbit", 1_000_000),
            ("Gbit", 1_000_000_000),
        ];
        let bare = text.strip_suffix("/s").unwrap_or(&text);
        let bits = decimal(bare, &units).ok_or_else(|| {
            format!("\"{text}\" is no rate: write \"100Mbit/s\", \"1.5Gbit/s\" or \"unlimited\"")
        })?;
        NonZeroU64::new(bits)
            .map(|bits| Self(Some(bits)))
            .ok_or_else(|| "a rate of nothing carries nothing: write state = \"down\"".to_owned())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bits) = self.bits_per_s() else {
            return write!(f, "unlimited");
        };
        for (unit, size) in [
            ("Gbit", 1_000_000_000),
            ("Mbit", 1_000_000),
            ("kbit", 1_000),
        ] {
            if bits % size == 0 {
                return write!(f, "{}{unit}/s", bits / size);
            }
        }
        write!(f, "{bits}bit/s")
    }
}

/// A stretch of time, at most a day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(Duration);

impl Span {
    /// Returns the standard library's duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        self.0
    }
}

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ];
        let nanos = decimal(&text, &units).ok_or_else(|| {
            format!("\"{text}\" is no time: write \"30ms\", \"500us\" or \"1.5s\"")
        })?;
        let span = Duration::from_nanos(nanos);
        if span > SPAN_MAX {
            return Err(format!("\"{text}\" is longer than a day"));
        }
        Ok(Self(span))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// An amount of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(u64);

impl Size {
    /// Returns a size of so many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let units = [
            ("B", 1),
            ("kB", 1_000),
            ("MB", 1_000_000),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
        ];
        decimal(&text, &units).map(Self).ok_or_else(|| {
            format!("\"{text}\" is no size: write \"64KiB\", \"7.5MB\" or \"3000B\"")
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// A share of the whole, exact to 10^-12.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share(u64);

impl Share {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(WHOLE);

    /// Returns one of so many; nothing of none.
    #[must_use]
    pub fn one_of(many: u64) -> Self {
        Self(WHOLE.checked_div(many).unwrap_or(0))
    }

    /// Returns the bound below which a uniform 64-bit number falls with this probability.
    #[must_use]
    pub fn threshold(self) -> u128 {
        (u128::from(self.0) << 64) / u128::from(WHOLE)
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let share = decimal(
            &text,
            &[("%", u128::from(WHOLE) / 100), ("", u128::from(WHOLE))],
        );
        let share = share
            .ok_or_else(|| format!("\"{text}\" is no share: write \"0.01%\" or \"0.0001\""))?;
        if share > WHOLE {
            return Err(format!("\"{text}\" is more than everything"));
        }
        Ok(Self(share))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = WHOLE / 100;
        let rest = format!("{:010}", self.0 % percent);
        let rest = rest.trim_end_matches('0');
        let point = if rest.is_empty() { "" } else { "." };
        write!(f, "{}{point}{rest}%", self.0 / percent)
    }
}

/// serde's `into = "String"`.
macro_rules! into_string {
    ($($type:ty),*) => {$(
        impl From<$type> for String {
            fn from(quantity: $type) -> Self {
                quantity.to_string()
            }
        }
    )*};
}
into_string!(Rate, Span, Size, Share);

/// Parses a decimal number with one of the units, into the smallest; none for anything else. Digits
/// finer than the smallest unit are dropped.
fn decimal(text: &str, units: &[(&str, u128)]) -> Option<u64> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, size) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || whole.len() + fraction.len() > DIGITS_MAX {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    u64::try_from(digits * size / scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Result<Rate, String> {
        Rate::try_from(text.to_owned())
    }

    #[test]
    fn quantities_are_exact_and_come_back_as_written() {
        for text in ["1Gbit/s", "1500Mbit/s", "9kbit/s", "7bit/s", "unlimited"] {
            assert_eq!(rate(text).unwrap().to_string(), text);
        }
        assert_eq!(rate("1.5Gbit"), rate("1500Mbit/s"));
        for (text, nanos) in [
            ("30ms", 30_000_000),
            ("1.5s", 1_500_000_000),
            ("0.5us", 500),
        ] {
            let span = Span::try_from(text.to_owned()).unwrap();
            assert_eq!(span.duration(), Duration::from_nanos(nanos));
        }
        for (text, bytes) in [("7.5MB", 7_500_000), ("64KiB", 65_536), ("3 kB", 3_000)] {
            assert_eq!(Size::try_from(text.to_owned()).unwrap().bytes(), bytes);
        }
        for text in ["0.01%", "100%", "0%", "12.5%"] {
            assert_eq!(Share::try_from(text.to_owned()).unwrap().to_string(), text);
        }
        let share = |text: &str| Share::try_from(text.to_owned());
        assert_eq!(share("0.0001"), share("0.01%"));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in [
            "", "1", "-1Mbit", "1.Mbit", ".5Mbit", "1e3bit", "0bit", "1TB", "1..2bit",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        for text in ["", "5", "2days", "86401s", "1 2s"] {
            assert!(Span::try_from(text.to_owned()).is_err(), "{text}");
        }
        for text in ["101%", "1.1", "%", "5permille"] {
            assert!(Share::try_from(text.to_owned()).is_err(), "{text}");
        }
        assert!(Size::try_from("1234567890123456789B".to_owned()).is_err());
    }

    #[test]
    fn a_gigabit_takes_its_time() {
        let gigabit = rate("1Gbit/s").unwrap();
        assert_eq!(gigabit.time_of(1538), Duration::from_nanos(12_304));
        assert_eq!(gigabit.bytes_in(Duration::from_millis(60)), 7_500_000);
        assert_eq!(Rate::UNLIMITED.time_of(1 << 40), Duration::ZERO);
    }

    #[test]
    fn everything_is_below_its_threshold_and_nothing_is_not() {
        assert_eq!(Share::ALL.threshold(), 1 << 64);
        assert_eq!(Share::NONE.threshold(), 0);
        assert_eq!(Share::one_of(4).threshold(), 1 << 62);
    }
}
