//! Tables of a scenario's file.

use std::collections::BTreeMap;

use posthaste_core::contract::{DepotPrices, DepotTerms, EgressPrice, Windows, WindowsError};
use serde::Deserialize;

use super::{Amount, Price, lent::LentPlan};
use crate::report::Fate;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DepotPlan {
    pub(crate) name: String,
    /// Number of depots like this: `name-1`, `name-2` and so on. The seed draws the values of each.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    /// Name before numbering.
    #[serde(skip)]
    pub(crate) template: Option<String>,
    /// Rate of its path from the centre.
    pub(crate) rate_mib_per_s: Amount,
    #[serde(default = "default_latency")]
    pub(crate) latency_ms: Amount,
    pub(crate) capacity_mib: Amount,
    /// Ingress capacity, for all senders.
    pub(crate) way_in_mib_per_s: Option<Amount>,
    /// Egress capacity, for all receivers.
    pub(crate) way_out_mib_per_s: Option<Amount>,
    /// Owner whose requests alone use it; without one, all do.
    #[serde(default)]
    pub(crate) owner: String,
    /// Declaration of its rate by its owner.
    #[serde(default)]
    pub(crate) advertises: bool,
    /// Ability of its release to code chunks.
    #[serde(default = "yes")]
    pub(crate) codes: bool,
    /// Ability of its release to forward a fragment it still receives.
    #[serde(default)]
    pub(crate) follows: bool,
    /// Store, which does nothing by itself.
    #[serde(default)]
    pub(crate) stores: bool,
    /// Ability of its release to reserve space for datasets.
    #[serde(default)]
    pub(crate) reserves: bool,
    /// Deviation of the rate, in permille.
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    /// Period of the deviation.
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    /// Hours in which its owner lends it, like 20-06. It is up in these hours only, and the mind
    /// knows them.
    #[serde(default)]
    pub(crate) hours: String,
    /// Landmark: a depot of the site, used for want of others.
    #[serde(default)]
    pub(crate) landmark: bool,
    /// Price of sending 10^9 bytes to it.
    #[serde(default)]
    pub(crate) usd_per_gb: Price,
    /// Price of keeping 10^9 bytes there for a month.
    #[serde(default)]
    pub(crate) usd_per_gb_month: Price,
    /// Price of a thousand operations: one for each fragment stored or read.
    #[serde(default)]
    pub(crate) usd_per_1000_puts: Price,
    #[serde(default)]
    pub(crate) usd_per_1000_gets: Price,
    /// Price of 10^9 bytes of egress. `usd_per_gb_out_to` gives prices to depots or domains by
    /// name.
    #[serde(default)]
    pub(crate) usd_per_gb_out: Price,
    #[serde(default)]
    pub(crate) usd_per_gb_out_to: BTreeMap<String, Price>,
    /// Permille of packets lost on its path from the centre.
    #[serde(default)]
    pub(crate) loss_permille: u64,
    /// Connections that share that loss.
    #[serde(default = "default_streams")]
    pub(crate) streams: u64,
    /// Change of the rate over time.
    #[serde(default)]
    pub(crate) varies: Varies,
    /// Failure domains: names, separated by commas.
    pub(crate) domain: Option<String>,
    /// Hops from the centre. Depots push to those of a higher level.
    #[serde(default = "default_level")]
    pub(crate) level: u8,
    /// Mean time between a repair and the next failure. `mttr_s` is the mean time to repair.
    pub(crate) mtbf_s: Option<f64>,
    pub(crate) mttr_s: Option<f64>,
    /// Permille of failures that also lose the data.
    #[serde(default)]
    pub(crate) wiped_permille: u64,
    /// Times of absence: from and to, in seconds.
    #[serde(default)]
    pub(crate) offline_s: Vec<[f64; 2]>,
    /// Load reports: time in seconds, and load.
    #[serde(default)]
    pub(crate) load: Vec<[f64; 2]>,
    /// Load from which nothing is sent there, for any request.
    pub(crate) load_max: Option<f64>,
    /// Mean time it is up. `offline_mean_s` is the mean time it is away.
    pub(crate) online_mean_s: Option<f64>,
    pub(crate) offline_mean_s: Option<f64>,
}

impl DepotPlan {
    /// Returns its prices beyond its terms.
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

    pub(crate) fn terms(&self) -> DepotTerms {
        DepotTerms {
            windows: self.windows().unwrap_or_default(),
            domain: self.domain.clone().unwrap_or_default(),
            is_landmark: self.landmark,
            send_micro_usd: self.usd_per_gb.micro(),
            keep_micro_usd: self.usd_per_gb_month.micro(),
        }
    }

    /// Returns its hours; without any, always.
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
/// Returns the most connections a copy opens over one path.
fn default_streams() -> u64 {
    64
}

/// Change of a rate over time. All given factors multiply.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Varies {
    /// Trace file beside the scenario, with a line of seconds and Mbit/s for each point. It
    /// replaces the rate.
    pub(crate) trace: Option<String>,
    /// Trace, written in the scenario.
    pub(crate) trace_mbit_per_s: Option<Vec<[f64; 2]>>,
    /// Factor of the trace.
    pub(crate) scale: Option<f64>,
    /// Random start within the trace, drawn by the seed.
    #[serde(default)]
    pub(crate) begins_anywhere: bool,
    /// Alternation of a high and a low rate.
    pub(crate) two_state: Option<TwoState>,
    /// Permille of the rate for each hour of the day in UTC.
    pub(crate) daily_permille: Option<Vec<u64>>,
}

impl Varies {
    /// Returns the factor of the trace, in thousandths.
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
    /// Permille of the rate that is left in the low state.
    pub(crate) low_permille: u64,
    pub(crate) high_mean_s: f64,
    pub(crate) low_mean_s: f64,
}

/// Link that these depots share on their way to the rest of the world.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkPlan {
    pub(crate) name: String,
    pub(crate) rate_mib_per_s: Amount,
    /// Depots behind it. Empty: all.
    #[serde(default)]
    pub(crate) depots: Vec<String>,
    #[serde(default)]
    pub(crate) jitter_permille: u64,
    #[serde(default = "default_jitter_every")]
    pub(crate) jitter_every_s: f64,
    #[serde(default)]
    pub(crate) varies: Varies,
}

/// Capacity of the path from one depot to another.
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

/// Traffic of others over a link, or over the path to a depot.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackgroundPlan {
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    /// Name of the link or depot.
    pub(crate) on: String,
    /// Rate, drawn each time it begins.
    pub(crate) rate_mib_per_s: Amount,
    pub(crate) on_mean_s: f64,
    pub(crate) off_mean_s: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestPlan {
    /// Number of requests like this.
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    #[serde(default = "default_zero")]
    pub(crate) at_s: Amount,
    pub(crate) size_mib: Amount,
    #[serde(default = "default_chunk")]
    pub(crate) chunk_mib: f64,
    /// Encryption of its chunks: depots store a tag with each.
    #[serde(default)]
    pub(crate) encrypted: bool,
    /// Deadline, from its submission.
    pub(crate) deadline_s: Amount,
    pub(crate) code: String,
    /// Depots it may use. Empty: every depot that can't be a destination.
    #[serde(default)]
    pub(crate) via: Vec<String>,
    /// Number of those depots that the seed draws; without one, all.
    pub(crate) via_count: Option<usize>,
    /// Destination. For a numbered name, one of its depots.
    pub(crate) destination: Option<String>,
    /// Further destinations. The request is delivered when each has all data.
    #[serde(default)]
    pub(crate) destinations: Vec<String>,
    #[serde(default = "default_true")]
    pub(crate) release: bool,
    #[serde(default)]
    pub(crate) best_effort: bool,
    #[serde(default = "default_count")]
    pub(crate) files: u64,
    /// Optimizer of the fragments in flight to a depot, by name.
    pub(crate) optimizer: Option<String>,
    /// Priority, by name or as a number.
    pub(crate) priority: Option<String>,
    /// Owner. `project` is the account it is charged to.
    #[serde(default)]
    pub(crate) owner: String,
    #[serde(default)]
    pub(crate) project: String,
    /// Number of depots that may be lost, or in `loss_permille_max` the permitted permille of data
    /// loss. Either chooses the code.
    pub(crate) survive: Option<u32>,
    pub(crate) loss_permille_max: Option<u32>,
    /// Losses that suffice by the deadline if time is too short for the whole code.
    pub(crate) safe_with: Option<u32>,
    /// Depots that must hold their share of it.
    #[serde(default)]
    pub(crate) pin: Vec<String>,
    /// Depots lent for this request alone.
    #[serde(default)]
    pub(crate) lent: Vec<LentPlan>,
    /// Depots that may hold none of it.
    #[serde(default)]
    pub(crate) without: Vec<String>,
    /// Lazy repair: only when a single further loss can be survived.
    #[serde(default)]
    pub(crate) lazy_repair: bool,
    pub(crate) budget_usd: Option<f64>,
    /// Highest rate of its transfers.
    pub(crate) rate_max_mib_per_s: Option<f64>,
    pub(crate) cancel_after_s: Option<Amount>,
    /// Time of its user's pause, from its submission, for `pause_for_s`; without that, for ever.
    pub(crate) pause_after_s: Option<Amount>,
    pub(crate) pause_for_s: Option<Amount>,
    pub(crate) delivered_after_s: Option<Amount>,
    /// Time at which another party removes its source, from its submission, known in advance.
    pub(crate) purge_s: Option<Amount>,
    /// Time by which every destination is to have all data, from its submission.
    pub(crate) deliver_by_s: Option<Amount>,
    /// Use of reservations: `auto`, `always` or `never`.
    pub(crate) reserve: Option<String>,
    /// Outcomes allowed with every seed.
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

/// Kinds of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// Outage of the depot; connections break.
    Dies,
    /// Silent outage of the depot: the network drops all packets.
    Vanishes,
    /// Hang of the depot: it answers probes and stores nothing.
    Hangs,
    /// Outage of the depot, which comes back empty.
    Wiped,
    /// Link rate of `rate_mib_per_s` from now on.
    Slows,
    /// Depot that reports itself full.
    Full,
    /// Use of `takes_mib` of the depot, or of its free space, by another party.
    Neighbour,
    /// Kill of the service, which restarts from its journal.
    DriverCrash,
    /// Change of a file in every request.
    SourceChanges,
    /// Change of one file in every request, with bytes in some of its chunks only.
    FileChanges,
    /// Clean departure of the depot, with its data; connections are closed.
    Offline,
    /// Drain of the depot by an operator: nothing new goes there.
    Drains,
    /// Drain of the depot by an operator; data that lies only there moves to others.
    Empties,
}

impl FaultKind {
    /// Faults of a source of stage-ins.
    pub(crate) const OF_SOURCES: [Self; 4] =
        [Self::Dies, Self::Vanishes, Self::Slows, Self::SourceChanges];
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultPlan {
    #[serde(default = "default_count")]
    pub(crate) count: u64,
    pub(crate) at_s: Amount,
    /// Depot of the fault. Empty: the seed chooses one. A numbered name: one of its depots.
    #[serde(default)]
    pub(crate) depot: String,
    /// Domain whose depots all fail together.
    pub(crate) domain: Option<String>,
    /// Source of stage-ins.
    pub(crate) source: Option<String>,
    pub(crate) kind: FaultKind,
    /// Duration; without one the fault is permanent.
    pub(crate) for_s: Option<Amount>,
    pub(crate) rate_mib_per_s: Option<Amount>,
    pub(crate) takes_mib: Option<Amount>,
}
