//! Users' credentials: their owners and names, and their contents, sealed by the caller.

use std::fmt;

use posthaste_types::Timestamp;

use crate::{
    Journal, JournalError,
    database::{Row, Trouble, params},
    from_sql, to_sql,
};

/// A credential that nobody can read without the key.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialRecord {
    /// Owner; empty for nobody in particular.
    pub owner: String,
    /// Name that its owner gave it.
    pub name: String,
    /// Encrypted content.
    pub sealed: Vec<u8>,
    /// Time of its creation.
    pub created: Timestamp,
}

impl fmt::Debug for CredentialRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialRecord")
            .field("owner", &self.owner)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn from_row(row: &Row) -> Result<CredentialRecord, Trouble> {
    Ok(CredentialRecord {
        owner: row.get("owner")?,
        name: row.get("name")?,
        sealed: row.get("sealed")?,
        created: Timestamp::from_micros(from_sql(row.get("created_micros")?)),
    })
}

impl Journal {
    /// Keeps a credential, and replaces one of the same owner and name.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_credential(&mut self, credential: &CredentialRecord) -> Result<(), JournalError> {
        self.keep_credentials(std::slice::from_ref(credential))
    }

    /// Keeps several credentials: all of them, or none.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn keep_credentials(
        &mut self,
        credentials: &[CredentialRecord],
    ) -> Result<(), JournalError> {
        self.write(|database| {
            for credential in credentials {
                database.execute(
                    "INSERT INTO credential (owner, name, sealed, created_micros) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (owner, name) DO UPDATE SET sealed = ?3, created_micros = ?4",
                    &params![
                        credential.owner,
                        credential.name,
                        credential.sealed.clone(),
                        to_sql(credential.created.as_micros()),
                    ],
                )?;
            }
            Ok(())
        })
    }

    /// Removes a credential; returns false if there was none.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn remove_credential(&mut self, owner: &str, name: &str) -> Result<bool, JournalError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        self.write(|database| {
            let row = database.query_row(
                "DELETE FROM credential WHERE owner = ?1 AND name = ?2 RETURNING name",
                &params![owner, name],
            )?;
            Ok(row.is_some())
        })
    }

    /// Returns all credentials, in the order of owners and names.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn credentials(&self) -> Result<Vec<CredentialRecord>, JournalError> {
        let read = || -> Result<_, Trouble> {
            let rows = self
                .database
                .query("SELECT * FROM credential ORDER BY owner, name", &[])?;
            rows.iter().map(from_row).collect()
        };
        read().map_err(self.failed("read"))
    }
}
