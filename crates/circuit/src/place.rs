//! Placement of a volume with a deadline at a provider that accepts only a rate over a span.

use std::time::Duration;

use posthaste_types::{ByteRate, Timestamp};

use crate::{Capabilities, Terms, What};

/// Result of placing a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placing {
    /// Terms at the highest rate, as early as possible: they take from others for the shortest
    /// time.
    At(Terms),
    /// Volume that is late even at the highest rate from the earliest moment.
    TooMuch {
        /// Time at which it would be done.
        done: Timestamp,
    },
}

/// Converts a request into one rate over one span, in the provider's units. A fixed rate is rounded
/// up to whole steps. A volume gets its highest rate or `rate_max`, whichever is lower, rounded
/// down. It starts no earlier than `now` plus the set-up time, and its span is at least the
/// provider's shortest.
#[must_use]
pub fn place(what: &What, can: &Capabilities, rate_max: ByteRate, now: Timestamp) -> Placing {
    match *what {
        What::Fixed(terms) => Placing::At(Terms {
            rate: in_steps(terms.rate, can.rate_step),
            ..terms
        }),
        What::Volume {
            bytes,
            earliest,
            deadline,
            rate_max: wish,
        } => {
            // Downwards, as the request sets an upper limit.
            let step = can.rate_step.get().max(1);
            let top = wish.min(rate_max).get();
            let rate = ByteRate::new((top / step * step).max(step.min(top)));
            let from = earliest.max(now + can.lead);
            // The extra microsecond covers the remainder of the division.
            let needs = rate.time_for(bytes) + Duration::from_micros(1);
            let done = from + needs;
            if done > deadline {
                return Placing::TooMuch { done };
            }
            Placing::At(Terms {
                rate,
                from,
                until: whole_second(from + needs.max(can.least)),
            })
        }
    }
}

/// Rounds up to the next multiple of `step`.
pub(crate) fn in_steps(rate: ByteRate, step: ByteRate) -> ByteRate {
    let step = step.get().max(1);
    ByteRate::new(rate.get().div_ceil(step).saturating_mul(step))
}

/// Rounds up to the whole seconds in which providers count.
fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_secs(at.as_micros().div_ceil(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Bytes;

    const CAN: Capabilities = Capabilities {
        least: Duration::from_secs(900),
        lead: Duration::from_secs(120),
        rate_step: ByteRate::new(125_000),
        moves_end: true,
        moves_start: false,
        changes_rate: true,
    };

    fn volume(bytes: u64, deadline_s: u64) -> What {
        What::Volume {
            bytes: Bytes::new(bytes),
            earliest: Timestamp::from_secs(0),
            deadline: Timestamp::from_secs(deadline_s),
            rate_max: ByteRate::new(u64::MAX),
        }
    }

    #[test]
    fn a_volume_goes_as_fast_and_as_early_as_it_can() {
        let now = Timestamp::from_secs(1000);
        let rate_max = ByteRate::new(125_000_000);
        let Placing::At(terms) = place(&volume(250_000_000_000, 9000), &CAN, rate_max, now) else {
            panic!("2,000 s fit");
        };
        assert_eq!(terms.from, Timestamp::from_secs(1120));
        assert_eq!(terms.until, Timestamp::from_secs(3121));
        assert_eq!(terms.rate, rate_max);
        assert!(terms.volume() >= Bytes::new(250_000_000_000));
        let Placing::TooMuch { done } = place(&volume(250_000_000_000, 3120), &CAN, rate_max, now)
        else {
            panic!("one microsecond too late");
        };
        assert!(done > Timestamp::from_secs(3120));
    }

    #[test]
    fn a_small_volume_pays_for_the_shortest_span() {
        let Placing::At(terms) = place(
            &volume(1, 9000),
            &CAN,
            ByteRate::new(1_000_000),
            Timestamp::from_secs(0),
        ) else {
            panic!("one byte fits");
        };
        assert_eq!(terms.until.since(terms.from), CAN.least);
    }

    #[test]
    fn rates_come_in_whole_steps_upwards() {
        let step = ByteRate::new(125_000);
        assert_eq!(in_steps(ByteRate::new(1), step), step);
        assert_eq!(in_steps(step, step), step);
        assert_eq!(in_steps(ByteRate::new(125_001), step).get(), 250_000);
        let terms = Terms {
            rate: ByteRate::new(1),
            from: Timestamp::from_secs(5),
            until: Timestamp::from_secs(6),
        };
        let placed = place(&What::Fixed(terms), &CAN, step, Timestamp::from_secs(0));
        assert_eq!(
            placed,
            Placing::At(Terms {
                rate: step,
                ..terms
            })
        );
    }

    #[test]
    fn nothing_is_too_late_for_no_rate() {
        let placed = place(
            &volume(1, 9000),
            &CAN,
            ByteRate::ZERO,
            Timestamp::from_secs(0),
        );
        assert!(matches!(placed, Placing::TooMuch { .. }), "{placed:?}");
    }
}
