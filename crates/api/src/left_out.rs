use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Files that were left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeftOut {
    /// Their number.
    pub files: u64,
    /// Bytes of those, as they were listed; they count among those of the request.
    pub bytes: u64,
    /// A line for each of the first hundred, with its name and what was found.
    pub named: Vec<String>,
}
