//! A stream through a gateway at each end of a long, lossy segment, carried there by one
//! connection or by several.

use std::{fmt::Write as _, fs, path::Path, process::Stdio, time::Duration};

use anyhow::Context;

use super::super::{
    figures::Spread,
    say,
    site::Site,
    stage,
    streams::{PORT, Running, Stream, address},
};
use super::SLOW_START_S;

/// Connections of the two gateways between them.
#[derive(Clone, Copy)]
struct Way {
    congestion: &'static str,
    /// Number of connections; none without gateways: then the end has the congestion control.
    connections: Option<u32>,
}

const WAYS: [Way; 8] = [
    direct("cubic"),
    over("cubic", 1),
    over("cubic", 4),
    over("cubic", 8),
    direct("bbr"),
    over("bbr", 1),
    over("bbr", 4),
    over("bbr", 8),
];

const fn direct(congestion: &'static str) -> Way {
    Way {
        congestion,
        connections: None,
    }
}

const fn over(congestion: &'static str, connections: u32) -> Way {
    Way {
        congestion,
        connections: Some(connections),
    }
}

impl Way {
    fn title(&self) -> String {
        let congestion = self.congestion.to_uppercase();
        match self.connections {
            None => format!("direct, {congestion} at the ends"),
            Some(1) => format!("two gateways with {congestion}, 1 connection"),
            Some(count) => format!("two gateways with {congestion}, {count} connections"),
        }
    }
}

/// Result of one run.
struct Sample {
    mbit_per_s: f64,
    /// Busy share of a core, both gateways together.
    gateways: f64,
}

/// Measures all ways so many times, and returns the results as a section of the page.
pub fn measure(posthaste: &Path, runs: usize, seconds: u64) -> anyhow::Result<String> {
    let site = Site::start("three-segments")?;
    let mut samples: Vec<Vec<Sample>> = WAYS.iter().map(|_| Vec::new()).collect();
    for turn in 1..=runs {
        for (way, samples) in WAYS.iter().zip(&mut samples) {
            let sample = once(&site, posthaste, *way, seconds).with_context(|| way.title())?;
            say(&format!(
                "chain, {} {turn}/{runs}: {:.0} Mbit/s, {:.2} of a core",
                way.title(),
                sample.mbit_per_s,
                sample.gateways
            ));
            samples.push(sample);
        }
    }
    Ok(report(&samples))
}

fn once(site: &Site, posthaste: &Path, way: Way, seconds: u64) -> anyhow::Result<Sample> {
    let chain = way
        .connections
        .map(|connections| Chain::start(site, posthaste, way.congestion, connections));
    let chain = chain.transpose()?;
    let stream = Stream {
        from: "near",
        to: if chain.is_some() { "west" } else { "far" },
        server: "far",
        congestion: Some(if chain.is_some() {
            "cubic"
        } else {
            way.congestion
        }),
        count: 1,
        skip_s: SLOW_START_S,
        seconds,
    };
    let mbit_per_s = stream.mbit_per_s(site)?;
    let spent_s = match &chain {
        Some(chain) => chain.west.cpu_s()? + chain.east.cpu_s()?,
        None => 0.0,
    };
    Ok(Sample {
        mbit_per_s,
        gateways: spent_s / Duration::from_secs(SLOW_START_S + seconds).as_secs_f64(),
    })
}

/// Two gateways: the west one accepts clients, and leads to the far end's server over the east one.
struct Chain {
    west: Running,
    east: Running,
}

impl Chain {
    fn start(
        site: &Site,
        posthaste: &Path,
        congestion: &str,
        connections: u32,
    ) -> anyhow::Result<Self> {
        let folder = stage::target_folder()?.join("bench-relay/chain");
        fs::create_dir_all(&folder)?;
        let (east, far) = (
            address(site, "west", "east")?,
            address(site, "west", "far")?,
        );
        let gateway = |host: &str, more: &[String]| {
            let mut command = site.command(host, posthaste);
            command.args(["gateway", "--json", "--congestion", congestion, "--dir"]);
            command.arg(folder.join(host)).args(more);
            let mut running = Running(command.stdout(Stdio::piped()).spawn()?);
            running.first_line().context("the gateway")?;
            anyhow::Ok(running)
        };
        let listen = ["--listen", "0.0.0.0:7423", "--allow"].map(str::to_owned);
        let place = format!("{far}:{PORT}");
        let to_east = gateway(
            "east",
            &[&listen[..], std::slice::from_ref(&place)].concat(),
        )?;
        let routes = folder.join("routes.toml");
        fs::write(
            &routes,
            format!(
                "[[route]]\nto = ['{place}']\nvia = '{east}:7423'\nsecret_file = 'east/secret'\nconnections = {connections}\n"
            ),
        )?;
        let routes = routes.display().to_string();
        let forward = format!("0.0.0.0:{PORT}={place}");
        let more = ["--listen", "127.0.0.1:7423", "--forward"].map(str::to_owned);
        let more = [&more[..], &[forward, "--routes".to_owned(), routes]].concat();
        Ok(Self {
            west: gateway("west", &more)?,
            east: to_east,
        })
    }
}

fn report(samples: &[Vec<Sample>]) -> String {
    let mut text = String::from(
        "\n## Several connections over the long segment\n\nOne `iperf3` stream over `three-segments` of the laboratory: 1 ms without loss, 60 ms and 0.1 % \
         loss, 1 ms without loss, all of 1 Gbit/s, with a gateway at each end of the long segment and CUBIC at the ends. With more than one connection the gateways \
         cut the stream and put it in order again ([how](../reference/gateway-protocol.md)), which takes of a core what the table says; with one they \
         splice.\n\n| way | Mbit/s | of one connection | both gateways, of a core |\n|---|---|---|---|\n",
    );
    let mut of_one = 0.0;
    for (way, samples) in WAYS.iter().zip(samples) {
        let rate = Spread::of(samples, |sample| sample.mbit_per_s);
        if way.connections == Some(1) {
            of_one = rate.median;
        }
        let (ratio, core) = match way.connections {
            None => (String::new(), String::new()),
            Some(_) => (
                format!("{:.2}", rate.median / of_one),
                Spread::of(samples, |sample| sample.gateways).to_string(),
            ),
        };
        let _ = writeln!(
            text,
            "| {} | {:.0} ({:.0}-{:.0}) | {ratio} | {core} |",
            way.title(),
            rate.median,
            rate.least,
            rate.most
        );
    }
    text
}
