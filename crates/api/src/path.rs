//! Paths, and what is forecast of them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The path from the centre or a depot to a depot, or from a source of stage-ins or to an address, as it is forecast now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Path {
    /// Where it begins: `centre`, or the name of a depot or of a source.
    pub from: String,
    /// Where it ends: `centre`, or the name of a depot or of what holds an address.
    pub to: String,
    /// Forecast rate: nine in ten are higher.
    pub rate_p10_bytes_per_s: u64,
    /// Forecast rate: as likely higher as lower.
    pub rate_p50_bytes_per_s: u64,
    /// Forecast rate: one in ten is higher.
    pub rate_p90_bytes_per_s: u64,
    /// Source of the rate: `transfers` or `probe` (whichever tells more), `advertised` or `assumed`.
    pub known_by: String,
    /// Time of its last measurement, RFC 3339.
    #[schema(format = DateTime)]
    pub measured: Option<String>,
    /// Seconds since then.
    pub age_s: Option<f64>,
    /// Measurements of transfers so far.
    pub transfers: u64,
    /// Probes so far that showed something.
    pub probes: u64,
    /// Time at which the last probe ended, whether it showed anything or not, RFC 3339.
    #[schema(format = DateTime)]
    pub probed: Option<String>,
    /// Mean absolute error of the forecast (p50) so far, as a share of the mean measurement.
    pub error: Option<f64>,
    /// Measurements that the error was taken from.
    pub judged: u64,
    /// Share of them below p10: 0.1 when it is right.
    pub below_p10: Option<f64>,
    /// Share of them above p90: 0.1 when it is right.
    pub above_p90: Option<f64>,
    /// The shortest round trip seen, in milliseconds; absent where nobody measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// The ways there are, where gateways lead to the depot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ways: Vec<PathWay>,
}

/// A place whose path is to be measured: something is written there and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewProbe {
    /// The address of a directory, or of a place where one may be.
    #[schema(example = "s3://bucket/run7")]
    pub address: String,
    /// The profile of the service's user whose credentials open it; those of the environment when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// Route to a depot, of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PathWay {
    /// The gateways it leads through, the nearest first, or `straight`.
    pub name: String,
    /// True if data takes it.
    pub taken: bool,
    /// Forecast rate: nine in ten are higher. Nothing before it was measured.
    pub rate_p10_bytes_per_s: Option<u64>,
    /// Forecast rate: as likely higher as lower.
    pub rate_p50_bytes_per_s: Option<u64>,
    /// Forecast rate: one in ten is higher.
    pub rate_p90_bytes_per_s: Option<u64>,
    /// Time of its last measurement, RFC 3339.
    #[schema(format = DateTime)]
    pub measured: Option<String>,
    /// Seconds since then.
    pub age_s: Option<f64>,
}
