//! Measured bandwidth over time.

use std::time::Duration;

/// Most points of a trace: a year of minutes.
const POINTS_MAX: usize = 530_000;

/// Bytes a second in one megabit a second.
const MEGABIT: f64 = 125_000.0;

/// Sequence of rates, each for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    /// Rates in bytes a second, each with its duration.
    points: Vec<(u64, Duration)>,
}

impl Trace {
    /// Builds a trace from points of seconds and megabits a second; each rate holds until the next
    /// point. The last point only marks where the trace starts again; its rate is unused.
    pub(crate) fn new(points: &[(f64, f64)]) -> Result<Self, String> {
        let fine = |number: f64| number.is_finite() && (0.0..1e9).contains(&number);
        if !points.iter().all(|(at, rate)| fine(*at) && fine(*rate)) {
            return Err("seconds and Mbit/s are numbers from 0".into());
        }
        if points.len() < 2 || points.len() > POINTS_MAX {
            return Err(format!("a trace has 2 to {POINTS_MAX} points"));
        }
        let lasting = points
            .windows(2)
            .map(|pair| (pair[0].1, pair[1].0 - pair[0].0));
        let points = lasting.map(|(rate, seconds)| {
            if seconds < 0.001 {
                return Err(String::from(
                    "moments of a trace rise, by a millisecond at least",
                ));
            }
            Ok((bytes(rate), Duration::from_secs_f64(seconds)))
        });
        Ok(Self {
            points: points.collect::<Result<_, _>>()?,
        })
    }

    /// Parses lines of two numbers.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let points: Result<Vec<(f64, f64)>, String> = lines
            .map(|line| {
                let mut numbers = line
                    .split([',', ' ', '\t'])
                    .filter(|word| !word.is_empty())
                    .map(str::parse);
                match (numbers.next(), numbers.next(), numbers.next()) {
                    (Some(Ok(at)), Some(Ok(rate)), None) => Ok((at, rate)),
                    _ => Err(format!("`{line}` is not seconds and Mbit/s")),
                }
            })
            .collect();
        Self::new(&points?)
    }

    pub(crate) fn len(&self) -> usize {
        self.points.len()
    }

    /// Returns a point: bytes a second and its duration.
    pub(crate) fn point(&self, place: usize) -> (u64, Duration) {
        self.points[place]
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "rates were looked at before"
)]
#[expect(clippy::cast_sign_loss, reason = "negative rates were refused before")]
fn bytes(megabits: f64) -> u64 {
    (megabits * MEGABIT).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_seconds_and_megabits_become_rates_and_times() {
        let trace = Trace::parse("# measured\n0.5 8.0\n1.5\t16\n4.5, 1\n").unwrap();
        assert_eq!(trace.len(), 2);
        assert_eq!(trace.point(0), (1_000_000, Duration::from_secs(1)));
        assert_eq!(trace.point(1), (2_000_000, Duration::from_secs(3)));
    }

    #[test]
    fn what_is_no_trace_is_said() {
        for (text, said) in [
            ("1 2\n1 3\n", "rise"),
            ("1 2\n", "2 to"),
            ("1 2\n3\n", "`3` is not"),
            ("1 2\n3 -4\n", "from 0"),
            ("1 2 3\n", "is not"),
        ] {
            assert!(Trace::parse(text).unwrap_err().contains(said), "{text}");
        }
    }
}
