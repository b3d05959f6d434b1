//! Read-only web servers: `http://` and `https://`.
//!
//! Directories are the server's listings: nginx's index as JSON, or the links of a page. Every
//! range is requested on condition that the file is unchanged. The answer is compared again,
//! because not every server heeds conditions.

mod html;
mod index;

use std::{sync::Arc, time::Duration};

use crate::{
    Capabilities, Error, ErrorKind, Locus, Result, Server,
    access::Chosen,
    endpoint::{Boxed, Endpoint, Entry, Listing, Reader, Whole, unsupported},
    reach::Reach,
    web::{Pages, Place, WHOLE_BYTES_MAX},
};
use index::SiteListing;
pub(crate) use index::try_index;

/// Read-only path on a web server.
pub struct Site {
    pages: Arc<Pages>,
}

impl Site {
    /// Opens the place that `server` names, with the credentials of the chosen profile or of
    /// `~/.netrc`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for unusable credentials or certificates.
    pub(crate) fn open_chosen(
        server: &Server,
        chosen: Option<&Chosen>,
        reach: Reach,
    ) -> Result<Self> {
        Ok(Self {
            pages: Arc::new(Pages::new(Place::open(server, chosen, reach)?)),
        })
    }
}

/// Capabilities at servers that know ranges.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    lists: true,
    ranges: true,
    mtime_step_ns: Some(1_000_000_000),
    mtimes_listed: true,
    segment_size_min: WHOLE_BYTES_MAX,
    requests_ahead_max: 8,
    ..Capabilities::least("http")
};

impl Endpoint for Site {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: self.pages.has_ranges(),
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.pages.place.show(path)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.pages.place.round_trip()
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(self.pages.look_at(path))
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async {
            let listing = SiteListing::open(Arc::clone(&self.pages), path.to_vec()).await?;
            let listing: Box<dyn Listing> = Box::new(listing);
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.pages.get(path, entry))
    }

    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let found = self.pages.open(path, entry).await?;
            Ok(self.pages.reader(path, found))
        })
    }

    fn read_only(&self, path: &[u8]) -> Error {
        Error::new(ErrorKind::Unsupported, "write", self.show(path))
            .cause("web servers are only read from")
            .hint("write webdav:// or webdavs:// where the server speaks WebDAV")
            .at(Locus::Destination)
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move { Err(unsupported("read link", self.show(path))) })
    }
}
