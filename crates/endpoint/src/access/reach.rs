//! Places for which credentials are valid.

use std::ffi::OsStr;

use super::{Access, Chosen, below, named};
use crate::{Error, ErrorKind, Location, Result, reach::Reach};

impl Access {
    /// Returns an access that sends no credentials to S3 stores.
    #[must_use]
    pub fn unsigned(mut self, unsigned: bool) -> Self {
        self.unsigned = unsigned;
        self
    }

    /// Returns an access that opens users' locations only where `reach` permits. Addresses in an
    /// operator's profiles are the operator's choice.
    #[must_use]
    pub fn reaching(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Returns the permitted addresses for a location written as `written`, which resolves to
    /// `location` with the profile `chosen`.
    pub(super) fn reach_of(
        &self,
        written: &Location,
        (location, chosen): (&Location, Option<&Chosen>),
    ) -> Reach {
        let is_given = |host: &str| self.given.as_ref().is_some_and(|given| given.host == host);
        let is_own = named(written).is_some_and(|(host, _)| is_given(host));
        let names_host = match location {
            Location::Server(_) | Location::Sftp { .. } | Location::Host { .. } => true,
            // Where stores are is said by profiles and the environment.
            Location::S3 { .. }
            | Location::Bucket { .. }
            | Location::Local(_)
            | Location::Plugin { .. } => false,
        };
        let ours = chosen.and_then(|chosen| chosen.ours.as_ref());
        let is_chosen = ours.is_some_and(|profile| profile.url.is_some());
        if is_own || (names_host && !is_chosen) {
            return self.reach.clone();
        }
        Reach::default()
    }

    /// Returns whether a profile applies to `location`: its address is that location, or one above
    /// it. `NAME:path` belongs to the profile NAME alone.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn covers(&self, name: &str, location: Location) -> Result<bool> {
        let Some(url) = self.profile(name)?.and_then(|profile| profile.url) else {
            return Ok(false);
        };
        let base = Location::parse(OsStr::new(&url))?;
        let location = match named(&location) {
            Some((host, path)) if host == name => below(&url, &path)?,
            Some(_) | None => location,
        };
        Ok(location.lies_below(&base))
    }

    /// Returns the same as [`Access::covers`] for a profile named after a host: one without an
    /// address is for all of that host.
    ///
    /// # Errors
    /// Errors of [`Access::resolve`].
    pub fn covers_host(&self, name: &str, location: Location) -> Result<bool> {
        match self.profile(name)?.and_then(|profile| profile.url) {
            Some(_) => self.covers(name, location),
            None => Ok(true),
        }
    }
}

/// Fails if credentials that were given for TLS would go over a plain connection.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;

    #[test]
    fn what_was_given_for_tls_goes_over_no_plain_connection() {
        let refused = |url: &str, address: &str| {
            let chosen = Chosen {
                name: "archive".into(),
                ours: Some(Profile {
                    url: Some(url.into()),
                    ..Profile::default()
                }),
            };
            let location = Location::parse(OsStr::new(address)).unwrap();
            refuse_plain(&location, &chosen).err()
        };
        for (url, address) in [
            ("https://a.example/d", "http://a.example/d/f"),
            ("webdavs://a.example/d", "webdav://a.example/d/f"),
            ("ftps://a.example/d", "ftp://a.example/d/f"),
        ] {
            let error = refused(url, address).unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("is for TLS"), "{error}");
            assert!(refused(url, url).is_none());
            assert!(refused(address, address).is_none());
        }
    }
}
