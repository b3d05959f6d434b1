use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Rights of a token. Each includes those before it, but `move`: that is for movers alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Look at everything, and change nothing.
    Read,
    /// Submit requests, change its owner's, and get their data.
    Submit,
    /// Be a mover: take work and do it, and nothing else.
    Move,
    /// Everything.
    Operate,
}

impl Scope {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Submit, Self::Move, Self::Operate];

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Move => "move",
            Self::Operate => "operate",
        }
    }

    /// Returns whether who has it may do what needs `needed`.
    #[must_use]
    pub fn covers(self, needed: Self) -> bool {
        match (self, needed) {
            (Self::Operate, _) | (Self::Submit, Self::Read) => true,
            (own, needed) => own == needed,
        }
    }

    /// Reads the word for it.
    #[must_use]
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// A token to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of it: in lists, and in the record of who asked what.
    #[schema(example = "alice-laptop")]
    pub name: String,
    /// Rights of it.
    pub scope: Scope,
    /// Whose requests it makes, whatever they say themselves, and which it may change. One that submits needs it.
    #[schema(example = "alice")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// On whose account they go, whatever they say themselves.
    #[schema(example = "climate")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Directories of the service's host, below which everything lies that it moves. One that submits needs some.
    #[schema(example = json!(["/scratch/alice"]))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<String>,
    /// Profiles of the service's user whose credentials its stage-ins may use; other addresses they may not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// For how many seconds it is good; until it is removed when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifetime_s: Option<u64>,
}

/// A token that is known, but for what is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Name of it.
    pub name: String,
    /// Rights of it.
    pub scope: Scope,
    /// Whose requests it makes.
    pub owner: Option<String>,
    /// On whose account they go.
    pub project: Option<String>,
    /// Directories below which everything lies that it moves.
    pub below: Vec<String>,
    /// Profiles whose credentials it may use.
    pub profiles: Vec<String>,
    /// Time at which it was made, RFC 3339.
    #[schema(format = DateTime)]
    pub created: String,
    /// Until when it is good, RFC 3339.
    #[schema(format = DateTime)]
    pub expires: Option<String>,
}

/// A token that was just made.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// Secret to be shown: nobody can say it again.
    pub token: String,
    /// Facts known of it.
    pub known: Token,
}

impl fmt::Debug for MadeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MadeToken").field(&self.known).finish()
    }
}
