//! Listings that arrive page by page in one answer.

use std::sync::Arc;

use super::{
    knowledge::has_unfinished,
    remote::{Answer, Remote},
    wire::{List, Operation, Page},
};
use crate::{
    Result,
    endpoint::{Boxed, Entry, Listing},
};

/// Directory or tree being listed.
pub(super) struct PeerListing {
    remote: Arc<Remote>,
    path: Vec<u8>,
    tree: bool,
    /// Answer being read; `None` at the end.
    answer: Option<Answer>,
    is_clean: bool,
    /// Size above which files are remembered.
    large: u64,
}

impl PeerListing {
    pub(super) async fn start(
        remote: Arc<Remote>,
        path: &[u8],
        follow: bool,
        tree: bool,
        large: u64,
    ) -> Result<Self> {
        let message = List {
            path: remote.name(path),
            follow,
            tree,
        };
        let mut answer = remote.begin(Operation::List, path, &message).await?;
        // The peer reports whether it can list before the first page is requested.
        answer.message::<super::wire::Done>().await?;
        Ok(Self {
            remote,
            path: path.to_vec(),
            tree,
            answer: Some(answer),
            is_clean: true,
            large,
        })
    }

    async fn next(&mut self) -> Result<Vec<Entry>> {
        let Some(answer) = &mut self.answer else {
            return Ok(Vec::new());
        };
        let page: Page = answer.message().await?;
        let knowledge = &self.remote.knowledge;
        if page.entries.is_empty() {
            if let Some(answer) = self.answer.take() {
                answer.end().await?;
            }
            if self.is_clean && !self.tree {
                knowledge.is_clean(&self.path);
            }
            return Ok(Vec::new());
        }
        self.is_clean &= !has_unfinished(&page.entries);
        for entry in &page.entries {
            knowledge.see(&self.path, entry, self.large);
        }
        Ok(page.entries)
    }
}

impl Listing for PeerListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.next())
    }
}
