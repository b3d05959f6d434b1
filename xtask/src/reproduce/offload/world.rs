//! The paper's experiments as scenarios of the simulator, and their results.

use std::fmt::Write;

use anyhow::{Context, bail};
use posthaste_core::Settings;
use posthaste_sim::{Recording, Report, Scenario, simulate_recorded};

/// The seed of every run: nothing in these worlds is left to chance but answers' milliseconds.
const SEED: u64 = 1;

/// A scenario in the making.
pub struct World {
    text: String,
}

impl World {
    pub fn new(name: &str) -> Self {
        Self {
            text: format!(
                "name = \"{name}\"\nsummary = \"Timely Offloading.\"\nhorizon_s = 40000\n"
            ),
        }
    }

    /// Adds a node that takes `mbps` Mbit/s from the centre, as its owner says.
    pub fn node(mut self, name: &str, mbps: f64) -> Self {
        let rate = mebi_per_s(mbps);
        let _ = write!(
            self.text,
            "\n[[depot]]\nname = \"{name}\"\nrate_mib_per_s = {rate:.6}\ncapacity_mib = 100000\nadvertises = true\n"
        );
        self
    }

    /// Adds such a node so many hops from the centre.
    pub fn node_of_level(self, name: &str, mbps: f64, level: u8) -> Self {
        let mut world = self.node(name, mbps);
        let _ = writeln!(world.text, "level = {level}");
        world
    }

    /// Adds the rate between two nodes.
    pub fn path(mut self, from: &str, to: &str, mbps: f64) -> Self {
        let rate = mebi_per_s(mbps);
        let _ = write!(
            self.text,
            "\n[[path]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate_mib_per_s = {rate:.6}\n"
        );
        self
    }

    /// Adds an event, as lines of a `[[fault]]`.
    pub fn fault(mut self, lines: &str) -> Self {
        let _ = write!(self.text, "\n[[fault]]\n{lines}\n");
        self
    }

    /// Plays one request of so many bytes, with the other settings as lines.
    ///
    /// # Errors
    /// Fails if the scenario is invalid, or a checker objects.
    pub fn play(mut self, bytes: f64, chunk_kib: f64, lines: &str) -> anyhow::Result<Played> {
        let _ = write!(
            self.text,
            "\n[[request]]\nsize_mib = {:.6}\nchunk_mib = {:.6}\n{lines}\n",
            bytes / 1_048_576.0,
            chunk_kib / 1024.0
        );
        play(&self.text)
    }
}

/// Converts Mbit/s to MiB/s.
fn mebi_per_s(mbps: f64) -> f64 {
    mbps * 1e6 / 8.0 / 1_048_576.0
}

/// A run of one request.
pub struct Played {
    pub report: Report,
    pub recording: Recording,
}

/// Plays a scenario.
///
/// # Errors
/// Fails if it is invalid, or a checker objects.
pub fn play(text: &str) -> anyhow::Result<Played> {
    let scenario = Scenario::parse(text)?;
    let (report, recording) = simulate_recorded(&scenario, SEED, Settings::default());
    if !report.is_clean() {
        bail!("a checker objects:\n{}", report.to_text());
    }
    Ok(Played { report, recording })
}

impl Played {
    /// Returns the seconds from submission to safety.
    ///
    /// # Errors
    /// Fails if it never was safe.
    pub fn safe_after_s(&self) -> anyhow::Result<f64> {
        let view = self.recording.requests.first().context("no request")?;
        let safe_at = view.safe_at.context("never safe")?;
        Ok(safe_at.since(view.submitted).as_secs_f64())
    }

    /// Returns the first line of the timeline that contains this text.
    pub fn told(&self, what: &str) -> Option<String> {
        let mut lines = self.report.timeline.iter().map(|entry| {
            format!(
                "{:.1} s {}",
                entry.at.as_secs_f64(),
                self.report.line(entry)
            )
        });
        lines.find(|line| line.contains(what))
    }

    /// Returns the mean rate of each node between two moments, in Mbit/s, in the order of the
    /// scenario.
    pub fn mean_mbps(&self, from_s: f64, to_s: f64) -> Vec<f64> {
        let mut bits = vec![0.0; self.report.depots.len()];
        for pair in self.recording.samples.windows(2) {
            let (start, end) = (pair[0].at.as_secs_f64(), pair[1].at.as_secs_f64());
            let span = (end.min(to_s) - start.max(from_s)).max(0.0);
            for (bits, rate) in bits.iter_mut().zip(&pair[1].rates) {
                *bits += float(*rate) * 8.0 * span;
            }
        }
        bits.iter()
            .map(|bits| bits / 1e6 / (to_s - from_s))
            .collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates stay far below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}
