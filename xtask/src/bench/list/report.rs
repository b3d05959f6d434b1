//! The report: medians, ranges, and the standing of posthaste beside rivals and the server's limit.

use std::{fmt::Write, path::Path};

use posthaste_testbed::install;

use super::{
    super::{
        figures::{Spread, first_line, machine},
        measure::Sample,
    },
    Row,
    tool::{Place, Tool},
};

/// Returns the whole report.
pub fn write(rows: &[Row], tools: &[Tool], folder: &Path, runs: usize) -> String {
    let mut text = String::from(
        "# Listing beside its rivals\n\n\
         Written by `cargo xtask bench list`; run it to get your machine's figures. Everything is cold: \
         before each run the kernel forgets what it read of directories, and the server keeps nothing. \
         Everybody writes what was listed to a file. The server's limit is `curl`, which was told where \
         every page of 1,000 keys starts and throws the pages away: nobody who has to find that out and \
         to read them can be much quicker. Servers work on the same machine beside their clients. \
         Figures are medians",
    );
    let _ = writeln!(text, " of {runs}, ranges in parentheses.\n");
    text.push_str(&machine(folder));
    for tool in tools.iter().filter(|tool| !tool.is_limit()) {
        let version = match &tool.program {
            Ok(_) => tool
                .version()
                .unwrap_or_else(|| "unknown version".to_owned()),
            Err(reason) => format!("could not be had: {}", first_line(reason)),
        };
        let _ = writeln!(text, "- {}: {version}", tool.name);
    }
    let _ = writeln!(
        text,
        "- S3 server: versitygw {}",
        install::VERSITYGW.version
    );
    for place in Place::ALL {
        let _ = writeln!(
            text,
            "\n## {}\n\n\
             | contender | wall s | CPU s | peak MiB | times as quick as the best rival | of the server's \
             limit |\n|---|---|---|---|---|---|",
            place.title()
        );
        let these: Vec<&Row> = rows.iter().filter(|row| row.place == place).collect();
        for row in &these {
            text.push_str(&line(row, &these));
        }
    }
    text
}

fn wall(samples: &[Sample]) -> Spread {
    Spread::of(samples, |sample| sample.wall_s)
}

fn line(row: &Row, rows: &[&Row]) -> String {
    let samples = match &row.samples {
        Ok(samples) => samples,
        Err(reason) => return format!("| {} | {} | | | | |\n", row.tool, first_line(reason)),
    };
    let ours = |row: &Row| row.tool.starts_with("posthaste");
    let best = |wanted: &dyn Fn(&Row) -> bool| {
        let samples = rows
            .iter()
            .filter(|row| wanted(row))
            .filter_map(|row| row.samples.as_ref().ok());
        samples
            .map(|samples| wall(samples).median)
            .min_by(f64::total_cmp)
            .filter(|_| ours(row))
    };
    let shown = |best: Option<f64>| {
        best.map_or_else(String::new, |best| {
            format!("**{:.2}**", best / wall(samples).median)
        })
    };
    let cpu = Spread::of(samples, |sample| sample.cpu_s);
    let peak = samples.iter().map(|sample| sample.peak_mib).max();
    format!(
        "| {} | {} | {cpu} | {} | {} | {} |\n",
        row.tool,
        wall(samples),
        peak.unwrap_or(0),
        shown(best(&|row| !row.is_limit && !ours(row))),
        shown(best(&|row| row.is_limit)),
    )
}
