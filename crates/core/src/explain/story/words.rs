//! Times, amounts and lists as people say them.

use alloc::{
    format,
    string::{String, ToString},
};
use core::time::Duration;
use posthaste_types::Timestamp;

const DAY_S: u64 = 86400;

/// Returns a moment as read on the day of another: with its date if the days differ.
pub(super) fn moment(at: Timestamp, on: Timestamp) -> String {
    on.undate(&at.to_string())
}

/// Returns the next moment of a story: with its date if that differs from the date of the one
/// `told` before.
pub(super) fn next_moment(told: &mut Option<Timestamp>, at: Timestamp) -> String {
    let before = told.replace(at);
    before.map_or_else(|| at.to_string(), |before| moment(at, before))
}

/// Returns a length of time: `41.2 s`, `12 min`, `3.5 h`, `2.1 d`.
pub(super) fn span(span: Duration) -> String {
    let tenths = |unit_ms: u128| {
        let tenths = (span.as_millis() * 10 + unit_ms / 2) / unit_ms;
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let seconds = span.as_secs();
    if seconds < 100 {
        format!("{} s", tenths(1000))
    } else if seconds < 5400 {
        format!("{} min", (seconds + 30) / 60)
    } else if seconds < 2 * DAY_S {
        format!("{} h", tenths(3_600_000))
    } else {
        format!("{} d", tenths(86_400_000))
    }
}

/// Returns a length of signed microseconds, without their sign.
pub(super) fn span_micros(micros: i64) -> String {
    span(Duration::from_micros(micros.unsigned_abs()))
}

/// Returns the verdict on something due by a deadline: a finish after that, or none, is never on
/// time.
pub(super) fn verdict(
    (missed, at_risk): (bool, bool),
    finish: Option<Timestamp>,
    deadline: Timestamp,
) -> &'static str {
    match (missed, at_risk || finish.is_none_or(|at| at > deadline)) {
        (true, _) => "late",
        (false, true) => "at risk",
        (false, false) => "on time",
    }
}

/// Returns `1 chunk`, `2 chunks`.
pub(super) fn count(number: u32, noun: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{end}")
}

/// Returns `a`, `a and b`, `a, b and c`.
pub(super) fn list<T: AsRef<str>>(items: &[T], last: &str) -> String {
    let Some((end, rest)) = items.split_last() else {
        return String::new();
    };
    let mut text = String::new();
    for (place, item) in rest.iter().enumerate() {
        if place > 0 {
            text += ", ";
        }
        text += item.as_ref();
    }
    if !rest.is_empty() {
        text += " ";
        text += last;
        text += " ";
    }
    text + end.as_ref()
}

/// Returns `a third` of three; after twelve it is `another`.
pub(super) fn one_more(fan_out: u32) -> &'static str {
    const ORDINALS: [&str; 13] = [
        "another",
        "a first",
        "a second",
        "a third",
        "a fourth",
        "a fifth",
        "a sixth",
        "a seventh",
        "an eighth",
        "a ninth",
        "a tenth",
        "an eleventh",
        "a twelfth",
    ];
    ORDINALS
        .get(fan_out as usize)
        .copied()
        .unwrap_or(ORDINALS[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (millis, expected) in [
            (0, "0.0 s"),
            (41_234, "41.2 s"),
            (100_000, "2 min"),
            (754_000, "13 min"),
            (12_600_000, "3.5 h"),
            (181_440_000, "2.1 d"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn lists_and_counts_read_well() {
        assert_eq!(list(&["a"], "and"), "a");
        assert_eq!(list(&["a", "b", "c"], "or"), "a, b or c");
        assert_eq!(
            (count(1, "chunk"), count(0, "chunk")),
            ("1 chunk".into(), "0 chunks".into())
        );
        assert_eq!((one_more(3), one_more(99)), ("a third", "another"));
    }
}
