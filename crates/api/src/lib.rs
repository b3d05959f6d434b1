//! REST types: what programs send to the service and what it answers.
//!
//! Times are RFC 3339 in UTC, sizes are bytes, rates are bytes a second; where a raw number
//! appears, the unit ends its name. The OpenAPI document made from these types and the service's
//! routes is committed under `openapi/`.

mod bulk;
mod change;
mod credential;
mod dataset;
mod delivery;
mod depot;
mod directory;
mod endpoint;
mod file;
mod health;
mod history;
mod identity;
mod job;
mod left_out;
mod mover;
mod offer;
mod overview;
mod path;
mod plan;
mod problem;
mod queue;
mod ranked;
mod reservation;
mod stage_in;
mod token;
mod transfer;
mod wishes;
mod words;

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

pub use bulk::LineAnswer;
pub use change::Change;
pub use credential::{Credential, NewCredential, Rekeyed};
pub use dataset::{Dataset, Holding};
pub use delivery::{Delivery, Pause};
pub use depot::{Depot, DepotDrain, Invite, LentTerms, NewDepot, NewDrain, NewInvite, OwnHours};
pub use directory::{Directory, DirectoryEntry, TreeLine};
pub use endpoint::{EndpointKind, Endpoints};
pub use file::{FilePage, FileProgress, FileState};
pub use health::Health;
pub use history::{History, MovedOnPath};
pub use identity::{Bearer, Identity, Quota, Whoami};
pub use job::{Job, JobEnd, JobName, Moved, NewJob, Scratch};
pub use left_out::LeftOut;
pub use mover::{
    BegunWork, CarriedBytes, CarryChore, Chore, ChoreCredential, ChoreDepot, ChorePlace,
    ChoreSegment, EndedWork, FetchChore, FetchPiece, FetchedBytes, JoinedMover, MOVER_PROTOCOL,
    Mover, MoverOrders, MoverTurn, NewMover, SealedDataset, SendChore, StoredPiece, Work,
};
pub use offer::Offer;
pub use overview::Overview;
pub use path::{NewProbe, Path, PathWay};
pub use plan::{Turn, TurnShare};
pub use problem::Problem;
pub use queue::{Queue, QueueScore, QueuedJob};
pub use ranked::Ranked;
pub use reservation::Reservation;
pub use stage_in::{Binding, NewStageIn, Source, StageIn};
pub use token::{MadeToken, NewToken, Scope, Token};
pub use transfer::{Transfer, TransferState};
pub use wishes::{LentFor, Wishes};
pub use words::{
    DepotState, EntryKind, JobHold, JobPhase, MoverState, OfferKind, RequestState,
    ReservationState, SourceState, TransferKind,
};

/// A stage-out to submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewRequest {
    /// Absolute path of the directory or file, as the service's host sees it.
    #[schema(example = "/scratch/alice/run7")]
    pub source: String,
    /// The names of the files in that directory that are meant; all that lies below it when left out.
    #[schema(example = json!(["result.h5"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// Which files of those are meant, as rclone's patterns like `*.nc` or `/out/**`; all when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
    /// Which files of those are left out, likewise; this wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The names of where it goes, each of which gets all of it. One name may stand without a list. Or one address,
    /// like `s3://bucket/run7`: files lie there as they are, and go there straight unless `via` names depots.
    #[serde(deserialize_with = "one_or_several")]
    #[schema(example = json!(["home"]))]
    pub to: Vec<String>,
    /// The profile of the service's user whose credentials open the address that it goes to; those of the environment
    /// when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Time by which it must be safe, RFC 3339. May be left out where `deliver_by` says when it is wanted: then it must
    /// be safe by that.
    #[schema(format = DateTime, example = "2026-11-20T18:00:00Z")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Time by which every destination is to have all of it, RFC 3339; any time when left out, and by the deadline at an address. Each
    /// destination runs a relay then, or is an address.
    #[schema(format = DateTime, example = "2026-11-20T20:00:00Z")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_by: Option<String>,
    /// Time at which the first file of its source is to be purged, RFC 3339, where that is known: it must be safe
    /// before that too. Left out, the rules of the purge say it, where the service has them and the source is a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub purge_at: Option<String>,
    /// Names of the depots that may hold it, in order of preference. Where it goes to an address, the depots from which it
    /// goes on there once it is safe; none where it goes there straight.
    #[serde(default)]
    pub via: Vec<String>,
    /// The erasure code, `k+m`; left out where it goes to an address straight.
    #[schema(example = "4+1")]
    #[serde(default)]
    pub code: String,
    /// For whom it is encrypted, so that depots see nothing of it but sizes: recipients of the age
    /// format, `age1…`. Not encrypted when left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypt_for: Vec<String>,
    /// True if the source is removed once the dataset is safe.
    #[serde(default)]
    pub release: Release,
    /// True if it is to be taken even if the deadline can't be met.
    #[serde(default)]
    pub best_effort: bool,
    /// Time for which depots keep it after the deadline, in seconds, also once every destination has all of it. When left
    /// out, until then, 30 days at most.
    pub keep_s: Option<u64>,
    /// An id of the submitter's own: submitting it twice is submitting it once.
    pub submission_id: Option<String>,
    /// Method that chooses how many fragments go to a depot at once: `auto`, `falcon`, `scc`, `mcc`,
    /// `promc`, `partial-second-order`, `full-second-order`, `c-order`, or `fixed:N,1,1` for N at
    /// once. `auto` when left out.
    #[schema(example = "auto")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Wishes beyond the deadline.
    #[serde(default, skip_serializing_if = "Wishes::is_empty")]
    pub wishes: Wishes,
}

/// Reads a list of names, or one name alone.
fn one_or_several<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Names {
        One(String),
        Several(Vec<String>),
    }
    Ok(match Names::deserialize(from)? {
        Names::One(name) => vec![name],
        Names::Several(names) => names,
    })
}

/// Rule by which the source is removed from scratch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// The user keeps it.
    #[default]
    Never,
    /// Removed as soon as the dataset is safe.
    WhenSafe,
    /// The same, though owners, other names, attributes or access lists of some file can't be kept.
    Anyway,
}

/// A request as the service sees it now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Request {
    /// Its number, like `r7`.
    pub id: String,
    /// The dataset's id at depots.
    pub dataset: String,
    /// Where it came from; of files the directory in which they lie. The number of a request where it is read from the depots
    /// of that.
    pub source: String,
    /// The names of the files in it that are meant, where not all that lies below it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// The names of where it goes, with commas between them, or an address; of a stage-in the path.
    pub to: String,
    /// State of it.
    pub state: RequestState,
    /// Names of those who let it wait. `finish` and `slack_s` are those it would have if it went on now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Pause>,
    /// Why it was refused or failed, in one line.
    pub reason: Option<String>,
    /// The page under `docs/errors/` that explains why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// Warnings: an address that did not answer, a rate that is only assumed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// True if its deadline is in danger, or it was safe and is not any more.
    pub at_risk: bool,
    /// True if the deadline passed before it was safe.
    pub missed: bool,
    /// True if its source, or some of it, stays for good though it was to be removed: it changed, say. The reason says why.
    #[serde(default)]
    pub source_kept: bool,
    /// For whom it is encrypted; nobody when it is not.
    pub encrypt_for: Vec<String>,
    /// The erasure code.
    pub code: String,
    /// True if the source is removed once safe.
    pub release: Release,
    /// Method that chooses how many fragments go to a depot at once.
    pub optimizer: String,
    /// Wishes beyond the deadline.
    #[serde(default)]
    pub wishes: Wishes,
    /// Time at which it was submitted, RFC 3339.
    #[schema(format = DateTime)]
    pub submitted: String,
    /// Time by which it must be safe, RFC 3339.
    #[schema(format = DateTime)]
    pub deadline: String,
    /// Time at which the first file of its source is to be purged, RFC 3339, where that is known. The deadline is
    /// the earlier of that and what was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub purge_at: Option<String>,
    /// Deadline less p90 finish, in seconds; negative when it would be late. Null while no finish is in sight: also where it was safe,
    /// is not any more and can't be made so.
    pub slack_s: Option<f64>,
    /// Forecast finish, when there is a path.
    pub finish: Option<Finish>,
    /// Whether the forecast assumes the rate of a path that nothing measured yet.
    #[serde(default)]
    pub assumed: bool,
    /// Seconds from submission until it was safe; null where it is not any more.
    pub safe_after_s: Option<f64>,
    /// Size of the dataset.
    pub bytes: u64,
    /// Files, directories and links in it.
    pub files: u64,
    /// Chunks it is cut into.
    pub chunks: u32,
    /// Chunks that survive the loss of as many depots as the code has parity; all, once it is delivered; of a
    /// stage-in, those that are here.
    pub chunks_safe: u32,
    /// Chunks that nobody who is there can give any more, while the source is gone. They can't be pulled unless depots that are
    /// away come back; a warning names them.
    #[serde(default)]
    pub chunks_out_of_reach: u32,
    /// Whether it, or some of it, can't be had now although it was safe or delivered: nobody who is there can give it, or
    /// depots keep it no longer. A warning says which.
    #[serde(default)]
    pub out_of_reach: bool,
    /// Until when depots keep it, RFC 3339; of a delivered one while they hold some of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub kept_until: Option<String>,
    /// Whether depots keep it no longer, and no destination has it: nothing more is sent for it, and a warning says where it
    /// still is, if anywhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_ended: bool,
    /// Files that came to their address without their mode, which it refuses.
    #[serde(default)]
    pub modes_not_kept: u64,
    /// Files that came to their address without their time, which it refuses.
    #[serde(default)]
    pub times_not_kept: u64,
    /// Chunks that were made safe again after a depot was lost.
    pub chunks_repaired: u32,
    /// Cost of sending it when all goes as planned, requests included, in dollars, where depots have prices; of a stage-in, what
    /// it is forecast to cost in all, where its sources have prices.
    pub cost_usd: f64,
    /// Cost of keeping it on the depots for a month, in dollars.
    pub cost_usd_per_month: f64,
    /// Cost of reading all of it once from the depots, in dollars: requests, and what leaves them.
    #[serde(default)]
    pub cost_usd_to_read: f64,
    /// Cost of all that was begun for it so far, with keeping it to the end, in dollars.
    #[serde(default)]
    pub spent_usd: f64,
    /// State of its delivery, where its destinations run relays, or it goes on to an address from depots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// The request that brings it to its address, where it goes over depots to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goes_on_as: Option<String>,
    /// Time for which it needs scratch: as forecast until it is safe, as it was from then on.
    pub exposure: Option<Exposure>,
    /// Offers: each would make its deadline possible, the least effort first; of a request that was refused, or
    /// taken though it can't be on time.
    #[serde(default)]
    pub offers: Vec<Offer>,
    /// Part of each depot in it.
    pub shares: Vec<Share>,
    /// Reservations on circuits for it, asked for or granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reservations: Vec<Reservation>,
    /// Files that changed, vanished or could not be read while they were sent: nothing of them is safe, and they stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// Fields that only a stage-in has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_in: Option<StageIn>,
}

/// Time for which a dataset needs scratch, from its submission until it is safe, and that times its size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exposure {
    /// Hours, as likely as not.
    pub hours_p50: f64,
    /// Hours, nine times in ten at most.
    pub hours_p90: f64,
    /// Gigabytes (10^9 bytes) times hours, as likely as not.
    pub gb_hours_p50: f64,
    /// Gigabytes times hours, nine times in ten at most.
    pub gb_hours_p90: f64,
}

/// A moment in the future as quantiles, RFC 3339.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finish {
    /// Time before which one in ten finishes.
    #[schema(format = DateTime)]
    pub p10: String,
    /// Time before which half of them finish.
    #[schema(format = DateTime)]
    pub p50: String,
    /// Nine in ten finish earlier.
    #[schema(format = DateTime)]
    pub p90: String,
}

/// Part of one depot in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// The depot's name.
    pub depot: String,
    /// State of the depot.
    pub state: DepotState,
    /// True if it is fed now.
    pub active: bool,
    /// Fragments it holds, verified.
    pub stored: u32,
    /// Bytes of those.
    pub stored_bytes: u64,
    /// Fragments on their way to it.
    pub in_flight: u32,
    /// Bytes that it keeps for the request, what it holds of it included.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Measured rate over the last seconds.
    pub rate_bytes_per_s: u64,
}

/// Something that happened, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number; the `id` of the Server-Sent Event.
    pub seq: u64,
    /// Time of it, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Which request, like `r7`.
    pub request: Option<String>,
    /// The name of the depot it is about.
    pub depot: Option<String>,
    /// What: the `event` of the Server-Sent Event, like `depot-down`.
    pub name: String,
    /// Sentence for people.
    pub text: String,
    /// Why, for people.
    pub reason: String,
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Time of it, RFC 3339.
    #[schema(format = DateTime)]
    pub at: String,
    /// Decision that was made.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// Story of a request, in sentences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Story {
    /// Which request, like `r7`.
    pub request: String,
    /// From what was asked to how it stands or ended, in order; times are UTC.
    pub sentences: Vec<String>,
}

/// All that somebody needs to pull a dataset: who holds it, and leave to read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ticket {
    /// The dataset's id at depots.
    pub dataset: String,
    /// Until when the tokens are good, RFC 3339.
    #[schema(format = DateTime)]
    pub expires: String,
    /// The depots that hold fragments of it, and the source where that is handed out.
    pub holders: Vec<Holder>,
    /// Chunks of the source that are being read before there is a manifest; zero where there is one, or
    /// where the source is not handed out.
    #[serde(default)]
    pub unread_chunks: u64,
}

/// A depot that holds fragments of a dataset, or its source, which holds whole chunks.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The name people use.
    pub name: String,
    /// Where it listens.
    pub url: String,
    /// The key it must show.
    pub fingerprint: String,
    /// Leave to read this dataset there, and nothing else.
    pub token: String,
    /// True if it is the source.
    #[serde(default)]
    pub is_source: bool,
}

impl std::fmt::Debug for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holder")
            .field("name", &self.name)
            .field("url", &self.url)
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_never_shows_its_token() {
        let holder = Holder {
            name: "campus".into(),
            url: "https://127.0.0.1:1".into(),
            fingerprint: "sha256:00".into(),
            token: "ph1.very-secret".into(),
            is_source: false,
        };
        assert!(!format!("{holder:?}").contains("very-secret"));
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let text = r#"{"deadline":"2026-01-01T00:00:00Z","dedline":"x"}"#;
        assert!(serde_json::from_str::<Change>(text).is_err());
    }
}
