use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Scope;

/// How people log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Identity {
    /// The OpenID provider that says who somebody is.
    #[schema(example = "https://id.example.org")]
    pub issuer: String,
    /// What whoever logs in through the command line is to the provider: a client without a secret.
    #[schema(example = "posthaste")]
    pub client_id: String,
    /// What is asked of the provider.
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

/// Who the service thinks that somebody is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Whoami {
    /// Whose requests are submitted; nobody's in particular where there is none.
    pub user: Option<String>,
    /// Whom the OpenID provider means, where somebody logged in.
    pub subject: Option<String>,
    /// What the token is called, where it is one that an operator made.
    pub token: Option<String>,
    /// What they may.
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
    /// What they may have open at once, where that is limited.
    #[serde(default)]
    pub quota: Option<Quota>,
}

/// What a user may have open at once, and has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quota {
    /// Requests that something still comes of.
    pub requests: u64,
    /// Most of them; as many as they like where there is none.
    pub requests_max: Option<u64>,
    /// What these are to move.
    pub bytes: u64,
    /// Most of that; as much as they like where there is none.
    pub bytes_max: Option<u64>,
}
