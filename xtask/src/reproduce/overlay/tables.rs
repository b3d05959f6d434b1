//! Tables 1 and 2: limits by windows, and rates of links.

use std::fmt::Write as _;

use anyhow::Context;
use toml::Value;

use super::{Case, Measured, Way};

/// Rows of Table 2: its (from, to), its name of the pair, and the reason for a difference.
const TABLE_2: [(&str, &str, &str); 8] = [
    ("bosshog", "tank", "bosshog(LBL)>tank(IU)"),
    ("bosshog", "phoebus-lbl", "bosshog(LBL)>phoebus-lbl"),
    ("phoebus-star", "tank", "phoebus-star>tank(IU)"),
    ("windows", "tank", "LBL-Windows-2003>tank(IU)"),
    ("windows", "phoebus-lbl", "LBL-Windows-2003>phoebus-lbl"),
    ("tank", "bosshog", "tank(IU)>bosshog(LBL)"),
    ("tank", "phoebus-star", "tank(IU)>phoebus-star"),
    ("phoebus-lbl", "bosshog", "phoebus-lbl>bosshog(LBL)"),
];

/// The segments of Table 1, in its order.
const TABLE_1: [(&str, &str); 4] = [
    ("tank", "bosshog"),
    ("tank", "phoebus-star"),
    ("phoebus-star", "phoebus-lbl"),
    ("phoebus-lbl", "bosshog"),
];

/// Cases to measure for the tables.
pub const CASES: [Case; 9] = [
    Case::single("bosshog", "tank", Way::Direct),
    Case::single("bosshog", "phoebus-lbl", Way::Direct),
    Case::single("phoebus-star", "tank", Way::Direct),
    Case::single("windows", "tank", Way::Direct),
    Case::single("windows", "phoebus-lbl", Way::Direct),
    Case::single("tank", "bosshog", Way::Direct),
    Case::single("tank", "phoebus-star", Way::Direct),
    Case::single("phoebus-lbl", "bosshog", Way::Direct),
    Case::single("phoebus-star", "phoebus-lbl", Way::Direct),
];

/// Returns both tables.
///
/// # Errors
/// Fails if the paper's tables lack a number.
pub fn sections(measured: &Measured) -> anyhow::Result<String> {
    let mut text = String::from(
        "\n## Table 1: what windows allow\n\nA window a round trip is all that TCP sends; the links carry 1 Gbit/s.\n\n\
         | segment | window, MB | round trip, ms | bound: paper, Mbit/s | of the link | ours measured |\n|---|---|---|---|---|---|\n",
    );
    let rows = measured
        .paper
        .get("table1_theoretical")
        .and_then(Value::as_array);
    let rows = rows.context("the paper's tables have no Table 1")?;
    for (row, (from, to)) in rows.iter().zip(TABLE_1) {
        let number = |name: &str| -> anyhow::Result<f64> {
            let value = row
                .get(name)
                .with_context(|| format!("Table 1 has no {name}"))?;
            let number = value
                .as_float()
                .map_or_else(|| value.to_string().parse(), Ok);
            number.with_context(|| format!("{name} is no number"))
        };
        let bound = number("theoretical_mbps")?;
        let _ = writeln!(
            text,
            "| {from} to {to} | {} | {} | {bound:.0} | {:.0} | {:.0} |",
            number("window_mb")?,
            number("latency_ms")?,
            bound.min(1000.0),
            measured.single(from, to, Way::Direct)
        );
    }
    text.push_str(
        "\n## Table 2: what links carry\n\nOne stream, Mbit/s.\n\n| from | to | paper | ours |\n|---|---|---|---|\n",
    );
    for (from, to, name) in TABLE_2 {
        let _ = writeln!(
            text,
            "| {from} | {to} | {} | {:.0} |",
            measured.printed("table2_measured_mbps", name)?,
            measured.single(from, to, Way::Direct)
        );
    }
    Ok(text)
}
