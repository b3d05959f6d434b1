//! Trusted provider and rights of logged-in users: the table `[oidc]` of the settings file.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use posthaste_api as api;
use serde::Deserialize;
use toml::Spanned;

use super::issuer::safe;
use crate::{site::Complaint, tokens};

/// Most grants of a file, accounts, and names in one list: people write them by hand.
const GRANTS_MAX: usize = 256;
const ACCOUNTS_MAX: usize = 4096;
const NAMES_MAX: usize = 64;
/// Placeholder in a directory for the logged-in user.
pub(super) const USER: &str = "{user}";
/// Default scopes: the user's identity and name, and staying logged in.
const SCOPES: [&str; 3] = ["openid", "profile", "offline_access"];

/// Provider that identifies users, and the rights it implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oidc {
    /// Issuer, as it writes its own name.
    pub issuer: String,
    /// Client id of the command line there.
    pub client_id: String,
    /// Scopes that the command line asks for.
    pub scopes: Vec<String>,
    /// Token that the command line presents.
    pub bearer: api::Bearer,
    /// Audiences of tokens that are good here.
    pub(super) audience: Vec<String>,
    /// Claim that names the user; by default `preferred_username`, else `sub`.
    pub(super) user_claim: Option<String>,
    /// Certificate authority trusted beside the system's.
    pub ca_file: Option<PathBuf>,
    pub(super) grants: Vec<Grant>,
    /// Accounts of users whose claims don't name them.
    pub(super) accounts: BTreeMap<String, String>,
}

/// Rights of users with a certain claim, or of all logged-in users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) when: Option<(String, String)>,
    pub(super) scope: api::Scope,
    pub(super) project: Option<String>,
    /// Directories, with [`USER`] for the logged-in user.
    pub(super) below: Vec<String>,
    pub(super) profiles: Vec<String>,
}

/// Table as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    issuer: Spanned<String>,
    client_id: Spanned<String>,
    audience: Option<Names>,
    scopes: Option<Names>,
    #[serde(default)]
    bearer: api::Bearer,
    user_claim: Option<String>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    grant: Vec<Spanned<WrittenGrant>>,
    #[serde(default)]
    accounts: BTreeMap<String, Spanned<String>>,
}

/// Single name or list of names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenGrant {
    claim: Option<String>,
    value: Option<String>,
    scope: api::Scope,
    project: Option<String>,
    #[serde(default)]
    below: Vec<String>,
    #[serde(default)]
    profiles: Vec<String>,
}

impl Names {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(name) => vec![name],
            Self::Several(names) => names,
        }
    }
}

impl Written {
    /// Validates the settings.
    ///
    /// # Errors
    /// Invalid settings, with their position.
    pub(crate) fn understand(self) -> Result<Oidc, Complaint> {
        let (issuer, client_id) = (&self.issuer, &self.client_id);
        safe(issuer.as_ref()).map_err(|error| (issuer.span().start, error.to_string()))?;
        let at = client_id.span().start;
        if client_id.as_ref().is_empty() {
            return Err((at, "`client_id` is empty".to_owned()));
        }
        let audience = self.audience.map(Names::all);
        let audience = audience.unwrap_or_else(|| vec![client_id.as_ref().clone()]);
        let scopes = self.scopes.map(Names::all);
        let scopes = scopes.unwrap_or_else(|| SCOPES.map(str::to_owned).to_vec());
        for (name, names) in [("audience", &audience), ("scopes", &scopes)] {
            let is_good =
                (1..=NAMES_MAX).contains(&names.len()) && names.iter().all(|name| !name.is_empty());
            if !is_good {
                return Err((at, format!("`{name}` is one name, or up to {NAMES_MAX}")));
            }
        }
        if !scopes.iter().any(|scope| scope == "openid") {
            return Err((at, "`scopes` lacks `openid`".to_owned()));
        }
        if self.grant.len() > GRANTS_MAX || self.accounts.len() > ACCOUNTS_MAX {
            let most =
                format!("there are more than {GRANTS_MAX} grants or {ACCOUNTS_MAX} accounts");
            return Err((at, most));
        }
        let grants = self.grant.into_iter().map(|grant| {
            let at = grant.span().start;
            understand(grant.into_inner()).map_err(|why| (at, why))
        });
        let accounts = self.accounts.into_iter().map(|(subject, account)| {
            let at = account.span().start;
            let account = account.into_inner();
            if is_account(&account) {
                Ok((subject, account))
            } else {
                Err((at, format!("`{account:.64}` is no name of an account")))
            }
        });
        Ok(Oidc {
            issuer: self.issuer.into_inner(),
            client_id: self.client_id.into_inner(),
            scopes,
            bearer: self.bearer,
            audience,
            user_claim: self.user_claim,
            ca_file: self.ca_file,
            grants: grants.collect::<Result<_, _>>()?,
            accounts: accounts.collect::<Result<_, _>>()?,
        })
    }
}

fn understand(written: WrittenGrant) -> Result<Grant, String> {
    let WrittenGrant {
        claim,
        value,
        scope,
        project,
        below,
        profiles,
    } = written;
    let when = match (claim, value) {
        (Some(claim), Some(value)) => Some((claim, value)),
        (None, None) => None,
        _ => return Err("a grant has both `claim` and `value`, or neither".to_owned()),
    };
    if when.is_none() && scope == api::Scope::Operate {
        return Err(
            "a grant that lets people operate says whom, by `claim` and `value`".to_owned(),
        );
    }
    if scope == api::Scope::Move {
        return Err("people are no movers: `scope` is read, submit or operate".to_owned());
    }
    if scope == api::Scope::Submit && below.is_empty() {
        return Err(format!(
            "a grant that lets people submit says where, as `below = [\"/scratch/{USER}\"]`"
        ));
    }
    if let Some(name) = project
        .iter()
        .chain(&profiles)
        .find(|name| !tokens::is_name(name))
    {
        return Err(format!("`{name:.64}` is no name: {}", tokens::NAMES));
    }
    // The placeholder must be a whole directory name.
    let is_place = |below: &&String| {
        let named = below.replace(USER, "name");
        tokens::is_directory(Path::new(&named)) && !named.contains(['{', '}'])
    };
    match below.iter().find(|below| !is_place(below)) {
        Some(below) => Err(format!("`{below}` is no absolute path without `..`")),
        None => Ok(Grant {
            when,
            scope,
            project,
            below,
            profiles,
        }),
    }
}

/// Returns whether a name is valid for accounts and directories: neither hidden nor `..`.
pub(super) fn is_account(name: &str) -> bool {
    tokens::is_name(name) && !name.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: &str = "issuer = \"https://id.example\"\nclient_id = \"posthaste\"\n";

    fn read(text: &str) -> Result<Oidc, String> {
        let written: Written = toml::from_str(text).map_err(|error| error.to_string())?;
        written.understand().map_err(|(_, why)| why)
    }

    #[test]
    fn what_is_not_said_is_usual() {
        let oidc = read(START).unwrap();
        assert_eq!(oidc.audience, ["posthaste"]);
        assert_eq!(oidc.scopes, SCOPES);
        assert_eq!(oidc.bearer, api::Bearer::IdToken);
        assert!(oidc.grants.is_empty());
        let more = "audience = \"api\"\nbearer = \"access-token\"\n[[grant]]\nclaim = \"groups\"\nvalue = \"ops\"\n\
                    scope = \"operate\"\n[[grant]]\nscope = \"submit\"\nbelow = [\"/scratch/{user}\"]\n[accounts]\n\"u 1\" = \"alice\"\n";
        let oidc = read(&format!("{START}{more}")).unwrap();
        assert_eq!(oidc.audience, ["api"]);
        assert_eq!(oidc.grants.len(), 2);
        assert_eq!(oidc.accounts["u 1"], "alice");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            "audience = []",
            "scopes = [\"profile\"]",
            "bearer = \"refresh-token\"",
            "grants = 1",
            "[[grant]]\nscope = \"operate\"",
            "[[grant]]\nscope = \"submit\"",
            "[[grant]]\nscope = \"read\"\nclaim = \"groups\"",
            "[[grant]]\nscope = \"all\"",
            "[[grant]]\nscope = \"move\"",
            "[[grant]]\nscope = \"submit\"\nbelow = [\"scratch\"]",
            "[[grant]]\nscope = \"submit\"\nbelow = [\"/scratch/../etc\"]",
            "[[grant]]\nscope = \"submit\"\nbelow = [\"/scratch/{group}\"]",
            "[[grant]]\nscope = \"read\"\nproject = \"a b\"",
            "[accounts]\nu1 = \"../bob\"",
            "[accounts]\nu1 = \"..\"",
        ] {
            read(&format!("{START}{wrong}\n")).expect_err(wrong);
        }
        read("issuer = \"http://id.example\"\nclient_id = \"p\"\n").unwrap_err();
        read("issuer = \"https://id.example\"\n").unwrap_err();
    }
}
