//! Visit of a directory that is listed by itself.

use std::sync::Arc;

use posthaste_endpoint::{Entry, Error, ErrorKind, Kind, Listing, Locus, Result, join};
use tokio::sync::Mutex;

use super::{
    super::{Links, retry::retried},
    DEPTH_MAX, Walk,
    directory::Directory,
    inside,
};
use crate::agenda::Visit;

/// Lists a directory, places its files and returns the directories in it.
pub(super) struct DirectoryVisit {
    walk: Arc<Walk>,
    directory: Arc<Directory>,
    /// Listing; `None` before it began.
    listing: Option<Mutex<Box<dyn Listing>>>,
}

impl DirectoryVisit {
    pub(super) fn new(walk: Arc<Walk>, directory: Arc<Directory>) -> Self {
        Self {
            walk,
            directory,
            listing: None,
        }
    }

    async fn next_page(&mut self) -> Result<Vec<Entry>> {
        let shared = &self.walk.shared;
        let endpoint = &self.directory.source.place.endpoint;
        let follow = shared.options.links == Links::Follow;
        let listing = match &self.listing {
            Some(listing) => listing,
            None => {
                let from = &self.directory.from;
                check_depth(&self.directory)?;
                inside::refuse_directory(shared, &self.directory).await?;
                if follow {
                    let place = retried(shared, || endpoint.real_path(from)).await?;
                    inside::refuse_followed(shared, &self.directory, &place).await?;
                    self.directory.identify(place)?;
                }
                let listing = retried(shared, || endpoint.list(from, follow)).await?;
                // The listing works: now the directory is made, even if it is empty.
                self.walk.place(&self.directory, Vec::new()).await;
                if from.is_empty() {
                    let outside = inside::refuse_root(shared, &self.directory).await;
                    outside.inspect_err(|_| self.directory.refuse())?;
                }
                self.listing.insert(Mutex::new(listing))
            }
        };
        retried(shared, || async { listing.lock().await.next_page().await }).await
    }
}

/// Refuses a directory too deep: a followed symbolic link to its own parent ends here if no end
/// reports where it leads.
pub(super) fn check_depth(directory: &Directory) -> Result<()> {
    if directory.depth <= DEPTH_MAX {
        return Ok(());
    }
    let shown = directory.source.place.endpoint.show(&directory.from);
    Err(Error::new(ErrorKind::Unsupported, "list", shown)
        .cause(format!("more than {DEPTH_MAX} directories deep"))
        .hint("a followed link may lead back to its own parent"))
}

impl Visit for DirectoryVisit {
    async fn step(&mut self) -> Option<Vec<Self>> {
        if self.walk.shared.is_stopped() {
            return None;
        }
        self.walk.seals.room().await;
        let page = match self.next_page().await {
            Ok(page) if page.is_empty() => return None,
            Ok(page) => page,
            Err(error) => {
                self.walk.shared.failed(error.at(Locus::Source));
                return None;
            }
        };
        self.walk.shared.progress.saw(page.len() as u64);
        let (mut files, mut found) = (Vec::with_capacity(page.len()), Vec::new());
        for entry in page {
            if !self.walk.takes(&self.directory, &entry) {
                continue;
            }
            self.directory.is_used();
            if entry.kind == Kind::Directory {
                let from = join(&self.directory.from, &entry.name);
                let to = join(&self.directory.to, &entry.name);
                let below = self.directory.below(from, to, Some(entry), false);
                found.push(Self::new(Arc::clone(&self.walk), below));
            } else {
                files.push(entry);
            }
        }
        if !files.is_empty() {
            self.walk.place(&self.directory, files).await;
        }
        Some(found)
    }
}
