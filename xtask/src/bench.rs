//! `cargo xtask bench NAME`: one file per benchmark, one page of `docs/benchmarks/` from each.

mod code;
mod copy;
mod deadlines;
pub mod figures;
mod lab;
mod list;
mod listing;
mod manners;
mod measure;
mod mind;
mod plan;
mod programs;
mod purge;
mod queue;
mod relay;
mod service;
pub mod site;
pub mod stage;
pub mod streams;
mod tuner;
mod twins;
mod wan;
mod world;

use std::fs;

use anyhow::{Context, bail};

use crate::root;

/// A benchmark: its name, its function with options, and its subject.
type Benchmark = (
    &'static str,
    fn(&[String]) -> anyhow::Result<()>,
    &'static str,
);

/// All benchmarks.
const ALL: &[Benchmark] = &[
    (
        "code",
        code::run,
        "[--runs N] [--core N]: the erasure code beside ISA-L, on one core",
    ),
    (
        "copy",
        copy::run,
        "[--dir DIR] [--runs N] [--place NAME] [--load NAME] [--contender NAME] [--program FILE] [--before FILE] [--quick]: posthaste cp beside its rivals",
    ),
    (
        "deadlines",
        deadlines::run,
        "[--seeds N] [--after SEED] [--family NAME] [--from FILE]: who keeps how many deadlines in the same simulated worlds",
    ),
    (
        "lab",
        lab::run,
        "[--runs N] [--seconds N]: what the laboratory itself carries",
    ),
    (
        "list",
        list::run,
        "[--dir DIR] [--runs N] [--objects N] [--entries N]: posthaste ls beside rclone, s5cmd, aws and \
         find",
    ),
    (
        "listing",
        listing::run,
        "[--dir DIR] [--runs N] [--most N] [--ours]: trees listed through the service, the first and the second time, over 60 ms",
    ),
    (
        "manners",
        manners::run,
        "[--runs N] [--seconds N]: what others on a path feel of an offload that gives way",
    ),
    (
        "mind",
        mind::run,
        "[--steps N]: steps of the mind with up to 10^5 open requests and 10^3 depots",
    ),
    (
        "plan",
        plan::run,
        "[--runs N]: plans over time, greedily and by linear programs",
    ),
    (
        "purge",
        purge::run,
        "[--dir DIR] [--runs N] [--files N]: what a purge takes of a large tree, the first and the second time, beside find",
    ),
    (
        "queue",
        queue::run,
        "LOG.swf[.gz]...: how forecasts of a batch queue hold on logs of real ones",
    ),
    (
        "relay",
        relay::run,
        "[--runs N] [--seconds N]: what a gateway on a long path is worth, and what it costs",
    ),
    (
        "service",
        service::run,
        "[--requests N] [--journal sqlite|postgres]: what the service answers in a second, and what queued requests cost it",
    ),
    (
        "tuner",
        tuner::run,
        "[FOLDER]: every optimizer over made-up paths, and over the sweeps of a folder",
    ),
    (
        "twins",
        twins::run,
        "[--runs N] [--scenario NAME] [--dir DIR] [--log] [--program FILE]: the same scenarios simulated and \
         with real processes",
    ),
    (
        "wan",
        wan::run,
        "[--runs N] [--case NAME] [--contender NAME] [--quick] [--limit S] [--dir DIR]: posthaste and \
         its rivals over 1 Gbit/s and 60 ms",
    ),
    (
        "world",
        world::run,
        "[--whole]: what the simulated world costs, alone and with the mind",
    ),
];

/// Runs the benchmark named by the first argument with the others.
///
/// # Errors
/// Fails if there is no such benchmark, or it fails.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    let wanted = arguments.split_first();
    let found = wanted.and_then(|(name, rest)| {
        let (_, run, _) = ALL.iter().find(|(known, ..)| known == name)?;
        Some((run, rest))
    });
    match found {
        Some((run, rest)) => run(rest),
        None => bail!("write one of\n{}", usage()),
    }
}

/// Returns a line for each benchmark.
fn usage() -> String {
    ALL.iter()
        .map(|(name, _, what)| format!("  cargo xtask bench {name} {what}\n"))
        .collect()
}

/// Writes a report to `docs/benchmarks/NAME.md` and shows it.
fn publish(name: &str, text: &str) -> anyhow::Result<()> {
    let path = root().join(format!("docs/benchmarks/{name}.md"));
    fs::create_dir_all(path.parent().context("the report has a folder")?)?;
    fs::write(&path, text)?;
    say(&format!("{text}\nwritten to {}", path.display()));
    Ok(())
}

fn say(text: &str) {
    eprintln!("{text}");
}
