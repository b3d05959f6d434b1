//! Depots: what is said of one, and how it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DepotState;

/// A depot to add to the books, or to change the facts of.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDepot {
    /// The name people use: letters, digits, `-`, `_` and `.`. A depot of an owner is called `NAME@OWNER`, and a token to submit
    /// adds the owner by itself.
    #[schema(example = "campus")]
    pub name: String,
    /// Where the relay listens.
    #[schema(example = "https://127.0.0.1:7421")]
    pub url: String,
    /// The key it must show, as `posthaste relay` prints it.
    #[schema(example = "sha256:5f0c…")]
    pub fingerprint: String,
    /// The relay's secret, 64 hexadecimal digits. Kept in a file only the service can read; never
    /// given back.
    #[schema(write_only)]
    pub secret: String,
    /// Most that may be kept there; what the relay says, when left out.
    pub capacity_bytes: Option<u64>,
    /// Most that may be sent there; what the relay says, when left out.
    pub rate_bytes_per_s_max: Option<u64>,
    /// Hours in which it may be used, by the centre's clock; always, when left out.
    #[schema(example = "Mon-Fri 20-06, Sat-Sun 00-24")]
    pub hours: Option<String>,
    /// Nothing is sent there while the load of its machine is this or more, as cores' worth for each core, where its relay says what
    /// that is; whatever it is, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0.5)]
    pub load_max: Option<f64>,
    /// Failure domains, which fail together with it: its site, its provider, its region, separated by commas; at most 8.
    #[schema(example = "campus-north,provider-a")]
    pub domain: Option<String>,
    /// True if it belongs to the site: used when the depots of the user do not suffice.
    #[serde(default)]
    pub landmark: bool,
    /// Hops from the centre, 1 to 9, or 0 where how far it is decides, for each request: depots push on to those of a higher level, which are nearer to
    /// destinations. 1 when left out.
    #[schema(minimum = 1, maximum = 9, example = 2)]
    pub level: Option<u8>,
    /// Price of sending 10^9 bytes there, in dollars.
    pub usd_per_gb: Option<f64>,
    /// Price of keeping 10^9 bytes there for a month, in dollars.
    pub usd_per_gb_month: Option<f64>,
    /// Price of a thousand PUTs, in dollars: a fragment that is stored there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_1000_puts: Option<f64>,
    /// Price of a thousand GETs, in dollars: a fragment that is read from there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_1000_gets: Option<f64>,
    /// Price of 10^9 bytes that leave it, in dollars, where `usd_per_gb_out_to` says nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_gb_out: Option<f64>,
    /// Price of 10^9 bytes that go to a depot or a domain, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usd_per_gb_out_to: BTreeMap<String, f64>,
}

impl NewDepot {
    /// On which terms it is lent.
    #[must_use]
    pub fn terms(&self) -> LentTerms {
        LentTerms {
            capacity_bytes: self.capacity_bytes,
            rate_bytes_per_s_max: self.rate_bytes_per_s_max,
            hours: self.hours.clone(),
            load_max: self.load_max,
            domain: self.domain.clone(),
            landmark: self.landmark,
            level: self.level,
            usd_per_gb: self.usd_per_gb,
            usd_per_gb_month: self.usd_per_gb_month,
            usd_per_1000_puts: self.usd_per_1000_puts,
            usd_per_1000_gets: self.usd_per_1000_gets,
            usd_per_gb_out: self.usd_per_gb_out,
            usd_per_gb_out_to: self.usd_per_gb_out_to.clone(),
        }
    }
}

impl From<LentTerms> for NewDepot {
    /// A depot without a name on these terms: who adds it says the rest.
    fn from(terms: LentTerms) -> Self {
        Self {
            capacity_bytes: terms.capacity_bytes,
            rate_bytes_per_s_max: terms.rate_bytes_per_s_max,
            hours: terms.hours,
            load_max: terms.load_max,
            domain: terms.domain,
            landmark: terms.landmark,
            level: terms.level,
            usd_per_gb: terms.usd_per_gb,
            usd_per_gb_month: terms.usd_per_gb_month,
            usd_per_1000_puts: terms.usd_per_1000_puts,
            usd_per_1000_gets: terms.usd_per_1000_gets,
            usd_per_gb_out: terms.usd_per_gb_out,
            usd_per_gb_out_to: terms.usd_per_gb_out_to,
            ..Self::default()
        }
    }
}

/// On which terms a depot is lent, as in [`NewDepot`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LentTerms {
    /// Most that may be kept there; what the relay says, when left out.
    pub capacity_bytes: Option<u64>,
    /// Most that may be sent there; what the relay says, when left out.
    pub rate_bytes_per_s_max: Option<u64>,
    /// Hours in which it may be used, by the centre's clock; always, when left out.
    #[schema(example = "Mon-Fri 20-06, Sat-Sun 00-24")]
    pub hours: Option<String>,
    /// Nothing is sent there while the load of its machine is this or more, as cores' worth for each core, where its relay says what
    /// that is; whatever it is, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0.5)]
    pub load_max: Option<f64>,
    /// Failure domains, which fail together with it: its site, its provider, its region, separated by commas; at most 8.
    pub domain: Option<String>,
    /// True if it belongs to the site: used when the depots of the user do not suffice.
    #[serde(default)]
    pub landmark: bool,
    /// Hops from the centre, 1 to 9. 1 when left out.
    #[schema(minimum = 1, maximum = 9)]
    pub level: Option<u8>,
    /// Price of sending 10^9 bytes there, in dollars.
    pub usd_per_gb: Option<f64>,
    /// Price of keeping 10^9 bytes there for a month, in dollars.
    pub usd_per_gb_month: Option<f64>,
    /// Price of a thousand PUTs, in dollars: a fragment that is stored there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_1000_puts: Option<f64>,
    /// Price of a thousand GETs, in dollars: a fragment that is read from there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_1000_gets: Option<f64>,
    /// Price of 10^9 bytes that leave it, in dollars, where `usd_per_gb_out_to` says nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_gb_out: Option<f64>,
    /// Price of 10^9 bytes that go to a depot or a domain, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usd_per_gb_out_to: BTreeMap<String, f64>,
}

/// An invitation to be written for whoever lends disk.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewInvite {
    /// On which terms the depot is taken into the books.
    #[serde(default)]
    pub terms: LentTerms,
    /// For how long it is good, in seconds; a week when left out.
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub expires_s: Option<u64>,
}

/// An invitation.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invite {
    /// Contents of the file that `posthaste relay --join` reads. There is a secret in it: it is told this once.
    pub text: String,
    /// Time at which it expires, if no relay has used it.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// A depot as the mind sees it now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Depot {
    /// Its number, like `d3`.
    pub id: String,
    /// The name people use.
    pub name: String,
    /// The owner whose requests alone use it; absent where everybody's do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Where it listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// Its state.
    pub state: DepotState,
    /// Most that we may keep there.
    pub capacity_bytes: u64,
    /// Space left for new fragments.
    pub free_bytes: u64,
    /// Measured rate of what is sent there over the last seconds.
    #[serde(default)]
    pub rate_bytes_per_s: u64,
    /// Forecast rate: nine in ten are higher.
    pub rate_p10_bytes_per_s: u64,
    /// Forecast rate: as likely higher as lower.
    pub rate_p50_bytes_per_s: u64,
    /// Forecast rate: one in ten is higher.
    pub rate_p90_bytes_per_s: u64,
    /// Hours in which it may be used, by the centre's clock: `always`, or like `mon 20:00-06:00, …`.
    pub hours: String,
    /// Hours in which the relay itself says that it is lent, on top of `hours`; absent where it says nothing.
    pub own_hours: Option<OwnHours>,
    /// Nothing is sent there while `load` is this or more; absent where that is said of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_max: Option<f64>,
    /// Load of its machine, as cores' worth for each core; absent where it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Failure domains, which fail together with it, separated by commas; empty when there are none.
    pub domain: String,
    /// True if it is used only when the depots of the user do not suffice.
    pub landmark: bool,
    /// Hops from the centre, from 1.
    pub level: u8,
    /// Price of sending 10^9 bytes there, in dollars.
    pub usd_per_gb: f64,
    /// Price of keeping 10^9 bytes there for a month, in dollars.
    pub usd_per_gb_month: f64,
    /// Price of a thousand PUTs, in dollars.
    #[serde(default)]
    pub usd_per_1000_puts: f64,
    /// Price of a thousand GETs, in dollars.
    #[serde(default)]
    pub usd_per_1000_gets: f64,
    /// Price of 10^9 bytes that leave it, in dollars.
    #[serde(default)]
    pub usd_per_gb_out: f64,
    /// Price of 10^9 bytes that go to a depot or a domain, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usd_per_gb_out_to: BTreeMap<String, f64>,
    /// Progress of its draining; absent while it is not drained.
    pub drain: Option<DepotDrain>,
    /// True if the relay says by itself how it is, once it was invited; else it is asked.
    pub joined: bool,
    /// The release it runs; absent until it was heard of.
    pub version: Option<String>,
    /// Connections that it serves now, for everybody; absent until it was heard of.
    pub connections: Option<u32>,
    /// Seconds since it was last heard of; absent until it was.
    pub heard_s_ago: Option<f64>,
}

/// Hours in which a relay itself says that it is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OwnHours {
    /// By the clock of its machine, like `20-06`.
    pub open: String,
    /// Minutes that this clock is ahead of UTC now.
    pub ahead_of_utc_min: i32,
}

/// A wish to switch a depot off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDrain {
    /// True if what lies only there goes on to other depots of the same requests; otherwise it stays until it
    /// expires.
    #[serde(default)]
    pub moves: bool,
}

/// Progress of the draining of a depot: nothing new goes there, what is under way ends, and what it holds
/// counts and is given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DepotDrain {
    /// True if what lies only there goes on to others.
    pub moves: bool,
    /// True if the relay itself says that it ends; else somebody asked here.
    pub says_itself: bool,
    /// Fragments on their way to it.
    pub under_way: u64,
    /// Fragments that somebody may still want and that lie at no other depot that stays, as last counted,
    /// at most some seconds ago.
    pub only_there: Option<u64>,
    /// True if it may be switched off, and nobody misses anything.
    pub is_empty: bool,
}
