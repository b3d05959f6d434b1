//! Tokens of clients other than the service's own user: the rights of each, and a hash of it.

use std::{ffi::OsString, os::unix::ffi::OsStringExt, path::PathBuf};

use posthaste_types::Timestamp;

use crate::{
    Journal, JournalError,
    database::{Row, Trouble, params},
    digest, from_sql, to_sql,
};

/// Most tokens that are kept: each is in memory and visited whenever they are listed.
pub const TOKENS_MAX: usize = 10_000;

/// A token, which itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Name for people.
    pub name: String,
    /// BLAKE3 hash of the token.
    pub hash: [u8; 32],
    /// Scope, in a word of the service.
    pub scope: String,
    /// Owner of the requests it makes and changes.
    pub owner: Option<String>,
    /// Project whose account they go on.
    pub project: Option<String>,
    /// Directories below which its data must lie.
    pub below: Vec<PathBuf>,
    /// Profiles whose credentials its requests may name.
    pub profiles: Vec<String>,
    /// Time of its creation.
    pub created: Timestamp,
    /// Moment until which it is valid.
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
        // No token hashes to a damaged value.
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
    /// Keeps a token; returns false, and changes nothing, if its name is in use or there are
    /// [`TOKENS_MAX`].
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

    /// Removes a token; returns false if there was none.
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

    /// Returns all tokens, in the order of their names.
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
