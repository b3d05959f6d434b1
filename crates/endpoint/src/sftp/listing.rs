//! Directories of a server, page by page.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    END,
    remote::Remote,
    session::Session,
    wire::{Attributes, CLOSE, READDIR, Reply, Request},
};
use crate::{
    Error, ErrorKind, Locus, Result,
    endpoint::{Boxed, Entry, Kind, Listing, join},
    objects::Circle,
};

pub(super) struct SftpListing {
    pub(super) remote: Arc<Remote>,
    pub(super) session: Arc<Session>,
    pub(super) full: Vec<u8>,
    pub(super) handle: Option<Bytes>,
    pub(super) follow: bool,
    pub(super) circle: Circle,
}

impl SftpListing {
    /// Returns the entry of this name: followed links give their targets, and attributes that a
    /// listing omits are requested.
    async fn entry(&self, name: Vec<u8>, attributes: &Attributes) -> Result<Entry> {
        let full = join(&self.full, &name);
        let is_vague = attributes.mode.is_none()
            || attributes.kind() == Kind::File && attributes.size.is_none();
        let is_followed = self.follow && attributes.kind() == Kind::Link;
        if (is_vague || is_followed)
            && let Some(found) = self.remote.stat(&full, self.follow).await?
        {
            return Ok(Entry { name, ..found });
        }
        self.remote.entry(name, attributes, &full)
    }

    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        while let Some(handle) = self.handle.clone() {
            let names = match self
                .session
                .ask(Request::new(READDIR).string(&handle))
                .await?
            {
                Reply::Names(names) => names,
                Reply::Status { code: END, .. } => {
                    self.handle = None;
                    self.session
                        .ask(Request::new(CLOSE).string(&handle))
                        .await?;
                    return Ok(Vec::new());
                }
                reply => return Err(self.remote.refusal(&reply, "list", &self.full)),
            };
            let mut last = names.iter().rev().map(|(name, _)| &**name);
            let last = last.find(|name| !is_own(name));
            if self.circle.closes(b"", last) {
                let error = Error::new(ErrorKind::Other, "list", self.remote.show(&self.full));
                return Err(error
                    .cause("the server's list comes to no end")
                    .at(Locus::Source));
            }
            let mut page = Vec::with_capacity(names.len());
            for (name, attributes) in names {
                if is_own(&name) {
                    continue;
                }
                page.push(self.entry(name.to_vec(), &attributes).await?);
            }
            if !page.is_empty() {
                return Ok(page);
            }
        }
        Ok(Vec::new())
    }
}

/// Returns whether a name stands for the directory itself or the one above.
fn is_own(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

impl Listing for SftpListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}
