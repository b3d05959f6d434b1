//! The report: medians, ranges, and how posthaste stands to the best rival.

use std::{fmt::Write, path::Path};

use posthaste_testbed::install;

use super::{
    super::{
        figures::{Spread, capitalized, first_line, machine},
        measure::Sample,
    },
    Load, Row,
    site::Place,
    tool::{Tool, Way},
};

/// The whole report.
pub fn write(rows: &[Row], tools: &[Tool], folder: &Path, runs: usize) -> String {
    let mut text = String::from(
        "# Copy beside its rivals\n\n\
         Written by `cargo xtask bench copy`; run it to get your machine's figures. Every contender \
         runs with its defaults, each time as a fresh process against a clean destination, in \
         turns; the page cache is warm and `sync` runs before each start. Figures are medians",
    );
    let _ = writeln!(
        text,
        " of {runs}, ranges in parentheses. CPU is the client's, user and system; servers and the far end \
         works on the same machine beside it. The bare limit does less than a copy: one connection, \
         to a server that throws away what it gets and checks nothing.\n"
    );
    text.push_str(&machine(folder));
    for contender in tools {
        let version = match &contender.program {
            Ok(_) => contender
                .version()
                .unwrap_or_else(|| "unknown version".to_owned()),
            Err(reason) => format!("could not be had: {}", first_line(reason)),
        };
        let _ = writeln!(text, "- {}: {version}", contender.name);
    }
    let _ = writeln!(
        text,
        "- S3 server: versitygw {}",
        install::VERSITYGW.version
    );
    let _ = writeln!(
        text,
        "- Google Cloud Storage server: fake-gcs-server {}, a stand-in that keeps each object in \
         memory before it writes it",
        install::FAKE_GCS_SERVER.version
    );
    for place in Place::ALL {
        let _ = writeln!(text, "\n## {}\n", capitalized(place.title()));
        text.push_str(
            "| what | contender | wall s | CPU s | peak MiB | wall / best rival | CPU / best rival | \
             wall / bare limit |\n|---|---|---|---|---|---|---|---|\n",
        );
        for load in Load::ALL {
            for way in Way::ALL {
                let these: Vec<&Row> = rows
                    .iter()
                    .filter(|row| row.load == load && row.place == place && row.way == way)
                    .collect();
                for (index, row) in these.iter().enumerate() {
                    text.push_str(&line(row, index == 0, &these));
                }
            }
        }
    }
    text
}

fn line(row: &Row, is_ours: bool, rows: &[&Row]) -> String {
    let head = format!(
        "| {} {} | {} |",
        row.way.title(),
        row.load.title(),
        row.tool
    );
    let samples = match &row.samples {
        Ok(samples) => samples,
        Err(reason) => {
            return format!("{head} {} | | | | | |\n", first_line(reason));
        }
    };
    let wall = Spread::of(samples, |sample| sample.wall_s);
    let cpu = Spread::of(samples, |sample| sample.cpu_s);
    let peak = samples
        .iter()
        .map(|sample| sample.peak_mib)
        .max()
        .unwrap_or(0);
    let ratio = |is_limit: bool, ours: f64, figure: fn(&Sample) -> f64| -> String {
        let rivals = rows
            .iter()
            .skip(1)
            .filter(|row| row.is_limit == is_limit)
            .filter_map(|row| row.samples.as_ref().ok());
        let best = rivals
            .map(|samples| Spread::of(samples, figure).median)
            .min_by(f64::total_cmp)
            .filter(|_| is_ours);
        best.map_or_else(String::new, |best| format!("**{:.2}**", ours / best))
    };
    format!(
        "{head} {wall} | {cpu} | {peak} | {} | {} | {} |\n",
        ratio(false, wall.median, |sample| sample.wall_s),
        ratio(false, cpu.median, |sample| sample.cpu_s),
        ratio(true, wall.median, |sample| sample.wall_s),
    )
}
