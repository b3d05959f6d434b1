use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Problem;

/// Outcome of one line of many that were submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineAnswer {
    /// The line, from 1.
    pub line: u64,
    /// The number of its request, like `r7`, where it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// True if that submission id had been taken before.
    #[serde(default)]
    pub known: bool,
    /// Why it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}
