//! Visit of a directory that is listed and reported.

use std::sync::Arc;

use posthaste_endpoint::{Listing, Result};

use super::{Pages, Teller, below, check_depth, patiently};
use crate::agenda::Visit;

/// Visit that reports the entries of a directory and returns the directories in it.
pub(super) struct DirectoryVisit {
    teller: Arc<Teller>,
    path: Vec<u8>,
    /// Listing; `None` before it began.
    pages: Option<Pages>,
}

impl DirectoryVisit {
    /// Returns the visit of the listed root, as its listing begins.
    pub(super) fn root(teller: Arc<Teller>, listing: Box<dyn Listing>) -> Self {
        Self {
            teller,
            path: Vec::new(),
            pages: Some(Pages::new(listing)),
        }
    }

    async fn begin(&self) -> Result<Pages> {
        let endpoint = &self.teller.endpoint;
        check_depth(endpoint.as_ref(), &self.path)?;
        let listing = patiently(|| endpoint.list(&self.path, self.teller.follow)).await?;
        Ok(Pages::new(listing))
    }

    async fn next(&mut self) -> Result<Vec<posthaste_endpoint::Entry>> {
        if self.pages.is_none() {
            self.pages = Some(self.begin().await?);
        }
        match &mut self.pages {
            Some(pages) => pages.next().await,
            None => Ok(Vec::new()),
        }
    }
}

impl Visit for DirectoryVisit {
    async fn step(&mut self) -> Option<Vec<Self>> {
        if self.teller.news.is_closed() {
            return None;
        }
        let page = match self.next().await {
            Ok(page) if page.is_empty() => return None,
            Ok(page) => page,
            Err(error) => {
                self.teller.failed(error).await;
                return None;
            }
        };
        let found = below(&self.path, &page).into_iter().map(|path| Self {
            teller: Arc::clone(&self.teller),
            path,
            pages: None,
        });
        let found = found.collect();
        self.teller.found(&self.path, page).await.then_some(found)
    }
}
