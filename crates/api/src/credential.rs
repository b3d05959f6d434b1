use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A credential that somebody gives for themselves.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCredential {
    /// Name that stands for it in addresses, as `NAME:path`: letters, digits, `-`, `_`, `.`.
    #[schema(example = "archive")]
    pub name: String,
    /// Whose it is, where an operator gives it; the token's owner has theirs.
    #[schema(example = "alice")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Address that `NAME:path` stands for: below it lies all that it opens.
    #[schema(example = "s3://results/alice")]
    pub url: String,
    /// Keys of profiles and their values: they show who asks, and where.
    #[schema(example = json!({"endpoint": "https://s3.example.org", "access_key_id": "…", "secret_access_key": "…"}))]
    pub settings: BTreeMap<String, String>,
    /// True if it may take the place of one of the same name.
    #[serde(default)]
    pub replace: bool,
}

impl fmt::Debug for NewCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewCredential")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A credential that is known, but for what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Credential {
    /// Name that stands for it in addresses.
    pub name: String,
    /// Whose it is; null where that is nobody in particular.
    pub owner: Option<String>,
    /// Address that `NAME:path` stands for.
    pub url: String,
    /// The keys that have a value, which nobody is told.
    pub settings: Vec<String>,
    /// Time at which it was given, RFC 3339.
    #[schema(format = DateTime)]
    pub created: String,
}

/// State of the key under which credentials are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rekeyed {
    /// Credentials that are kept under the new one.
    pub credentials: u64,
}
