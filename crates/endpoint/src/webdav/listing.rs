//! Entries of a WebDAV server: requests for properties, and their answers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream as streams};
use http::{HeaderMap, StatusCode};

use super::{
    Shelf,
    multistatus::{Cutter, QUESTION, Told},
    target,
};
use crate::{
    ErrorKind, Result,
    endpoint::{Boxed, ByteStream, Entry, Kind, Listing},
    web::{About, Call, Sent, drain, encode, kind_of_status, refused, stream, text_of, told_size},
};

/// Entries of one page of a listing.
const PAGE_ENTRIES: usize = 512;

/// Files whose sizes a listing does not report that are asked for at once.
const QUESTIONS_AT_ONCE: usize = 16;

impl Shelf {
    /// Starts a request for properties; `None` if nothing is there.
    pub(super) async fn find(&self, full: &[u8], depth: &'static str) -> Result<Option<Found>> {
        let (operation, slash) = match depth {
            "0" => ("look at", ""),
            _ => ("list", "/"),
        };
        let about = About::reading(operation, self.place().show_full(full));
        let target = format!("{}{slash}", encode(full, true));
        let target = if target.is_empty() {
            "/".to_owned()
        } else {
            target
        };
        let call = Call::new("PROPFIND", target, about.clone())
            .header("depth", depth)
            .header("content-type", "application/xml; charset=utf-8")
            .body(Sent::pieces(vec![Bytes::from_static(QUESTION.as_bytes())]));
        let response = self.place().send(call).await?.response;
        let name = text_of(response.headers(), "server");
        let is_nginx = || name.is_some_and(|name| name.starts_with("nginx"));
        self.is_nginx.get_or_init(is_nginx);
        match response.status().as_u16() {
            207 => Ok(Some(Found {
                body: stream(response.into_body(), about.subject.clone()),
                cutter: Cutter::default(),
                about,
            })),
            404 | 410 => Ok(None),
            _ => Err(self.place().refusal(response, &about).await),
        }
    }

    /// Returns the entry at the absolute path `full`.
    pub(super) async fn look_at(&self, full: &[u8]) -> Result<Option<Entry>> {
        let Some(mut found) = self.find(full, "0").await? else {
            return Ok(None);
        };
        let Some(told) = found.next().await? else {
            let error = found.about.fail(ErrorKind::Other);
            return Err(error.cause("the server says nothing about it"));
        };
        match told.refusal {
            Some(status) if is_gone(status) => Ok(None),
            Some(status) => {
                let kind = kind_of_status(status);
                let headers = HeaderMap::new();
                Err(refused(&found.about, status, &headers, kind, String::new()))
            }
            None => self.complete(told).await.map(Some),
        }
    }

    /// Returns the reported entry, and asks for a file's size if it was not reported.
    async fn complete(&self, told: Told) -> Result<Entry> {
        let mut entry = told.entry;
        if entry.kind == Kind::File && !told.has_size {
            let about = About::reading("look at", self.place().show_full(&told.path));
            let call = Call::new("HEAD", target(&told.path), about.clone());
            let call = call.header("accept-encoding", "identity");
            let response = self.place().ask(call).await?;
            entry.size = told_size(response.headers(), &about)?;
            drain(response.into_body()).await;
        }
        Ok(entry)
    }
}

fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE)
}

/// Answer to a property request, while it arrives.
pub(super) struct Found {
    body: ByteStream,
    cutter: Cutter,
    about: About,
}

impl Found {
    /// Returns the next reported entry; `None` at the end.
    async fn next(&mut self) -> Result<Option<Told>> {
        loop {
            if let Some(read) = self.cutter.next() {
                return read.map(Some).map_err(|cause| {
                    let error = self.about.fail(ErrorKind::Other);
                    error.cause(format!("unreadable answer: {cause}"))
                });
            }
            match self.body.next().await {
                Some(bytes) => self.cutter.add(&bytes?),
                None if self.cutter.has_ended() => return Ok(None),
                None => {
                    let error = self.about.fail(ErrorKind::Unreachable);
                    return Err(error.cause("the server's answer ended early"));
                }
            }
        }
    }
}

pub(super) struct WebDavListing {
    pub shelf: Arc<Shelf>,
    pub found: Found,
    /// Full path of the directory.
    pub full: Vec<u8>,
}

impl WebDavListing {
    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        let mut page = Vec::new();
        while page.len() < PAGE_ENTRIES {
            let Some(told) = self.found.next().await? else {
                break;
            };
            // So servers say that they leave out the rest (RFC 4918, section 11.5).
            if let Some(status) = told.refusal.filter(|status| !is_gone(*status))
                && told.path == self.full
            {
                let (about, kind) = (&self.found.about, kind_of_status(status));
                return Err(refused(
                    about,
                    status,
                    &HeaderMap::new(),
                    kind,
                    String::new(),
                ));
            }
            if told.path == self.full || told.refusal.is_some_and(is_gone) {
                continue;
            }
            let below = told
                .path
                .strip_prefix(&*self.full)
                .and_then(|rest| rest.strip_prefix(b"/"))
                .filter(|name| !name.is_empty());
            match below.map(<[u8]>::to_vec) {
                Some(name) => page.push((name, told)),
                None => {
                    let about = &self.found.about;
                    return Err(about
                        .fail(ErrorKind::Other)
                        .cause("the server tells of paths that are not below the one asked for")
                        .hint("use the address the server calls itself by"));
                }
            }
        }
        let shelf = &self.shelf;
        let asked = streams::iter(page).map(|(name, told)| async move {
            let bare = told.entry.clone();
            // List what can't be looked at: its reader gets the reason.
            let entry = shelf.complete(told).await.unwrap_or(bare);
            Entry { name, ..entry }
        });
        Ok(asked.buffered(QUESTIONS_AT_ONCE).collect().await)
    }
}

impl Listing for WebDavListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}
