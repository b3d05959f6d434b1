//! Which places credentials are for.

use std::ffi::OsStr;

use super::{Access, Chosen, below, named};
use crate::{Error, ErrorKind, Location, Result};

impl Access {
    /// The same, which tells no S3 store who asks, whatever credentials there are.
    #[must_use]
    pub fn unsigned(mut self, unsigned: bool) -> Self {
        self.unsigned = unsigned;
        self
    }

    /// Whether a profile is for `location`: it has an address, and that is where it is, or what it lies below. `NAME:path` is for the
    /// profile NAME alone.
    ///
    /// # Errors
    /// As [`Access::resolve`].
    pub fn covers(&self, name: &str, location: Location) -> Result<bool> {
        let Some(url) = self.profile(name)?.and_then(|profile| profile.url) else {
            return Ok(false);
        };
        let base = Location::parse(OsStr::new(&url))?;
        let location = match named(&location) {
            Some((host, path)) if host == name => below(&url, path)?,
            Some(_) | None => location,
        };
        Ok(location.lies_below(&base))
    }
}

/// Fails where credentials that were given for TLS would go over a plain connection.
pub(super) fn refuse_plain(location: &Location, chosen: &Chosen) -> Result<()> {
    let url = chosen
        .ours
        .as_ref()
        .and_then(|profile| profile.url.as_deref());
    let Some(Ok(Location::Server(of))) = url.map(|url| Location::parse(OsStr::new(url))) else {
        return Ok(());
    };
    if let Location::Server(server) = location
        && of.protocol.has_tls()
        && server.protocol.is_plain()
    {
        let shown = format!("{}://{}", server.protocol.scheme(), server.host);
        let (name, cause) = (&chosen.name, "is for TLS, which this address has not");
        return Err(Error::new(ErrorKind::Invalid, "open", shown)
            .cause(format!("the profile {name} {cause}"))
            .hint(format!("write {name}:PATH, or an address with TLS")));
    }
    Ok(())
}
