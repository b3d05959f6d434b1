use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Scope;

/// Ways to log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    /// The OpenID provider that says who somebody is.
    #[schema(example = "https://id.example.org")]
    pub issuer: String,
    /// Client that whoever logs in through the command line is to the provider: it has no secret.
    #[schema(example = "posthaste")]
    pub client_id: String,
    /// Scopes asked of the provider.
    pub scopes: Vec<String>,
    /// Which of the tokens that it gives the service takes.
    pub bearer: Bearer,
}

/// A token that says who somebody is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Bearer {
    /// The ID token.
    #[default]
    IdToken,
    /// The access token.
    AccessToken,
}

/// Identity of whoever asks, as the service sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Whose requests are submitted; nobody's in particular where there is none.
    pub user: Option<String>,
    /// Whom the OpenID provider means, where somebody logged in.
    pub subject: Option<String>,
    /// Name of the token, where an operator made it.
    pub token: Option<String>,
    /// Rights of theirs.
    pub scope: Scope,
    /// On whose account their requests go.
    pub project: Option<String>,
    /// Directories below which everything lies that they move.
    pub below: Vec<String>,
    /// Profiles whose credentials they may use.
    pub profiles: Vec<String>,
    /// Until when what was shown is good, RFC 3339.
    #[schema(format = DateTime)]
    pub expires: Option<String>,
    /// Limits of what they may have open at once, where there are any.
    #[serde(default)]
    pub quota: Option<Quota>,
}

/// Limits of what a user may have open at once, and how much of them is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// Requests that something still comes of.
    pub requests: u64,
    /// Most of them; as many as they like where there is none.
    pub requests_max: Option<u64>,
    /// Bytes that these are to move.
    pub bytes: u64,
    /// Most of that; as much as they like where there is none.
    pub bytes_max: Option<u64>,
}
