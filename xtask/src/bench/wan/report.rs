//! The report: shares of the link's capacity, and the standing of posthaste beside its rivals.

use std::fmt::Write;

use posthaste_testbed::install;

use super::{
    super::{
        figures::{Spread, capitalized, first_line, machine},
        measure::Sample,
    },
    Options, PAYLOAD_MBIT_PER_S,
    contender::{Contender, Family},
    load::Load,
};

/// Outcome of a contender with one load over one link.
#[derive(Debug)]
pub enum Outcome {
    /// Every run ended, and every byte arrived.
    Samples(Vec<Sample>),
    /// The contender was stopped at the time limit.
    TooSlow,
    /// The contender was not available, or failed.
    Nothing(String),
}

/// The measurements of one contender in one case.
#[derive(Debug)]
pub struct Row {
    /// Its place among the contenders.
    pub contender: usize,
    pub outcome: Outcome,
}

/// A load over a link.
#[derive(Debug)]
pub struct Case {
    pub load: Load,
    pub loss: Option<&'static str>,
    pub rows: Vec<Row>,
}

/// Returns the whole report.
pub fn write(
    cases: &[Case],
    contenders: &[Contender],
    options: &Options,
    emulator: (f64, f64),
) -> String {
    let mut text = format!(
        "# Over distance, beside its rivals\n\n\
         Written by `cargo xtask bench wan`; run it to get your machine's figures. Two hosts in the \
         [laboratory](../guide/laboratory.md), 1 Gbit/s and 60 ms apart, kernel's own TCP, buffers up to \
         64 MB, CUBIC unless a program chooses; `lab/topologies/wan-60ms.toml` and `wan-60ms-loss.toml`. \
         Both hosts, the servers and the emulator share this machine. Every contender runs with its \
         defaults, each time as a fresh process with no memory of earlier runs against a clean \
         destination, in turns; source and destination are in memory; every byte is compared after \
         each run. posthaste and lftp are given the one large file, the others the folder it lies in, \
         which scp and rsync give its times at the end. Figures are medians of {}, ranges in parentheses.\n\n\
         The share is of {PAYLOAD_MBIT_PER_S} Mbit/s, what TCP's payload can get of the link, from the \
         start of the process to its end. CPU is the client's, programs it starts with it. What is not \
         through after {} s is stopped. Rows that end in `user@host:` and `posthaste://` are compared \
         with all rivals, `sftp://` with those that use SSH, `s3://` with those that speak S3. S3 is \
         plain HTTP and GridFTP's data is not encrypted; all else is.\n\n",
        options.runs,
        options.limit.as_secs(),
    );
    text.push_str(&machine(&options.folder));
    let mut said: Vec<String> = Vec::new();
    for contender in contenders {
        let line = match &contender.program {
            Ok(_) => contender.version(),
            Err(reason) => Some(format!(
                "{} could not be had: {}",
                contender.name,
                first_line(reason)
            )),
        };
        if let Some(line) = line
            && !said.contains(&line)
        {
            let _ = writeln!(text, "- {line}");
            said.push(line);
        }
    }
    let _ = writeln!(
        text,
        "- S3 server: versitygw {}",
        install::VERSITYGW.version
    );
    let _ = writeln!(
        text,
        "- the emulator used {:.2} of a core on average",
        emulator.0 / emulator.1
    );
    for case in cases {
        text.push_str(&table(case, contenders, options));
    }
    text
}

fn table(case: &Case, contenders: &[Contender], options: &Options) -> String {
    let loss = case
        .loss
        .map_or_else(|| "no loss".to_owned(), |loss| format!("{loss} loss"));
    let title = case.load.title(options.quick);
    let mut text = format!("\n## {}, {loss}\n\n", capitalized(&title));
    text.push_str(
        "| contender | share | wall s | CPU s | peak MiB | wall / best rival |\n|---|---|---|---|---|---|\n",
    );
    for row in &case.rows {
        text.push_str(&line(row, case, contenders, options));
    }
    text
}

fn line(row: &Row, case: &Case, contenders: &[Contender], options: &Options) -> String {
    let contender = &contenders[row.contender];
    let head = format!("| {} |", contender.title);
    let samples = match &row.outcome {
        Outcome::Samples(samples) => samples,
        Outcome::TooSlow => {
            let least = share(case.load, options.limit.as_secs_f64(), options);
            return format!(
                "{head} < {least:.3} | > {} | | | |\n",
                options.limit.as_secs()
            );
        }
        Outcome::Nothing(reason) => {
            return format!(
                "{head} {} | | | | |\n",
                first_line(reason).replace('|', "/")
            );
        }
    };
    let wall = Spread::of(samples, |sample| sample.wall_s);
    let peak = samples
        .iter()
        .map(|sample| sample.peak_mib)
        .max()
        .unwrap_or(0);
    let ratio = best_rival(contender.family, case, contenders)
        .filter(|_| contender.is_ours())
        .map_or_else(String::new, |best| format!("**{:.2}**", wall.median / best));
    format!(
        "{head} {:.3} | {wall} | {} | {peak} | {ratio} |\n",
        share(case.load, wall.median, options),
        Spread::of(samples, |sample| sample.cpu_s),
    )
}

/// Returns the share of the link's payload rate.
#[expect(clippy::cast_precision_loss, reason = "loads are far below 2^52 bytes")]
pub fn share(load: Load, wall_s: f64, options: &Options) -> f64 {
    let bits = load.bytes(options.quick) as f64 * 8.0;
    bits / wall_s / (PAYLOAD_MBIT_PER_S * 1e6)
}

/// Returns the best median among a family's rivals.
fn best_rival(family: Family, case: &Case, contenders: &[Contender]) -> Option<f64> {
    let rivals = case.rows.iter().filter(|row| {
        let rival = &contenders[row.contender];
        !rival.is_ours() && (family == Family::Own || rival.family == family)
    });
    let medians = rivals.filter_map(|row| match &row.outcome {
        Outcome::Samples(samples) => Some(Spread::of(samples, |sample| sample.wall_s).median),
        Outcome::TooSlow | Outcome::Nothing(_) => None,
    });
    medians.min_by(f64::total_cmp)
}
