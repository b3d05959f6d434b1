//! On-demand overlay networks (`overlay-2010`, section IV): streams over its testbed in the
//! laboratory, direct and by gateways, beside the paper's measurements.

mod figures;
mod tables;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Context;
use posthaste_testbed::install::{self, IP, IPERF3};
use toml::Table;

use crate::bench::{
    figures::{Spread, machine, runs_and_seconds},
    site::{Site, memory},
    stage,
    streams::{self, Running, Stream},
};

/// Measurements of each case, and the length of one.
const RUNS: usize = 3;
const SECONDS: u64 = 6;
/// Seconds that do not count.
const SLOW_START_S: u64 = 4;
/// Loss on the long segment without a reservation.
const BEST_EFFORT_LOSS: &str = "loss=0.0002%";

const PAPER: &str = include_str!("../../data/overlay/tables.toml");

const HEAD: &str = "\
# On-demand overlay networks, reproduced

Written by `cargo xtask reproduce overlay`. What the paper (`overlay-2010`, section IV) measured between LBL and IU in 2010
stands beside streams of today's `iperf3` over the same topology in the laboratory (`lab/topologies/lbl-iu.toml`): round trips
and windows as its Table 1 prints them, CUBIC everywhere if nothing else is said, `posthaste gateway` where it ran Phoebus.

**What to compare.** Its Figures 3 to 7 are pictures; numbers of the paper are those it prints in tables and text. The links of the
laboratory carry 1 Gbit/s with the framing of Ethernet, nobody else is on them, and nothing is lost on them but where it is said:
on the long segment, two packets in a million where nothing is reserved and none where something is. Its Internet had traffic and
losses of others that nobody wrote down; so shapes and ratios can be compared.

";

/// Route of a stream from end to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// Over the Internet.
    Direct,
    /// Both gateways, nothing reserved.
    BestEffort,
    /// Both gateways, the long segment reserved.
    Reserved,
    /// Both gateways with BBR, the long segment reserved.
    ReservedBbr,
}

impl Way {
    /// Returns the congestion control of the gateways, if it uses them.
    fn gateways(self) -> Option<&'static str> {
        match self {
            Self::Direct => None,
            Self::BestEffort | Self::Reserved => Some("cubic"),
            Self::ReservedBbr => Some("bbr"),
        }
    }
}

/// Case to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    from: &'static str,
    to: &'static str,
    way: Way,
    streams: u32,
}

impl Case {
    /// Returns a single stream.
    const fn single(from: &'static str, to: &'static str, way: Way) -> Self {
        Self {
            from,
            to,
            way,
            streams: 1,
        }
    }
}

/// Results, in Mbit/s.
struct Measured {
    rates: BTreeMap<Case, Vec<f64>>,
    paper: Table,
}

impl Measured {
    /// Returns the median of a case.
    fn rate(&self, case: Case) -> f64 {
        Spread::of(&self.rates[&case], |rate| *rate).median
    }

    fn single(&self, from: &'static str, to: &'static str, way: Way) -> f64 {
        self.rate(Case::single(from, to, way))
    }

    /// Returns a number of the paper.
    fn printed(&self, table: &str, name: &str) -> anyhow::Result<f64> {
        let value = self.paper.get(table).and_then(|table| table.get(name));
        let number = value.and_then(|value| {
            let whole = value
                .as_integer()
                .and_then(|whole| i32::try_from(whole).ok());
            value.as_float().or(whole.map(f64::from))
        });
        number.with_context(|| format!("the paper's tables have no {table}.{name}"))
    }
}

/// Returns the page; `--runs N` and `--seconds N` as for benchmarks.
///
/// # Errors
/// Fails if the laboratory can't be built, a program fails in it or the paper's tables can't be
/// read.
pub fn page(arguments: &[String]) -> anyhow::Result<String> {
    let (runs, seconds) = runs_and_seconds(arguments, (RUNS, SECONDS))?;
    for program in [IP, IPERF3] {
        install::ensure_debian_program(program)?;
    }
    let bench = Bench {
        posthaste: stage::build("posthaste-cli", "posthaste")?,
        site: Site::start("lbl-iu")?,
        seconds,
    };
    let mut rates: BTreeMap<Case, Vec<f64>> = BTreeMap::new();
    let cases = tables::CASES.into_iter().chain(figures::CASES);
    for run in 1..=runs {
        for case in cases.clone() {
            let mbit_per_s = bench.measure(case).with_context(|| format!("{case:?}"))?;
            eprintln!("{case:?} {run}/{runs}: {mbit_per_s:.0} Mbit/s");
            rates.entry(case).or_default().push(mbit_per_s);
        }
    }
    let measured = Measured {
        rates,
        paper: PAPER.parse()?,
    };
    let mut text = String::from(HEAD);
    text.push_str(&machine(memory()));
    text.push_str(&format!(
        "- {seconds} s after {SLOW_START_S} s that do not count, medians of {runs}\n"
    ));
    text.push_str(&tables::sections(&measured)?);
    text.push_str(&figures::sections(&measured)?);
    Ok(text)
}

/// Measuring equipment.
struct Bench {
    posthaste: PathBuf,
    site: Site,
    seconds: u64,
}

impl Bench {
    fn measure(&self, case: Case) -> anyhow::Result<f64> {
        let loss = match case.way {
            Way::BestEffort => BEST_EFFORT_LOSS,
            Way::Direct | Way::Reserved | Way::ReservedBbr => "loss=0%",
        };
        self.site.change("segment", &[loss])?;
        let between = self.gateways(case)?;
        let stream = Stream {
            from: case.from,
            to: between.first().map_or(case.to, |(host, _)| host),
            server: case.to,
            congestion: None,
            count: case.streams,
            skip_s: SLOW_START_S,
            seconds: self.seconds,
        };
        stream.mbit_per_s(&self.site)
    }

    /// Starts the gateways on the way of a stream, the nearest first.
    fn gateways(&self, case: Case) -> anyhow::Result<Vec<(&'static str, Running)>> {
        let Some(congestion) = case.way.gateways() else {
            return Ok(Vec::new());
        };
        let is_at_iu = |host| ["tank", "test"].contains(&host);
        let hosts: &[&'static str] = match (is_at_iu(case.from), is_at_iu(case.to)) {
            (false, true) => &["phoebus-lbl", "phoebus-star"],
            (true, false) => &["phoebus-star", "phoebus-lbl"],
            (false, false) => &["phoebus-lbl"],
            (true, true) => &["phoebus-star"],
        };
        let onward = hosts.iter().skip(1).copied().chain([case.to]);
        let start = |(host, next)| {
            let gateway = streams::gateway(&self.site, &self.posthaste, host, next, congestion)?;
            Ok((host, gateway))
        };
        hosts.iter().copied().zip(onward).map(start).collect()
    }
}
