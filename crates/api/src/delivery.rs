use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Finish;

/// State of the delivery of a request to its destinations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    /// Time by which every destination is to have all of it, RFC 3339, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub deliver_by: Option<String>,
    /// Time at which every destination is forecast to have all of it; none once each has, or while that is not in
    /// sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<Finish>,
    /// `deliver_by` less that, p90, or less when it was, in seconds; negative when late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_s: Option<f64>,
    /// True if the forecast assumes a rate on a way that nothing went yet.
    pub assumed: bool,
    /// True if being there in time is in danger.
    pub at_risk: bool,
    /// True if it was not there in time.
    pub missed: bool,
    /// Time at which every destination had all of it, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub delivered: Option<String>,
}

/// That a request waits because somebody said so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Pause {
    /// The owner who did, or the name of a token.
    pub by: String,
    /// Since when, RFC 3339.
    #[schema(format = DateTime)]
    pub since: String,
}
