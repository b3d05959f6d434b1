//! Tokens that others than the service's own user show: what each may, and a hash of it.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

use posthaste_types::Timestamp;

use crate::{
    Journal, JournalError,
    database::{Row, Trouble, params},
    digest, from_sql, to_sql,
};

/// Tokens that are kept: each is in memory and looked at whenever they are listed.
pub const TOKENS_MAX: usize = 10_000;

/// A token, which itself is nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// What people call it.
    pub name: String,
    /// BLAKE3 of what is shown.
    pub hash: [u8; 32],
    /// What it may, in a word of the service's.
    pub scope: String,
    /// Whose requests it makes and changes.
    pub owner: Option<String>,
    /// On whose account they go.
    pub project: Option<String>,
    /// Below which directories what they move lies.
    pub below: Vec<PathBuf>,
    /// Whose credentials they may name.
    pub profiles: Vec<String>,
    /// When it was made.
    pub created: Timestamp,
    /// Until when it is good.
    pub expires: Option<Timestamp>,
}

fn from_row(row: &Row) -> Result<TokenRecord, Trouble> {
    let moment = |micros: i64| Timestamp::from_micros(from_sql(micros));
    let name: String = row.get("name")?;
    digest::check_row(row, || format!("what is kept of token {name}"))?;
    let below: Vec<u8> = row.get("below")?;
    let below = below
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty());
    let profiles: String = row.get("profiles")?;
    let hash: Vec<u8> = row.get("hash")?;
    Ok(TokenRecord {
        name,
        // Of what is no hash nothing is the original.
        hash: hash.try_into().unwrap_or_default(),
        scope: row.get("scope")?,
        owner: row.get("owner")?,
        project: row.get("project")?,
        below: below
            .map(|path| OsString::from_vec(path.to_vec()).into())
            .collect(),
        profiles: profiles.lines().map(str::to_owned).collect(),
        created: moment(row.get("created_micros")?),
        expires: row.get::<_, Option<i64>>("expires_micros")?.map(moment),
    })
}

impl Journal {
    /// Keeps a token; false where one has its name, or there are [`TOKENS_MAX`], and nothing changes.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_token(&mut self, token: &TokenRecord) -> Result<bool, JournalError> {
        let paths = token.below.iter();
        let paths: Vec<&[u8]> = paths
            .map(|path| std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
            .collect();
        let arguments = params![
            token.name,
            token.hash.to_vec(),
            token.scope,
            token.owner.clone(),
            token.project.clone(),
            paths.join(&0),
            token.profiles.join("\n"),
            to_sql(token.created.as_micros()),
            token.expires.map(|at| to_sql(at.as_micros())),
        ];
        self.write(|database| {
            let row = database.query_row("SELECT count(*) FROM token", &[])?;
            let kept: i64 = row.map_or(Ok(0), |row| row.get(0))?;
            if from_sql(kept) >= TOKENS_MAX as u64 {
                return Ok(false);
            }
            let rows = digest::change(
                database,
                ("token", "name"),
                "INSERT INTO token (name, hash, scope, owner, project, below, profiles, created_micros,
                 expires_micros) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                 ON CONFLICT (name) DO NOTHING",
                &arguments,
            )?;
            Ok(!rows.is_empty())
        })
    }

    /// Forgets a token; false where there was none.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn remove_token(&mut self, name: &str) -> Result<bool, JournalError> {
        let name = name.to_owned();
        self.write(|database| {
            let row = database.query_row(
                "DELETE FROM token WHERE name = ?1 RETURNING name",
                &params![name],
            )?;
            Ok(row.is_some())
        })
    }

    /// Every token, in the order of their names.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn tokens(&self) -> Result<Vec<TokenRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self
                .database
                .query("SELECT * FROM token ORDER BY name", &[])?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}
