//! Money and prices of bytes.

use alloc::vec::Vec;
use core::{cmp::Ordering, iter::Sum, time::Duration};
use posthaste_types::{Bytes, Malformed, Record, record};

/// Seconds of an hour: the unit of prices for keeping data.
const HOUR_S: u128 = 3600;

record! {
    /// An amount of money in millionths of a US dollar. Sums saturate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct Money {
        micro_usd: u64,
    }
}

impl Money {
    /// No money.
    pub const ZERO: Self = Self { micro_usd: 0 };

    /// Returns this many millionths of a dollar.
    #[must_use]
    pub const fn from_micro_usd(micro_usd: u64) -> Self {
        Self { micro_usd }
    }

    /// Returns the millionths of a dollar.
    #[must_use]
    pub const fn micro_usd(self) -> u64 {
        self.micro_usd
    }
}

impl core::ops::Add for Money {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
        }
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(items: I) -> Self {
        items.fold(Self::ZERO, core::ops::Add::add)
    }
}

/// Price of moving bytes, or of keeping them for an hour: an amount of money for a number of bytes.
/// Amounts are computed with 128 bits, rounded up once and saturate, so that nothing overflows.
#[derive(Debug, Clone, Copy)]
pub struct Price {
    micro_usd: u64,
    /// Bytes the money is for; never zero.
    per: u64,
}

impl Price {
    /// No price.
    pub const FREE: Self = Self {
        micro_usd: 0,
        per: 1,
    };

    /// Returns `money` for `per` bytes; for one byte if `per` is zero.
    #[must_use]
    pub const fn new(money: Money, per: Bytes) -> Self {
        let per = if per.get() == 0 { 1 } else { per.get() };
        Self {
            micro_usd: money.micro_usd,
            per,
        }
    }

    /// Returns the price of `bytes`, rounded up.
    #[must_use]
    pub fn of(self, bytes: Bytes) -> Money {
        self.times(u128::from(bytes.get()), 1)
    }

    /// Returns the price of keeping, where `self` is the price of an hour: `byte_seconds` is the
    /// sum of bytes times the seconds they lie there.
    #[must_use]
    pub fn keeping(self, byte_seconds: u128) -> Money {
        self.times(byte_seconds, HOUR_S)
    }

    /// Returns the price as a fraction: millionths of a dollar, and the number of bytes.
    #[must_use]
    pub const fn fraction(self) -> (u64, u64) {
        (self.micro_usd, self.per)
    }

    fn times(self, amount: u128, divisor: u128) -> Money {
        let cost = amount
            .saturating_mul(u128::from(self.micro_usd))
            .div_ceil(u128::from(self.per) * divisor);
        Money {
            micro_usd: u64::try_from(cost).unwrap_or(u64::MAX),
        }
    }
}

impl Record for Price {
    fn write(&self, out: &mut Vec<u8>) {
        self.fraction().write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let (money, per) = <(u64, u64)>::read(input)?;
        Ok(Self::new(Money::from_micro_usd(money), Bytes::new(per)))
    }
}

impl Default for Price {
    fn default() -> Self {
        Self::FREE
    }
}

impl Ord for Price {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = u128::from(self.micro_usd) * u128::from(other.per);
        ours.cmp(&(u128::from(other.micro_usd) * u128::from(self.per)))
    }
}

impl PartialOrd for Price {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Price {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Price {}

/// Returns bytes times seconds, for [`Price::keeping`]; begun seconds of a slot count in full.
pub(crate) fn byte_seconds(bytes: u64, span: Duration) -> u128 {
    u128::from(bytes) * u128::from(span.as_secs() + u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn usd(usd: u64) -> Money {
        Money::from_micro_usd(usd * 1_000_000)
    }

    #[test]
    fn a_price_rounds_up_once() {
        let price = Price::new(usd(1), Bytes::new(3_000_000));
        assert_eq!(price.of(Bytes::new(3)), Money::from_micro_usd(1));
        assert_eq!(price.of(Bytes::new(4)), Money::from_micro_usd(2));
        assert_eq!(price.of(Bytes::ZERO), Money::ZERO);
        let hour = Price::new(usd(1), Bytes::new(1000));
        assert_eq!(hour.keeping(1000 * 7200), usd(2));
    }

    #[test]
    fn prices_compare_as_fractions() {
        let cheap = Price::new(usd(1), Bytes::new(3));
        let dear = Price::new(usd(2), Bytes::new(5));
        assert!(cheap < dear && Price::FREE < cheap);
        assert_eq!(cheap, Price::new(usd(2), Bytes::new(6)));
    }

    proptest! {
        #[test]
        fn nothing_overflows(micro in any::<u64>(), per in any::<u64>(), bytes in any::<u64>()) {
            let price = Price::new(Money::from_micro_usd(micro), Bytes::new(per));
            let exact = (u128::from(micro) * u128::from(bytes)).div_ceil(u128::from(per.max(1)));
            let all = price.of(Bytes::new(bytes));
            prop_assert_eq!(u128::from(all.micro_usd()), exact.min(u128::from(u64::MAX)));
            prop_assert!(price.keeping(u128::MAX) >= price.keeping(1));
        }
    }
}
