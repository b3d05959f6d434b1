use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Wishes of a request beyond its deadline; all of them can be left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Wishes {
    /// Priority beside others when not all can be served in time: `low`, `normal`, `high`,
    /// `urgent`, or a number from -9 to 9. What was promised to others is kept whatever it is.
    /// `normal` when left out.
    #[schema(example = "high")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Whose it is: users of a project share evenly what is left over.
    #[schema(example = "alice")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// On whose account it goes: projects share evenly what is left over.
    #[schema(example = "climate")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Number of depots that may be lost; the cheapest code that survives it and keeps the deadline is
    /// chosen instead of the one given.
    #[schema(example = 2)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survive: Option<u32>,
    /// With which chance the data is kept until it expires, in percent, by how often depots lost what
    /// they held so far; the code is chosen as with `survive`.
    #[schema(example = 99.99)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability_percent: Option<f64>,
    /// Number of depots that it suffices to survive by the deadline where there is no time for all of the code; the
    /// rest of the code follows, and the source stays until then.
    #[schema(example = 1)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safe_with: Option<u32>,
    /// Moment at which fragments that depots lost are made again: `eager`, at once; `lazy`, when one more loss is all
    /// that a chunk survives. Lazy only where the source stays. `eager` when left out.
    #[schema(example = "lazy")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// Most that it may cost in dollars, sending and keeping it together, by what depots are lent for; of a stage-in, reading its
    /// sources.
    #[schema(example = 1.5)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Most that may be sent for it from here, over all paths together.
    #[schema(example = 10_485_760)]
    #[serde(default, alias = "rate_max", skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s_max: Option<u64>,
    /// Rule by which rate is reserved for it on a circuit: `auto`, where its deadline asks for it and the time to
    /// set it up pays; `always`; `never`. `auto` when left out.
    #[schema(example = "never")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<String>,
    /// Names of depots that must hold their share of it, one fragment of every chunk, before it is safe, whatever
    /// else is used; they need not be named in `via`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pin: Vec<String>,
    /// Names of depots that may hold none of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Depots that are lent for this request at some hours only, or below some load, beside the terms on which they are lent to
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<LentFor>,
}

/// On which terms a depot is lent for one request alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LentFor {
    /// The name of the depot.
    #[schema(example = "ash")]
    pub depot: String,
    /// Hours in which something may be sent there, by the centre's clock; always when left out.
    #[schema(example = "20-06")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<String>,
    /// Nothing is sent there while the load average of its machine, of a minute and of each core, is this or more; whatever
    /// it is when left out.
    #[schema(example = 0.5)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_below: Option<f64>,
}

impl Wishes {
    /// Returns whether nothing is wished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
