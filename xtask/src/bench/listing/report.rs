//! The report: medians, ranges, and the speed-up by the service.

use std::{fmt::Write, path::Path};

use posthaste_testbed::install;

use super::{
    super::figures::{Spread, first_line, machine},
    Row,
    far::Protocol,
    tool::{Programs, Tool},
};

/// Returns the whole report.
pub fn write(rows: &[Row], programs: &Programs, folder: &Path, runs: usize) -> String {
    let mut text = String::from(
        "# Listings through the service\n\n\
         Written by `cargo xtask bench listing`; run it to get your machine's figures. After Figure 5 of StorkCloud: trees of \
         1 to 10,000 directories, ten in each and three files beside them, are gone through whole. Their servers, OpenSSH and an S3 \
         server, are 60 ms away in the [laboratory](../guide/laboratory.md); the clients and the service are on one host. The \
         service is a new one in each turn: it knows nothing the first time, and the second time follows at once. Whoever asks for \
         one directory after the other was told all of them, and has one connection. Everybody writes what is found to a file, which \
         is checked. Times are from the start of each process to its end, connections and keys with it, in seconds: medians",
    );
    let _ = writeln!(text, " of {runs}, ranges in parentheses.\n");
    text.push_str(&machine(folder));
    for version in programs.versions() {
        let _ = writeln!(text, "- {}", first_line(&version));
    }
    let _ = writeln!(
        text,
        "- S3 server: versitygw {}",
        install::VERSITYGW.version
    );
    for protocol in Protocol::ALL {
        let _ = writeln!(
            text,
            "\n## {}\n\n\
             | directories | contender | wall s | CPU s | times as quick as one by one | as rclone | as `posthaste ls -R` |\n\
             |---|---|---|---|---|---|---|",
            protocol.title()
        );
        for row in rows.iter().filter(|row| row.protocol == protocol) {
            text.push_str(&line(row, rows));
        }
    }
    text
}

fn line(row: &Row, rows: &[Row]) -> String {
    let (directories, title) = (row.directories, row.tool.title(row.protocol));
    let samples = match &row.samples {
        Ok(samples) => samples,
        Err(reason) => {
            return format!(
                "| {directories} | {title} | {} | | | | |\n",
                first_line(reason)
            );
        }
    };
    let wall = Spread::of(samples, |sample| sample.wall_s);
    let cpu = Spread::of(samples, |sample| sample.cpu_s);
    let ratio = |other: Tool| {
        let is_beside =
            |found: &&Row| found.protocol == row.protocol && found.directories == directories;
        let beside = rows.iter().filter(is_beside);
        let samples = beside
            .filter(|found| found.tool == other)
            .find_map(|found| found.samples.as_ref().ok());
        samples
            .filter(|_| row.tool != other)
            .map_or_else(String::new, |samples| {
                let other = Spread::of(samples, |sample| sample.wall_s).median;
                format!("{:.1}", other / wall.median)
            })
    };
    format!(
        "| {directories} | {title} | {wall} | {cpu} | **{}** | {} | {} |\n",
        ratio(Tool::OneByOne),
        ratio(Tool::Rclone),
        ratio(Tool::Direct)
    )
    .replace("****", "")
}
