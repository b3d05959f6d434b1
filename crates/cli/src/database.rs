//! Address of a PostgreSQL database, with the password that PostgreSQL's own programs would use.

use posthaste_endpoint::trusted_roots;
use posthaste_journal::DatabaseUrl;

use crate::{config, failure::Failure};

/// Parses a database's address, the value of `argument`.
///
/// # Errors
/// Fails if it is no address or contains a password, or if others can read the password file.
pub fn address(argument: &str, url: &str) -> Result<DatabaseUrl, Failure> {
    let user = config::database_user();
    let address = DatabaseUrl::parse(url, user.as_deref())
        .map_err(|cause| Failure::usage(format!("can't use {argument}: {cause}")))?;
    let address = if address.needs_tls() {
        let authorities = config::database_authorities();
        let roots = trusted_roots(authorities.as_deref())?;
        let trusting = address.with_roots(roots);
        trusting.map_err(|cause| Failure::usage(format!("can't use {argument}: {cause}")))?
    } else {
        address
    };
    if let Some(password) = config::database_password() {
        return Ok(address.with_password(&password));
    }
    match config::database_password_file() {
        Some(file) if file.exists() => {
            let secrets = posthaste_service::read_private(&file)?;
            Ok(address.with_password_of(&secrets))
        }
        Some(_) | None => Ok(address),
    }
}
