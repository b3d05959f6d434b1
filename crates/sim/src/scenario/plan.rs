//! What a scenario's file can say, table by table.

use std::collections::BTreeMap;

use posthaste_core::contract::{DepotPrices, DepotTerms, EgressPrice, Windows, WindowsError};
use serde::Deserialize;

use super::{Amount, Price, lent::LentPlan};
use crate::report::Fate;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepotPlan {
    pub(crate) name: String,
    /// How many like this: `name-1`, `name-2` and so on, each with what the seed draws for it.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    /// What it was called before it was numbered.
    #[serde(skip)]
    pub(crate) template: Option<String>,
    /// Of its path from the centre.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default = "default_latency")]
    pub(crate) latency_ms: Amount,
    pub(crate) capacity_mib: Amount,
    /// What its own way in carries, whoever sends.
    pub(crate) way_in_mib_per_s: Option<Amount>,
    /// What its own way out carries, whoever receives.
    pub(crate) way_out_mib_per_s: Option<Amount>,
    /// Whether its owner says what it lends.
    #[serde(default)]
    pub(crate) advertises: bool,
    /// Whether it is of a release that can code chunks.
    #[serde(default = "yes")]
    pub(crate) codes: bool,
    /// Whether it is of a release that can send on what it still receives.
    #[serde(default)]
    pub(crate) follows: bool,
    /// Whether it lies in a store, which does nothing by itself.
    #[serde(default)]
    pub(crate) stores: bool,
    /// Whether it is of a release that can keep space for datasets.
    #[serde(default)]
    pub(crate) reserves: bool,
    /// How far the rate strays, of a thousand.
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    /// How often.
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    /// When its owner lends it, like 20-06: it is there then and only then, and the mind knows.
    #[serde(default)]
    pub(crate) hours: String,
    /// Whether it belongs to the site, for want of others.
    #[serde(default)]
    pub(crate) landmark: bool,
    /// What sending 10^9 bytes there costs.
    #[serde(default)]
    pub(crate) usd_per_gb: Price,
    /// What keeping 10^9 bytes there for a month costs.
    #[serde(default)]
    pub(crate) usd_per_gb_month: Price,
    /// What a thousand requests cost: one for each fragment that is stored there, or read.
    #[serde(default)]
    pub(crate) usd_per_1000_puts: Price,
    #[serde(default)]
    pub(crate) usd_per_1000_gets: Price,
    /// What 10^9 bytes that leave it cost, and to a depot or domain by name.
    #[serde(default)]
    pub(crate) usd_per_gb_out: Price,
    #[serde(default)]
    pub(crate) usd_per_gb_out_to: BTreeMap<String, Price>,
    /// Packets lost on its path from the centre, of a thousand.
    #[serde(default)]
    pub(crate) loss_permille: u64,
    /// Connections that share that loss.
    #[serde(default = "default_streams")]
    pub(crate) streams: u64,
    /// How the rate changes over time.
    #[serde(default)]
    pub(crate) varies: Varies,
    /// What it fails together with: names of domains, separated by commas.
    pub(crate) domain: Option<String>,
    /// Hops from the centre: others push on to those of a higher level.
    #[serde(default = "default_level")]
    pub(crate) level: u8,
    /// Mean time from one repair to the next failure, and until it is repaired.
    pub(crate) mtbf_s: Option<f64>,
    pub(crate) mttr_s: Option<f64>,
    /// Failures that lose the data as well, of a thousand.
    #[serde(default)]
    pub(crate) wiped_permille: u64,
    /// When it is away: from and to, in seconds.
    #[serde(default)]
    pub(crate) offline_s: Vec<[f64; 2]>,
    /// What it says of its load: from when, in seconds, and how much.
    #[serde(default)]
    pub(crate) load: Vec<[f64; 2]>,
    /// Nothing is sent there while that is this or more, whoever it is for.
    pub(crate) load_max: Option<f64>,
    /// Mean time it is there and away by turns.
    pub(crate) online_mean_s: Option<f64>,
    pub(crate) offline_mean_s: Option<f64>,
}

impl DepotPlan {
    /// What it costs beyond its terms.
    pub(crate) fn prices(&self) -> DepotPrices {
        let to = |(to, usd): (&String, &Price)| EgressPrice {
            to: to.clone(),
            micro_usd: usd.micro(),
        };
        DepotPrices {
            put_micro_usd: self.usd_per_1000_puts.micro(),
            get_micro_usd: self.usd_per_1000_gets.micro(),
            egress_micro_usd: self.usd_per_gb_out.micro(),
            egress_to: self.usd_per_gb_out_to.iter().map(to).collect(),
        }
    }

    /// On which terms it is lent.
    pub(crate) fn terms(&self) -> DepotTerms {
        DepotTerms {
            windows: self.windows().unwrap_or_default(),
            domain: self.domain.clone().unwrap_or_default(),
            is_landmark: self.landmark,
            send_micro_usd: self.usd_per_gb.micro(),
            keep_micro_usd: self.usd_per_gb_month.micro(),
        }
    }

    /// Its hours; always without any.
    pub(crate) fn windows(&self) -> Result<Windows, WindowsError> {
        if self.hours.is_empty() {
            Ok(Windows::default())
        } else {
            self.hours.parse()
        }
    }
}

fn default_level() -> u8 {
    1
}
fn yes() -> bool {
    true
}
fn default_latency() -> Amount {
    Amount::Fixed(20.0)
}
fn default_jitter_every() -> f64 {
    1.0
}
/// The most connections a copy opens over one path.
fn default_streams() -> u64 {
    64
}

/// How a rate changes over time; what is named multiplies.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Varies {
    /// A file beside the scenario: seconds and Mbit/s, line by line. It takes the place of the rate.
    pub(crate) trace: Option<String>,
    /// The same, written here.
    pub(crate) trace_mbit_per_s: Option<Vec<[f64; 2]>>,
    /// What to multiply the trace with.
    pub(crate) scale: Option<f64>,
    /// Whether the seed draws where in the trace it begins.
    #[serde(default)]
    pub(crate) begins_anywhere: bool,
    /// High and low by turns.
    pub(crate) two_state: Option<TwoState>,
    /// A factor for each hour of the day in UTC, of a thousand.
    pub(crate) daily_permille: Option<Vec<u64>>,
}

impl Varies {
    /// What to multiply the trace with, in thousandths.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "scales out of range are refused when read"
    )]
    pub(crate) fn scale_permille(&self) -> u64 {
        (self.scale.unwrap_or(1.0) * 1000.0).round() as u64
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TwoState {
    /// What is left of the rate while it is low, of a thousand.
    pub(crate) low_permille: u64,
    pub(crate) high_mean_s: f64,
    pub(crate) low_mean_s: f64,
}

/// Something between these depots and the rest of the world that they share.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkPlan {
    pub(crate) name: String,
    pub(crate) rate_mib_per_s: Amount,
    /// Empty: all.
    #[serde(default)]
    pub(crate) depots: Vec<String>,
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    #[serde(default)]
    pub(crate) varies: Varies,
}

/// What the path from one depot to another carries.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathPlan {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default)]
    pub(crate) varies: Varies,
}

/// Depots that fail together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DomainPlan {
    pub(crate) name: String,
    pub(crate) mtbf_s: Option<f64>,
    pub(crate) mttr_s: Option<f64>,
    #[serde(default)]
    pub(crate) wiped_permille: u64,
}

/// What others send over a link, or over the path to a depot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackgroundPlan {
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    /// A link or a depot.
    pub(crate) on: String,
    /// Drawn anew each time it begins.
    pub(crate) rate_mib_per_s: Amount,
    pub(crate) on_mean_s: f64,
    pub(crate) off_mean_s: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPlan {
    /// How many like this.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    #[serde(default = "default_zero")]
    pub(crate) at_s: Amount,
    pub(crate) size_mib: Amount,
    #[serde(default = "default_chunk")]
    pub(crate) chunk_mib: f64,
    /// Whether its chunks are encrypted: depots store a tag with each.
    #[serde(default)]
    pub(crate) encrypted: bool,
    /// From its submission.
    pub(crate) deadline_s: Amount,
    pub(crate) code: String,
    /// Empty: every depot but the destination, or those it can be.
    #[serde(default)]
    pub(crate) via: Vec<String>,
    /// How many of those the seed draws; without it, all.
    pub(crate) via_count: Option<usize>,
    /// One of them, where a numbered name is given.
    pub(crate) destination: Option<String>,
    /// More of them: it is delivered when each has all of it.
    #[serde(default)]
    pub(crate) destinations: Vec<String>,
    #[serde(default = "default_true")]
    pub(crate) release: bool,
    #[serde(default)]
    pub(crate) best_effort: bool,
    /// How many files it has.
    #[serde(default = "default_count")]
    pub(crate) files: u64,
    /// What chooses how many fragments go to a depot at once, by name.
    pub(crate) optimizer: Option<String>,
    /// How much it matters beside others, by name or as a number.
    pub(crate) priority: Option<String>,
    /// Whose it is, and on whose account it goes.
    #[serde(default)]
    pub(crate) owner: String,
    #[serde(default)]
    pub(crate) project: String,
    /// Depots that may be lost, or the chance of a thousand that data is lost; the code is chosen then.
    pub(crate) survive: Option<u32>,
    pub(crate) loss_permille_max: Option<u32>,
    /// Losses that suffice by the deadline where there is no time for all of the code.
    pub(crate) safe_with: Option<u32>,
    /// Depots that must hold their share of it.
    #[serde(default)]
    pub(crate) pin: Vec<String>,
    /// Depots that are lent for it alone.
    #[serde(default)]
    pub(crate) lent: Vec<LentPlan>,
    /// Depots that may hold none of it.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// Whether what is lost is made again only when one more loss is all that is survived.
    #[serde(default)]
    pub(crate) lazy_repair: bool,
    /// Most that it may cost.
    pub(crate) budget_usd: Option<f64>,
    /// Most that may be sent for it.
    pub(crate) rate_max_mib_per_s: Option<f64>,
    pub(crate) cancel_after_s: Option<Amount>,
    /// From its submission: its user lets it wait then, and for how long; for ever without that.
    pub(crate) pause_after_s: Option<Amount>,
    pub(crate) pause_for_s: Option<Amount>,
    pub(crate) delivered_after_s: Option<Amount>,
    /// From its submission: somebody else removes its source then, and it is known beforehand.
    pub(crate) purge_s: Option<Amount>,
    /// From its submission: when every destination is to have all of it.
    pub(crate) deliver_by_s: Option<Amount>,
    /// Whether rate is reserved for it: `auto`, `always` or `never`.
    pub(crate) reserve: Option<String>,
    /// What must become of it with every seed.
    #[serde(default)]
    pub(crate) expect: Vec<Fate>,
}

fn default_count() -> u64 {
    1
}
fn default_zero() -> Amount {
    Amount::Fixed(0.0)
}
fn default_chunk() -> f64 {
    4.0
}
fn default_true() -> bool {
    true
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// The depot is gone; connections break.
    Dies,
    /// The depot is gone and nothing says so: the network swallows everything.
    Vanishes,
    /// The depot answers probes and stores nothing.
    Hangs,
    /// The depot is gone and comes back empty.
    Wiped,
    /// The link carries `rate_mib_per_s` from now on.
    Slows,
    /// The depot says that it is full.
    Full,
    /// Somebody else takes `takes_mib` of the depot, or what is free of it.
    Neighbour,
    /// The service is killed and starts again from its journal.
    DriverCrash,
    /// A file of every request changes.
    SourceChanges,
    /// One file of every request changes: some of its chunks have something of it.
    FileChanges,
    /// The depot leaves cleanly, with its data; connections are closed.
    Offline,
    /// An operator drains the depot: nothing new goes there.
    Drains,
    /// The same, and what lies only there goes on to others.
    Empties,
}

impl FaultKind {
    /// What can befall a source of stage-ins.
    pub(crate) const OF_SOURCES: [Self; 4] =
        [Self::Dies, Self::Vanishes, Self::Slows, Self::SourceChanges];
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultPlan {
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    pub(crate) at_s: Amount,
    /// Empty: the seed names one; a numbered name: one of them.
    #[serde(default)]
    pub(crate) depot: String,
    /// All depots of this domain together.
    pub(crate) domain: Option<String>,
    /// A source of stage-ins.
    pub(crate) source: Option<String>,
    pub(crate) kind: FaultKind,
    /// How long it lasts; without it, for ever.
    pub(crate) for_s: Option<Amount>,
    pub(crate) rate_mib_per_s: Option<Amount>,
    pub(crate) takes_mib: Option<Amount>,
}
