//! Built-in endpoints and their capabilities, known without connecting.

use crate::{Capabilities, Location, azure, ftp, gcs, peer, posix, s3, sftp, site, webdav};

/// Endpoint that is part of posthaste.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// Form of its addresses.
    pub addresses: &'static str,
    /// Its capabilities.
    pub capabilities: Capabilities,
}

/// All built-in endpoints, each scheme once.
pub const BUILT_IN: &[BuiltIn] = &[
    built_in("PATH", posix::CAPABILITIES),
    built_in("s3://BUCKET/PREFIX", s3::CAPABILITIES),
    built_in("gs://BUCKET/PREFIX", gcs::CAPABILITIES),
    built_in("azblob://CONTAINER/PREFIX", azure::CAPABILITIES),
    built_in("sftp://USER@HOST/PATH", sftp::CAPABILITIES),
    built_in("posthaste://HOST/PATH, USER@HOST:PATH", peer::CAPABILITIES),
    built_in(
        "webdavs://HOST/PATH, webdav://HOST/PATH",
        webdav::CAPABILITIES,
    ),
    built_in("ftps://HOST/PATH, ftp://HOST/PATH", ftp::CAPABILITIES),
    built_in("https://HOST/PATH, http://HOST/PATH", site::CAPABILITIES),
];

const fn built_in(addresses: &'static str, capabilities: Capabilities) -> BuiltIn {
    BuiltIn {
        addresses,
        capabilities,
    }
}

impl BuiltIn {
    /// Returns the endpoint that opens `location`; `None` if a plug-in does, or nothing.
    #[must_use]
    pub fn of(location: &Location) -> Option<&'static Self> {
        let scheme = location.scheme()?;
        BUILT_IN
            .iter()
            .find(|built_in| built_in.capabilities.scheme == scheme)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_own_addresses() {
        for built_in in BUILT_IN {
            for address in built_in.addresses.split(", ") {
                let location = Location::parse(address.as_ref()).unwrap();
                let found = BuiltIn::of(&location).unwrap();
                assert_eq!(found, built_in, "{address}");
            }
        }
        let plugin = Location::parse("dirstore://x/y".as_ref()).unwrap();
        assert_eq!(BuiltIn::of(&plugin), None);
    }
}
