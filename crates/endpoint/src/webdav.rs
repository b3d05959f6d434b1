//! WebDAV servers: `webdav://` and `webdavs://`.
//!
//! What is written gets its name when it is whole: it is put beside it under a hidden name, looked
//! at, and moved. A file is one stream, since RFC 4918 has no way to write a range; a killed copy
//! starts the file anew. Modification times are sent as nginx and ownCloud take them, but no server
//! has to keep them.

mod can;
mod multistatus;
mod upload;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;

use crate::{
    Capabilities, Checksum, Error, ErrorKind, Result, Server,
    access::Chosen,
    endpoint::{
        Boxed, ByteStream, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer,
        unsupported,
    },
    posix::DraftRules,
    web::{About, Call, Pages, Place, Sent, drain, encode, stream, text_of},
};
pub(crate) use can::CAPABILITIES;
pub(crate) use multistatus::try_listing;
use multistatus::{Cutter, QUESTION};
use upload::partial_path;

/// Directories made above a missing one: no path is deeper (`PATH_MAX` / 2).
const PARENTS_MAX: usize = 2048;

/// Entries of one page of a listing.
const PAGE_ENTRIES: usize = 512;

/// How long a server may copy or move among its own files before it answers.
const SERVER_WORKS_FOR: Duration = Duration::from_secs(3600);

/// Files below a path of a WebDAV server.
pub struct WebDav {
    shelf: Arc<Shelf>,
}

/// What listings and writers share.
struct Shelf {
    pages: Arc<Pages>,
    rules: DraftRules,
    user: Option<String>,
    /// It sets a file's time from the request's `Date`.
    is_nginx: AtomicBool,
}

impl WebDav {
    /// Opens the place `server` names, with the credentials of the profile chosen or of `~/.netrc`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for unusable credentials or certificates.
    pub(crate) fn open_chosen(
        server: &Server,
        rules: DraftRules,
        chosen: Option<&Chosen>,
    ) -> Result<Self> {
        let place = Place::open(server, chosen)?;
        Ok(Self {
            shelf: Arc::new(Shelf {
                pages: Arc::new(Pages::new(place)),
                rules,
                user: server.user.clone(),
                is_nginx: AtomicBool::new(false),
            }),
        })
    }
}

impl Shelf {
    fn place(&self) -> &Place {
        &self.pages.place
    }

    /// A request about the absolute path `full`.
    fn call(&self, method: &'static str, full: &[u8], operation: &'static str) -> Call {
        let about = About::writing(operation, self.place().show_full(full));
        Call::new(method, target(full), about)
    }

    /// Starts to ask for properties; `None` when nothing is there.
    async fn find(&self, full: &[u8], depth: &'static str) -> Result<Option<Found>> {
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
        if text_of(response.headers(), "server").is_some_and(|name| name.starts_with("nginx")) {
            self.is_nginx.store(true, Relaxed);
        }
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

    /// What lies at the absolute path `full`.
    async fn look_at(&self, full: &[u8]) -> Result<Option<Entry>> {
        let Some(mut found) = self.find(full, "0").await? else {
            return Ok(None);
        };
        match found.next().await? {
            Some((_, entry)) => Ok(Some(entry)),
            None => {
                let error = found.about.fail(ErrorKind::Other);
                Err(error.cause("the server says nothing about it"))
            }
        }
    }

    /// Makes a request that changes something and needs no more than to succeed.
    async fn command(&self, call: Call) -> Result<()> {
        let response = self.place().ask(call).await?;
        drain(response.into_body()).await;
        Ok(())
    }

    /// Gives what is under the hidden name its own. A directory is never replaced: the server would
    /// remove all that is in it.
    async fn publish(&self, partial: &[u8], full: &[u8]) -> Result<()> {
        let moved = |overwrite: &'static str| {
            let mut call = self.call("MOVE", partial, "write");
            call.about.subject = self.place().show_full(full);
            call.header("destination", self.address(full))
                .header("overwrite", overwrite)
                .patience(SERVER_WORKS_FOR)
        };
        match self.command(moved("F")).await {
            // 412: something has the name.
            Err(error) if error.kind() == ErrorKind::Changed => {}
            ended => return ended,
        }
        if self.is_directory(full).await? {
            let about = About::writing("write", self.place().show_full(full));
            let error = about.fail(ErrorKind::Conflict);
            return Err(error.cause("a directory has that name"));
        }
        self.command(moved("T")).await
    }

    async fn is_directory(&self, full: &[u8]) -> Result<bool> {
        let there = self.look_at(full).await?;
        Ok(there.is_some_and(|there| there.kind == Kind::Directory))
    }

    /// The address of an absolute path, as other requests refer to it.
    fn address(&self, full: &[u8]) -> String {
        format!("{}{}", self.place().origin(), target(full))
    }

    async fn forget(&self, partial: &[u8]) {
        // What is left over is hidden, and the next attempt writes over it.
        let _ = self.command(self.call("DELETE", partial, "remove")).await;
    }

    async fn put(
        &self,
        full: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let partial = partial_path(full, spec);
        let stored = async {
            self.send(&partial, spec, Sent::payload(data)).await?;
            self.check(&partial, spec.size, Some(sum)).await?;
            self.publish(&partial, full).await
        };
        let stored = stored.await;
        if stored.is_err() {
            self.forget(&partial).await;
        }
        stored
    }

    async fn remove(&self, full: &[u8]) -> Result<()> {
        let call = self.call("DELETE", full, "remove");
        // A server removes a directory with all that is in it.
        if self.is_directory(full).await? {
            let error = call.about.fail(ErrorKind::Conflict);
            return Err(error.cause("it is a directory"));
        }
        match self.command(call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            ended => ended,
        }
    }

    /// Makes a directory and those above it; says whether it is new.
    async fn make_directory(&self, full: &[u8]) -> Result<bool> {
        let mut missing = vec![full.to_vec()];
        let mut made = false;
        while let Some(path) = missing.last() {
            let mut call = self.call("MKCOL", path, "make directory");
            call.target = format!("{}/", encode(path, true));
            let about = call.about.clone();
            made = match self.command(call).await {
                Ok(()) => true,
                Err(error) => match self.look_at(path).await? {
                    Some(there) if there.kind == Kind::Directory => false,
                    Some(_) => {
                        let error = about.fail(ErrorKind::Conflict);
                        return Err(error.cause("a file has that name"));
                    }
                    // 409: those above are missing.
                    None if is_about_parent(&error) && missing.len() < PARENTS_MAX => {
                        let parent = parent_of(path).to_vec();
                        if parent.is_empty() {
                            return Err(error);
                        }
                        missing.push(parent);
                        continue;
                    }
                    None => return Err(error),
                },
            };
            missing.pop();
        }
        Ok(made)
    }

    async fn copy(&self, from: &[u8], full: &[u8], spec: &FileSpec) -> Result<()> {
        let partial = partial_path(full, spec);
        let mut call = self
            .call("COPY", from, "copy on the server to")
            .header("destination", self.address(&partial))
            .header("overwrite", "T")
            .header("depth", "0")
            .patience(SERVER_WORKS_FOR);
        call.about.subject = self.place().show_full(full);
        let copied = async {
            self.command(call).await?;
            self.check(&partial, spec.size, None).await?;
            self.publish(&partial, full).await
        };
        let copied = copied.await;
        if copied.is_err() {
            self.forget(&partial).await;
        }
        copied
    }
}

fn is_about_parent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound)
}

fn target(full: &[u8]) -> String {
    if full.is_empty() {
        return "/".to_owned();
    }
    encode(full, true)
}

fn parent_of(full: &[u8]) -> &[u8] {
    let cut = full.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    &full[..cut]
}

/// The answer to a question for properties, while it comes.
struct Found {
    body: ByteStream,
    cutter: Cutter,
    about: About,
}

impl Found {
    /// The next path and what lies there; `None` at the end.
    async fn next(&mut self) -> Result<Option<(Vec<u8>, Entry)>> {
        loop {
            if let Some(read) = self.cutter.next() {
                return read.map(Some).map_err(|cause| {
                    let error = self.about.fail(ErrorKind::Other);
                    error.cause(format!("unreadable answer: {cause}"))
                });
            }
            match self.body.next().await {
                Some(bytes) => self.cutter.add(&bytes?),
                None => return Ok(None),
            }
        }
    }
}

struct WebDavListing {
    found: Found,
    /// The full path of the directory.
    full: Vec<u8>,
}

impl WebDavListing {
    async fn read_page(&mut self) -> Result<Vec<Entry>> {
        let mut page = Vec::new();
        while page.len() < PAGE_ENTRIES {
            let Some((path, entry)) = self.found.next().await? else {
                break;
            };
            if path == self.full {
                continue;
            }
            let below = path
                .strip_prefix(&*self.full)
                .and_then(|rest| rest.strip_prefix(b"/"))
                .filter(|name| !name.is_empty() && !name.contains(&b'/'));
            match below {
                Some(name) => page.push(Entry {
                    name: name.to_vec(),
                    ..entry
                }),
                None => {
                    let about = &self.found.about;
                    return Err(about
                        .fail(ErrorKind::Other)
                        .cause("the server tells of paths that are not below the one asked for")
                        .hint("use the address the server calls itself by"));
                }
            }
        }
        Ok(page)
    }
}

impl Listing for WebDavListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}

impl Endpoint for WebDav {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: self.shelf.pages.has_ranges(),
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.shelf.place().show(path)
    }

    fn round_trip(&self) -> Option<Duration> {
        self.shelf.place().round_trip()
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let full = self.shelf.place().full(path);
        Box::pin(async move { self.shelf.look_at(&full).await })
    }

    fn list<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async {
            let full = self.shelf.place().full(path);
            let found = self.shelf.find(&full, "1").await?;
            let found = found.ok_or_else(|| {
                let about = About::reading("list", self.show(path));
                about.fail(ErrorKind::NotFound).with("directory", true)
            })?;
            let listing: Box<dyn Listing> = Box::new(WebDavListing { found, full });
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.shelf.pages.get(path, entry))
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let missing = || About::reading("read", self.show(path)).fail(ErrorKind::NotFound);
            let entry = self.shelf.pages.look_at(path).await?;
            Ok(self.shelf.pages.reader(path, entry.ok_or_else(missing)?))
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async move { Err(unsupported("read link", self.show(path))) })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        let full = self.shelf.place().full(path);
        Box::pin(async move { self.shelf.put(&full, spec, data, sum).await })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let full = self.shelf.place().full(path);
            let upload = upload::Upload::new(Arc::clone(&self.shelf), full, spec);
            let writer: Arc<dyn Writer> = Arc::new(upload);
            Ok(writer)
        })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        _target: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { Err(unsupported("make link", self.show(path))) })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let full = self.shelf.place().full(b"");
            match parent_of(&full) {
                b"" => Ok(()),
                parent => self.shelf.make_directory(parent).await.map(|_| ()),
            }
        })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            match &*self.shelf.place().full(path) {
                b"" => Ok(false),
                full => self.shelf.make_directory(full).await,
            }
        })
    }

    fn seal_directory<'a>(
        &'a self,
        _path: &'a [u8],
        _entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        let full = self.shelf.place().full(path);
        Box::pin(async move { self.shelf.remove(&full).await })
    }

    fn realm(&self) -> Option<String> {
        let user = self.shelf.user.as_deref().unwrap_or_default();
        Some(format!("webdav {user} {}", self.shelf.place().origin()))
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        self.shelf.place().full(path)
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        let full = self.shelf.place().full(path);
        Box::pin(async move { self.shelf.copy(from, &full, spec).await })
    }
}
