use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A depot on the way from the centre to a destination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Ranked {
    /// Its name.
    pub name: String,
    /// The round trip to the centre, in milliseconds; absent where nobody measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_centre_ms: Option<f64>,
    /// The round trip to the destination, in milliseconds; absent where nobody measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_destination_ms: Option<f64>,
    /// Hops from the centre, for that destination.
    pub level: u8,
    /// True if it is only used where others do not suffice.
    pub landmark: bool,
    /// Forecast rate of the path from the centre: as likely more as less.
    pub rate_p50_bytes_per_s: u64,
    /// Seconds since that was measured; absent where it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Forecast rate of the path to the destination; absent where nothing ever measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onward_p50_bytes_per_s: Option<u64>,
    /// Seconds since that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onward_age_s: Option<f64>,
}
