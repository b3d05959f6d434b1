//! Rates in the units of networks.

use posthaste_types::ByteRate;

/// Reads `10Gbit`, `2.5Gbit/s` or `400Mbps` as bits a second with decimal prefixes, as networks use
/// them. Reads `100M` or `100MiB/s` as bytes a second, as everywhere else.
///
/// # Errors
/// A line that shows the accepted form.
pub fn read_rate(text: &str) -> Result<ByteRate, String> {
    let wrong = || format!("`{text}` is no rate: write 10Gbit, 400Mbit or 100MiB/s");
    let trimmed = text.trim();
    let bits = trimmed.strip_suffix("bps").or_else(|| {
        let plain = trimmed.strip_suffix("/s").unwrap_or(trimmed);
        plain.strip_suffix("bit")
    });
    let Some(bits) = bits else {
        return trimmed.parse().map_err(|_| wrong());
    };
    let (number, factor) = match bits
        .trim_end()
        .split_at_checked(bits.trim_end().len().saturating_sub(1))
    {
        Some((number, "k" | "K")) => (number, 1_000),
        Some((number, "M")) => (number, 1_000_000),
        Some((number, "G")) => (number, 1_000_000_000),
        Some((number, "T")) => (number, 1_000_000_000_000),
        Some(_) | None => (bits, 1_u64),
    };
    let (whole, fraction) = number
        .trim()
        .split_once('.')
        .unwrap_or((number.trim(), "0"));
    let digits = |text: &str| {
        !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit())
    };
    if !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let (whole, thousandths): (u64, u64) = (
        whole.parse().map_err(|_| wrong())?,
        format!("{fraction:0<9}").parse().map_err(|_| wrong())?,
    );
    let bits = u128::from(whole) * u128::from(factor)
        + u128::from(thousandths) * u128::from(factor) / 1_000_000_000;
    let bytes = u64::try_from(bits / 8).map_err(|_| wrong())?;
    Ok(ByteRate::new(bytes))
}

/// Formats a rate in the units of networks: `2.5 Gbit/s`.
#[must_use]
pub fn show_rate(rate: ByteRate) -> String {
    let bits = u128::from(rate.get()) * 8;
    let (unit, factor) = match bits {
        1_000_000_000.. => ("Gbit/s", 1_000_000_000),
        1_000_000.. => ("Mbit/s", 1_000_000),
        1_000.. => ("kbit/s", 1_000),
        _ => ("bit/s", 1),
    };
    let thousandths = bits * 1000 / factor;
    let fraction = format!("{:03}", thousandths % 1000);
    match fraction.trim_end_matches('0') {
        "" => format!("{} {unit}", thousandths / 1000),
        fraction => format!("{}.{fraction} {unit}", thousandths / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_networks_write_them() {
        for (text, bytes_per_s) in [
            ("1Gbit", 125_000_000),
            ("2.5Gbit/s", 312_500_000),
            ("400 Mbps", 50_000_000),
            ("8bit", 1),
            ("100M", 100 << 20),
            ("100MiB/s", 100 << 20),
            ("1Tbit", 125_000_000_000),
        ] {
            assert_eq!(
                read_rate(text).map(ByteRate::get),
                Ok(bytes_per_s),
                "{text}"
            );
        }
        for text in [
            "",
            "bit",
            "Gbit",
            "1.2.3Gbit",
            "-1Gbit",
            "1e9bit",
            "ümbit",
            "fast",
            ".5Gbit",
        ] {
            assert!(read_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_shown_as_they_are_read() {
        for text in [
            "2.5 Gbit/s",
            "1 Gbit/s",
            "400 Mbit/s",
            "8 kbit/s",
            "8 bit/s",
        ] {
            assert_eq!(show_rate(read_rate(text).unwrap()), text);
        }
    }
}
