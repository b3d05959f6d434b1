//! The plan in force.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Finish;

/// A request as the plan in force has it: its turn is where it stands in the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    /// Its number, like `r7`.
    pub request: String,
    /// True if it gets what others leave, since it can't be on time.
    pub leftover: bool,
    /// By what its turn goes: when all of it must be safe, or at its destinations, RFC 3339.
    #[schema(format = DateTime)]
    pub deadline: String,
    /// Time at which it is forecast to be safe; absent while no path is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// Deadline less p90 finish, in seconds; negative when it would be late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_s: Option<f64>,
    /// True if its deadline is in danger.
    pub at_risk: bool,
    /// True if somebody lets it wait.
    pub paused: bool,
    /// Bytes that still have to be sent: coded, where it goes over depots.
    pub bytes_left: u64,
    /// Where it goes now.
    pub shares: Vec<TurnShare>,
}

/// Amount that goes to one depot, or destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TurnShare {
    /// Its name.
    pub depot: String,
    /// Fragments on their way.
    pub in_flight: u32,
    /// Bytes that a plan over time still gives it; absent where it may have what it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
}
