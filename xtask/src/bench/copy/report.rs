//! The report: medians, ranges, the standing of posthaste beside the best rival, and the goals met.

use std::{fmt::Write, path::Path};

use posthaste_testbed::install;

use super::{
    super::{
        figures::{Spread, capitalized, first_line, machine},
        measure::Sample,
    },
    LONG_S, Row,
    goals::{self, Standing},
    load::{Load, Scale},
    place::Place,
    tool::{Tool, Way},
};

/// Input of a report.
pub struct Report<'a> {
    pub rows: &'a [Row],
    pub tools: &'a [Tool],
    /// Folder of the files.
    pub folder: &'a Path,
    pub runs: usize,
    pub scale: Scale,
    /// Capacity of loopback by iperf3, in GB/s, or the reason why it is unknown.
    pub loopback: Result<f64, String>,
}

/// Returns a row's name for people.
pub fn title(row: &Row, scale: Scale) -> String {
    format!("{} {}", row.way.title(), row.load.title(scale))
}

impl Report<'_> {
    /// Returns the whole report.
    pub fn text(&self) -> String {
        let mut text = self.head();
        let groups = self.groups();
        text.push_str(&goals::table(&groups, self.scale));
        for place in Place::ALL {
            let groups = groups.iter().filter(|rows| rows[0].place == place);
            let lines: String = groups.map(|rows| self.lines(rows)).collect();
            if lines.is_empty() {
                continue;
            }
            let _ = writeln!(text, "\n## {}\n", capitalized(place.title()));
            text.push_str(
                "| what | contender | wall s | CPU s | peak MiB | wall / best rival | CPU / best \
                 rival | wall / bare limit |\n|---|---|---|---|---|---|---|---|\n",
            );
            text.push_str(&lines);
        }
        text
    }

    /// Returns the method, the machine and the contenders.
    fn head(&self) -> String {
        let mut text = String::from(
            "# Copy beside its rivals\n\n\
             Written by `cargo xtask bench copy`; run it to get your machine's figures. Every \
             contender runs with its defaults but for what its name says, each time as a fresh \
             process against a clean destination, in turns; the page cache is warm and `sync` runs \
             before each start. Figures are medians",
        );
        let _ = writeln!(
            text,
            " of {}, ranges in parentheses; a rival that takes more than {LONG_S} s is measured \
             once. CPU is the client's, user and system; servers and the far end work on the same \
             machine beside it. The bare limit does less than a copy: one connection, to a server \
             that throws away what it gets and checks nothing; between local paths it is `cp`.\n",
            self.runs
        );
        text.push_str(&machine(self.folder));
        let _ = match &self.loopback {
            Ok(speed) => writeln!(text, "- iperf3 over loopback: {speed:.2} GB/s"),
            Err(reason) => writeln!(text, "- iperf3: {}", first_line(reason)),
        };
        for contender in self.tools {
            let version = match &contender.program {
                Ok(_) => contender
                    .version()
                    .unwrap_or_else(|| "unknown version".to_owned()),
                Err(reason) => format!("could not be had: {}", first_line(reason)),
            };
            let _ = writeln!(text, "- {}: {version}", contender.name);
        }
        let (s3, gcs, azure) = (
            install::VERSITYGW.version,
            install::FAKE_GCS_SERVER.version,
            install::AZURITE.version,
        );
        let _ = writeln!(
            text,
            "- servers: versitygw {s3} (S3), Azurite {azure}, and fake-gcs-server {gcs}, a stand-in \
             for Google Cloud Storage that keeps each object in memory before it writes it"
        );
        text
    }

    /// Returns the rows that are compared with one another, ours first.
    fn groups(&self) -> Vec<Vec<&Row>> {
        let mut groups = Vec::new();
        for place in Place::ALL {
            for load in Load::ALL {
                for way in Way::ALL {
                    let is_here = |row: &&Row| (row.load, row.place, row.way) == (load, place, way);
                    let these: Vec<&Row> = self.rows.iter().filter(is_here).collect();
                    if !these.is_empty() {
                        groups.push(these);
                    }
                }
            }
        }
        groups
    }

    fn lines(&self, rows: &[&Row]) -> String {
        let standing = Standing::of(rows);
        let lines = rows.iter().enumerate().map(|(place, row)| {
            let standing = standing.filter(|_| place == 0);
            self.line(row, standing)
        });
        lines.collect()
    }

    fn line(&self, row: &Row, standing: Option<Standing>) -> String {
        let head = format!("| {} | {} |", title(row, self.scale), row.tool);
        let samples = match &row.samples {
            Ok(samples) => samples,
            Err(reason) => {
                return format!("{head} {} | | | | | |\n", first_line(reason));
            }
        };
        let wall = Spread::of(samples, |sample| sample.wall_s);
        let cpu = Spread::of(samples, |sample| sample.cpu_s);
        let ratio = |of: fn(&Standing) -> Option<f64>| {
            let ratio = standing.as_ref().and_then(of);
            ratio.map_or_else(String::new, |ratio| format!("**{ratio:.2}**"))
        };
        format!(
            "{head} {wall} | {cpu} | {} | {} | {} | {} |\n",
            peak_mib(samples),
            ratio(|standing| standing.wall_to_rival),
            ratio(|standing| standing.cpu_to_rival),
            ratio(|standing| standing.wall_to_limit),
        )
    }
}

/// Returns the highest memory of any sample.
pub fn peak_mib(samples: &[Sample]) -> u64 {
    let peaks = samples.iter().map(|sample| sample.peak_mib);
    peaks.max().unwrap_or(0)
}
