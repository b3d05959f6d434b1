//! The ways that data of a request goes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Finish, TransferKind};

/// Load of one route for one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Transfer {
    /// Data that it carries.
    pub kind: TransferKind,
    /// Where it begins: `centre`, the name of a depot or of an endpoint, or `depots` or `sources` where there are several.
    pub from: String,
    /// Where it ends.
    pub to: String,
    /// Bytes that came that way and count.
    pub done_bytes: u64,
    /// Bytes that are forecast to come that way yet.
    pub left_bytes: u64,
    /// Pieces on their way.
    pub in_flight: u32,
    /// Measured rate of the way over the last seconds, for all requests together; absent between depots, where relays send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_s: Option<u64>,
    /// Time at which the last of what is left is forecast to be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// State of it.
    pub state: TransferState,
    /// Why nothing of it is on its way, where there is something to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// State of a transfer, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// Nothing of it is on its way now, and some will be.
    Waiting,
    /// Some of it is on its way.
    Running,
    /// Nothing of it is on its way before something changes.
    Parked,
    /// Nothing is left of it.
    Done,
}

impl TransferState {
    /// The word people and programs know it by.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Done => "done",
        }
    }
}
