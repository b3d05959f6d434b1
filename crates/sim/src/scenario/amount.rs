use serde::Deserialize;

use crate::random::Dice;

/// Number, or a range from which the seed draws one.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Fixed(f64),
    Drawn([f64; 2]),
}

impl Amount {
    /// Draws the amount, in thousandths.
    pub(crate) fn draw_milli(self, dice: &mut Dice) -> u64 {
        match self.ends_milli() {
            (low, high) if matches!(self, Self::Drawn(_)) => dice.between(low, high),
            (fixed, _) => fixed,
        }
    }

    /// Draws an amount of mebibytes, in bytes.
    pub(crate) fn draw_bytes(self, dice: &mut Dice) -> u64 {
        from_milli_mebi(self.draw_milli(dice))
    }

    /// Returns the least and the most of an amount of mebibytes, in bytes.
    pub(crate) fn ends_bytes(self) -> (u64, u64) {
        let (low, high) = self.ends_milli();
        (from_milli_mebi(low), from_milli_mebi(high))
    }

    /// Returns the least and the most, in thousandths.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "scenarios hold small positive numbers"
    )]
    #[expect(
        clippy::cast_sign_loss,
        reason = "negative amounts are refused when read"
    )]
    fn ends_milli(self) -> (u64, u64) {
        let milli = |amount: f64| (amount * 1000.0).round() as u64;
        match self {
            Self::Fixed(amount) => (milli(amount), milli(amount)),
            Self::Drawn([low, high]) => (milli(low), milli(high)),
        }
    }

    pub(super) fn is_sound(self) -> bool {
        let fine = |amount: f64| amount.is_finite() && (0.0..1e12).contains(&amount);
        match self {
            Self::Fixed(amount) => fine(amount),
            Self::Drawn([low, high]) => fine(low) && fine(high) && low <= high,
        }
    }
}

/// Converts mebibytes to bytes, to the nearest.
#[expect(
    clippy::cast_possible_truncation,
    reason = "scenarios hold small positive numbers"
)]
#[expect(
    clippy::cast_sign_loss,
    reason = "negative amounts are refused when read"
)]
pub(crate) fn mebi(amount: f64) -> u64 {
    (amount * 1_048_576.0).round() as u64
}

/// Converts thousandths of a mebibyte to bytes.
fn from_milli_mebi(milli: u64) -> u64 {
    milli * (1 << 20) / 1000
}

/// Price in dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Deserialize)]
pub(crate) struct Price(f64);

/// Length of a month in prices: 30 days.
pub(crate) const SECONDS_A_MONTH: u64 = 30 * 86_400;

impl Price {
    /// Returns the price in millionths of a dollar.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "prices out of range are refused when read"
    )]
    pub(crate) fn micro(self) -> u64 {
        (self.0 * 1e6).round() as u64
    }

    pub(super) fn is_sound(self) -> bool {
        (0.0..=1e6).contains(&self.0)
    }
}
