//! Load of a relay's machine.

use std::{fs::File, io::Read, path::Path, thread::available_parallelism};

/// Maximum size of the load file, which is one line.
const BYTES_MAX: u64 = 4096;
/// Largest load reported: a larger one says no more.
const PERMILLE_MAX: f64 = 1e9;

/// Returns the load average of the last minute over the number of cores, in thousandths; `None` if
/// that can't be read.
pub(crate) fn permille(from: &Path) -> Option<u32> {
    let mut text = String::new();
    let file = File::open(from).ok()?;
    file.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    let cores = available_parallelism().map_or(1, usize::from);
    read(&text, cores)
}

/// Returns the load by the text of `/proc/loadavg`.
fn read(text: &str, cores: usize) -> Option<u32> {
    let load: f64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "nobody has so many cores")]
    let permille = load * 1000.0 / cores as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked before"
    )]
    (0.0..=PERMILLE_MAX)
        .contains(&permille)
        .then(|| permille.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_that_of_a_minute_for_each_core() {
        assert_eq!(read("1.00 0.50 0.25 1/234 5678\n", 4), Some(250));
        assert_eq!(read("0.31", 1), Some(310));
        for odd in ["", "x 1 2", "-1 0 0", "NaN", "inf 1 1"] {
            assert_eq!(read(odd, 4), None, "{odd}");
        }
    }
}
