use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ReservationState;

/// Rate that is reserved on a circuit for a request, or asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Reservation {
    /// Its number, like `v7`.
    pub id: String,
    /// The request that needs it, like `r7`. It may go on for another when that is done with it.
    pub request: String,
    /// The name of the circuit.
    pub circuit: String,
    /// The names of the depots that share it.
    pub depots: Vec<String>,
    /// Rate of all of them together.
    pub rate_bytes_per_s: u64,
    /// From when, RFC 3339.
    #[schema(format = DateTime)]
    pub from: String,
    /// Until when, RFC 3339.
    #[schema(format = DateTime)]
    pub until: String,
    /// State of it.
    pub state: ReservationState,
    /// Cost for its whole time, in dollars, where the circuit has a price.
    pub cost_usd: f64,
    /// Name by which the circuit's provider knows it, where that keeps it: `posthaste reserve list` shows it.
    pub key: String,
}
