//! WebDAV servers: `webdav://` and `webdavs://`.
//!
//! A file gets its name when it is whole: it is uploaded beside it under a hidden name, checked,
//! and moved. A file is one stream, since RFC 4918 has no way to write a range; a killed copy
//! starts the file anew. Modification times are sent as nginx and ownCloud accept them, but no
//! server has to keep them.

mod can;
mod change;
mod listing;
mod multistatus;
mod upload;

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::{
    Capabilities, Checksum, Error, ErrorKind, Result, Server,
    access::Chosen,
    endpoint::{
        Boxed, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer, no_links,
        unsupported,
    },
    posix::DraftRules,
    reach::Reach,
    trial::{self, SECOND_NS},
    unkept::{Unkept, UnkeptCount},
    web::{About, Call, Pages, Place, encode},
};
pub(crate) use can::CAPABILITIES;
use change::is_lost;
use listing::WebDavListing;
pub(crate) use multistatus::try_listing;

/// Most directories made above a missing one: no path is deeper (`PATH_MAX` / 2).
const PARENTS_MAX: usize = 2048;

/// Longest time a server may copy or move among its own files before it answers.
const SERVER_WORKS_FOR: Duration = Duration::from_secs(3600);

/// Files below a path of a WebDAV server.
pub struct WebDav {
    shelf: Arc<Shelf>,
}

/// State that listings and writers share.
struct Shelf {
    pages: Arc<Pages>,
    rules: DraftRules,
    user: Option<String>,
    /// Set once it is known whether the server is nginx, which sets a file's time from the
    /// request's `Date`.
    is_nginx: OnceLock<bool>,
    /// Step of the server's clock, once learnt.
    step_ns: OnceCell<Option<u32>>,
    /// Counts of what files arrived without.
    unkept: UnkeptCount,
    /// Set while the server is assumed to report checksums of stored files, as its last answer did.
    tells_sums: AtomicBool,
}

impl WebDav {
    /// Opens the place that `server` names, with the credentials of the chosen profile or of
    /// `~/.netrc`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for unusable credentials or certificates.
    pub(crate) fn open_chosen(
        server: &Server,
        rules: DraftRules,
        chosen: Option<&Chosen>,
        reach: Reach,
    ) -> Result<Self> {
        let place = Place::open(server, chosen, reach)?;
        Ok(Self {
            shelf: Arc::new(Shelf {
                pages: Arc::new(Pages::new(place)),
                rules,
                user: server.user.clone(),
                is_nginx: OnceLock::new(),
                step_ns: OnceCell::new(),
                unkept: UnkeptCount::default(),
                tells_sums: AtomicBool::new(true),
            }),
        })
    }
}

impl Shelf {
    fn place(&self) -> &Place {
        &self.pages.place
    }

    /// Returns a request about the absolute path `full`.
    fn call(&self, method: &'static str, full: &[u8], operation: &'static str) -> Call {
        let about = About::writing(operation, self.place().show_full(full));
        Call::new(method, target(full), about)
    }

    /// Counts a file that arrived without its time.
    fn note_time(&self, spec: &FileSpec, is_kept: bool) {
        self.unkept.add(Unkept {
            times: u64::from(spec.mtime.is_some() && !is_kept),
            ..Unkept::default()
        });
    }

    async fn is_directory(&self, full: &[u8]) -> Result<bool> {
        let there = self.look_at(full).await?;
        Ok(there.is_some_and(|there| there.kind == Kind::Directory))
    }

    /// Returns the address of an absolute path, as other requests refer to it.
    fn address(&self, full: &[u8]) -> String {
        format!("{}{}", self.place().origin(), target(full))
    }

    async fn put(
        &self,
        full: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let hidden = self.hidden(full, spec).await;
        let stored = async {
            let keeps_time = match self.send(&hidden, spec, data).await {
                // The answer may be lost although the request succeeded.
                Err(error) if is_lost(&error) => {
                    let there = self.check(&hidden, spec.size, Some(sum)).await;
                    let mtime = there.map_err(|_| error)?;
                    mtime.is_some() && mtime == spec.mtime
                }
                sent => {
                    let keeps_time = sent?;
                    self.check(&hidden, spec.size, Some(sum)).await?;
                    keeps_time
                }
            };
            self.publish(&hidden.partial, full, spec.size).await?;
            hidden.is_done();
            self.note_time(spec, keeps_time);
            Ok(())
        };
        let stored = stored.await;
        if stored.is_err() {
            self.forget(&hidden).await;
        }
        stored
    }

    async fn remove(&self, full: &[u8]) -> Result<()> {
        let call = self.call("DELETE", full, "remove");
        // A server removes a directory with all of its content.
        if self.is_directory(full).await? {
            let error = call.about.fail(ErrorKind::Conflict);
            return Err(error.cause("it is a directory"));
        }
        match self.command(call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            ended => ended.map(drop),
        }
    }

    /// Makes a directory and those above it. Returns whether it is new.
    async fn make_directory(&self, full: &[u8]) -> Result<bool> {
        let mut missing = vec![full.to_vec()];
        let mut made = false;
        while let Some(path) = missing.last() {
            let mut call = self.call("MKCOL", path, "make directory");
            call.target = format!("{}/", encode(path, true));
            let about = call.about.clone();
            made = match self.command(call).await {
                Ok(_) => true,
                Err(error) => match self.look_at(path).await? {
                    Some(there) if there.kind == Kind::Directory => false,
                    Some(_) => {
                        let error = about.fail(ErrorKind::Conflict);
                        return Err(error.cause("a file has that name"));
                    }
                    // 409: parents are missing.
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
        let hidden = self.hidden(full, spec).await;
        let mut call = self
            .call("COPY", from, "copy on the server to")
            .header("destination", self.address(&hidden.partial))
            .header("overwrite", "T")
            .header("depth", "0")
            .patience(SERVER_WORKS_FOR);
        call.about.subject = self.place().show_full(full);
        let copied = async {
            self.command(call).await?;
            let mtime = self.check(&hidden, spec.size, None).await?;
            self.publish(&hidden.partial, full, spec.size).await?;
            hidden.is_done();
            let is_kept = mtime.zip(spec.mtime);
            let is_kept = is_kept.is_some_and(|(found, given)| found.agrees(given, SECOND_NS));
            self.note_time(spec, is_kept);
            Ok(())
        };
        let copied = copied.await;
        if copied.is_err() {
            self.forget(&hidden).await;
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

impl Endpoint for WebDav {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ranges: self.shelf.pages.has_ranges(),
            mtime_step_ns: match self.shelf.step_ns.get() {
                Some(step_ns) => *step_ns,
                None => CAPABILITIES.mtime_step_ns,
            },
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.shelf.place().show(path)
    }

    fn unkept(&self) -> Unkept {
        self.shelf.unkept.get()
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async move {
            // Beside the address's own file nothing can be tried.
            if path.is_empty() {
                return Ok(None);
            }
            let learning = || trial::time_step_ns(self, path, &self.shelf.unkept);
            self.shelf.step_ns.get_or_try_init(learning).await.copied()
        })
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
            let shelf = Arc::clone(&self.shelf);
            let listing: Box<dyn Listing> = Box::new(WebDavListing { shelf, found, full });
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.shelf.pages.get(path, entry))
    }

    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let entry = self.shelf.pages.look_again(path, entry).await?;
            Ok(self.shelf.pages.reader(path, entry))
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

    fn forget_unfinished<'a>(&'a self, path: &'a [u8], origin: &'a str) -> Boxed<'a, ()> {
        let full = self.shelf.place().full(path);
        Box::pin(async move { self.shelf.forget_left(&full, origin).await })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let full = self.shelf.place().full(path);
            let upload = upload::Upload::new(Arc::clone(&self.shelf), full, spec).await;
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
        Box::pin(async move { Err(no_links(self.show(path))) })
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
