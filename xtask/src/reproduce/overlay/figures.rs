//! Figures 3 to 7: the cost of a gateway, the gain by two of them, and the size from which on a
//! reservation pays.

use std::fmt::Write as _;

use super::{Case, Measured, Way};

/// Pairs of Figure 4.
const PAIRS: [(&str, &str); 5] = [
    ("bosshog", "tank"),
    ("tank", "bosshog"),
    ("dtn", "tank"),
    ("dtn", "test"),
    ("doright", "tank"),
];

/// Pairs within LBL of Figure 3.
const NEAR: [(&str, &str); 2] = [("dtn", "doright"), ("dtn", "bosshog")];

/// Streams side by side of Figure 7.
const STREAMS: [u32; 3] = [1, 2, 4];

/// Files of Figures 6 and 7, in GB, and times of Figure 5, in minutes.
const SIZES_GB: [f64; 6] = [1.0, 5.0, 10.0, 20.0, 40.0, 80.0];
const MINUTES: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

/// Cases to measure for the figures, besides those of the tables.
pub const CASES: [Case; 27] = [
    Case::single("dtn", "doright", Way::Direct),
    Case::single("dtn", "doright", Way::Reserved),
    Case::single("dtn", "bosshog", Way::Direct),
    Case::single("dtn", "bosshog", Way::Reserved),
    Case::single("dtn", "tank", Way::Direct),
    Case::single("dtn", "test", Way::Direct),
    Case::single("doright", "tank", Way::Direct),
    Case::single("bosshog", "tank", Way::BestEffort),
    Case::single("tank", "bosshog", Way::BestEffort),
    Case::single("dtn", "tank", Way::BestEffort),
    Case::single("dtn", "test", Way::BestEffort),
    Case::single("doright", "tank", Way::BestEffort),
    Case::single("bosshog", "tank", Way::Reserved),
    Case::single("tank", "bosshog", Way::Reserved),
    Case::single("dtn", "tank", Way::Reserved),
    Case::single("dtn", "test", Way::Reserved),
    Case::single("doright", "tank", Way::Reserved),
    Case::single("bosshog", "tank", Way::ReservedBbr),
    Case::single("tank", "bosshog", Way::ReservedBbr),
    Case::single("dtn", "tank", Way::ReservedBbr),
    Case::single("dtn", "test", Way::ReservedBbr),
    Case::single("doright", "tank", Way::ReservedBbr),
    several(2, Way::Direct),
    several(4, Way::Direct),
    several(2, Way::Reserved),
    several(4, Way::Reserved),
    Case::single("windows", "tank", Way::Reserved),
];

/// Returns a case of Figure 7 with so many streams.
const fn several(streams: u32, way: Way) -> Case {
    Case {
        from: "dtn",
        to: "test",
        way,
        streams,
    }
}

/// Returns the seconds for so many GB at a rate in Mbit/s.
fn seconds(size_gb: f64, mbit_per_s: f64) -> f64 {
    size_gb * 8000.0 / mbit_per_s
}

/// Returns the size in GB from which on the reserved route is faster, including its setup.
fn break_even_gb(direct: f64, reserved: f64, set_up_s: f64) -> Option<f64> {
    let spared_s = seconds(1.0, direct) - seconds(1.0, reserved);
    (spared_s > 0.0).then(|| set_up_s / spared_s)
}

/// Returns all figures.
///
/// # Errors
/// Fails if the paper's tables lack a number.
pub fn sections(measured: &Measured) -> anyhow::Result<String> {
    let set_up_s = measured.printed("facts", "circuit_setup_max_s")?;
    Ok([
        figure_3(measured),
        figure_4(measured)?,
        figure_5(measured, set_up_s),
        figure_6(measured, set_up_s)?,
        figure_7(measured, set_up_s),
    ]
    .concat())
}

fn figure_3(measured: &Measured) -> String {
    let mut text = String::from(
        "\n## Figure 3: what a gateway costs\n\nWithin LBL, Mbit/s. The paper: no difference but that of other traffic, \
         100 and about 940 Mbit/s.\n\n| from | to | direct | by a gateway | of direct |\n|---|---|---|---|---|\n",
    );
    for (from, to) in NEAR {
        let direct = measured.single(from, to, Way::Direct);
        let gateway = measured.single(from, to, Way::Reserved);
        let _ = writeln!(
            text,
            "| {from} | {to} | {direct:.1} | {gateway:.1} | {:.1} % |",
            100.0 * gateway / direct
        );
    }
    text
}

fn figure_4(measured: &Measured) -> anyhow::Result<String> {
    let mut text = format!(
        "\n## Figure 4: direct and overlay\n\nOne stream, Mbit/s; ratios to direct. The paper: at least {} times, {} Mbit/s \
         from dtn to tank where nothing was reserved and {} where the segment was.\n\n\
         | from | to | direct | best effort | reserved | gateways with BBR | reserved / direct |\n|---|---|---|---|---|---|---|\n",
        measured.printed("facts", "iperf_speedup_min")?,
        measured.printed("facts", "phoebus_no_oscars_mbps")?,
        measured.printed("facts", "phoebus_oscars_mbps")?,
    );
    for (from, to) in PAIRS {
        let rate = |way| measured.single(from, to, way);
        let _ = writeln!(
            text,
            "| {from} | {to} | {:.0} | {:.0} | {:.0} | {:.0} | {:.2} |",
            rate(Way::Direct),
            rate(Way::BestEffort),
            rate(Way::Reserved),
            rate(Way::ReservedBbr),
            rate(Way::Reserved) / rate(Way::Direct)
        );
    }
    let windows = |way| measured.single("windows", "tank", way);
    let _ = writeln!(
        text,
        "\nThe desktop with windows of 64 KiB: {:.1} direct, {:.0} by the gateways, {:.0} times.",
        windows(Way::Direct),
        windows(Way::Reserved),
        windows(Way::Reserved) / windows(Way::Direct)
    );
    Ok(text)
}

fn figure_5(measured: &Measured, set_up_s: f64) -> String {
    let mut text = format!(
        "\n## Figure 5: short transfers, set-up and all\n\nFrom memory to memory, tank to bosshog, Mbit/s over the whole time with \
         {set_up_s:.0} s of set-up at its beginning: from the rates above, as nothing but memory is involved in them. The paper \
         prints no numbers: \"even for short transfers (of < 10 minutes) it was possible to achieve much higher effective \
         throughput\".\n\n| data moves for, minutes | direct | overlay | overlay that waits for its set-up |\n|---|---|---|---|\n"
    );
    let direct = measured.single("tank", "bosshog", Way::Direct);
    let overlay = measured.single("tank", "bosshog", Way::Reserved);
    for minutes in MINUTES {
        let waits = overlay * minutes * 60.0 / (minutes * 60.0 + set_up_s);
        let _ = writeln!(
            text,
            "| {minutes:.0} | {direct:.0} | {overlay:.0} | {waits:.0} |"
        );
    }
    text
}

fn figure_6(measured: &Measured, set_up_s: f64) -> anyhow::Result<String> {
    let mut text = format!(
        "\n## Figure 6: from which size on it pays\n\nTank to bosshog, one stream, seconds: {set_up_s:.0} s of set-up and the size at the \
         rates above; disks are left out. *Meanwhile* is what posthaste does: it sends by best effort while the circuit is \
         set up.\n\n| size, GB | direct | overlay | overlay, best effort meanwhile |\n|---|---|---|---|\n"
    );
    let direct = measured.single("tank", "bosshog", Way::Direct);
    let reserved = measured.single("tank", "bosshog", Way::Reserved);
    for size in SIZES_GB {
        let alone = seconds(size, direct);
        let sent_meanwhile = (direct * set_up_s / 8000.0).min(size);
        let meanwhile = if alone <= set_up_s {
            alone
        } else {
            set_up_s + seconds(size - sent_meanwhile, reserved)
        };
        let _ = writeln!(
            text,
            "| {size:.0} | {alone:.0} | {:.0} | {meanwhile:.0} |",
            set_up_s + seconds(size, reserved)
        );
    }
    let ours = break_even_gb(direct, reserved, set_up_s);
    let printed = measured.printed("table2_measured_mbps", "tank(IU)>bosshog(LBL)")?;
    let paper = break_even_gb(
        printed,
        measured.printed("facts", "phoebus_oscars_mbps")?,
        set_up_s,
    );
    let size = |gb: Option<f64>| gb.map_or("never".to_owned(), |gb| format!("at {gb:.1} GB"));
    let _ = writeln!(
        text,
        "\nIt pays {}; the paper's rates with the same set-up give: {}. It saw direct \"slightly better\" at {} GB and overlay \
         ahead for larger files.",
        size(ours),
        size(paper),
        measured.printed("facts", "break_even_file_gb_tank_bosshog")?
    );
    Ok(text)
}

fn figure_7(measured: &Measured, set_up_s: f64) -> String {
    let mut text = String::from(
        "\n## Figure 7: parallel streams\n\nDtn to test, Mbit/s, and seconds for 10 and 40 GB with the set-up. The paper: four streams \
         are best directly and still behind the overlay, which needs one.\n\n\
         | streams | direct | overlay | 10 GB: direct | overlay | 40 GB: direct | overlay |\n|---|---|---|---|---|---|---|\n",
    );
    for streams in STREAMS {
        let direct = measured.rate(several(streams, Way::Direct));
        let overlay = measured.rate(several(streams, Way::Reserved));
        let _ = writeln!(
            text,
            "| {streams} | {direct:.0} | {overlay:.0} | {:.0} | {:.0} | {:.0} | {:.0} |",
            seconds(10.0, direct),
            set_up_s + seconds(10.0, overlay),
            seconds(40.0, direct),
            set_up_s + seconds(40.0, overlay)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_rates_break_even_where_it_says() {
        // 120 s over 8 s a GB times (1 / 0.35 - 1 / 0.94).
        let size = break_even_gb(350.0, 940.0, 120.0).unwrap();
        assert!((size - 8.4).abs() < 0.1, "{size}");
    }

    #[test]
    fn what_is_not_faster_never_pays() {
        assert_eq!(break_even_gb(900.0, 900.0, 120.0), None);
    }
}
