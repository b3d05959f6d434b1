//! Numbers in Slurm's JSON: plain until 22.05, later with a flag that says whether they are set.

use std::{fmt, time::Duration};

use posthaste_types::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

/// Slurm's plain numbers for "not set" and "without end".
const NO_VALUE: u64 = 0xffff_fffe;
const INFINITE: u64 = 0xffff_ffff;

/// Number; `None` if not set, without end or negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Number(pub(super) Option<u64>);

impl Number {
    /// Returns the moment in seconds since 1970; `None` for 0.
    pub(super) fn moment(self) -> Option<Timestamp> {
        self.0.filter(|secs| *secs > 0).map(Timestamp::from_secs)
    }

    pub(super) fn minutes(self) -> Option<Duration> {
        self.0
            .map(|minutes| Duration::from_secs(minutes.saturating_mul(60)))
    }

    pub(super) fn count(self) -> Option<u32> {
        u32::try_from(self.0?).ok()
    }

    fn plain(number: u64) -> Self {
        let is_special =
            matches!(number, NO_VALUE | INFINITE) || number == u64::MAX || number == u64::MAX - 1;
        Self((!is_special).then_some(number))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(Shapes)
    }
}

struct Shapes;

impl<'de> Visitor<'de> for Shapes {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or {set, infinite, number}")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
        Ok(Number::plain(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
        Ok(u64::try_from(number).map_or(Number(None), Number::plain))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast of a float saturates, and what is below zero is none"
    )]
    fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
        Ok(if number >= 0.0 {
            Number::plain(number as u64)
        } else {
            Number(None)
        })
    }

    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(text.parse().map_or(Number(None), Number::plain))
    }

    fn visit_unit<E>(self) -> Result<Number, E> {
        Ok(Number(None))
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Number, M::Error> {
        let (mut is_set, mut is_infinite, mut found) = (true, false, Number(None));
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "set" => is_set = map.next_value()?,
                "infinite" => is_infinite = map.next_value()?,
                "number" => found = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(if is_set && !is_infinite {
            found
        } else {
            Number(None)
        })
    }
}
