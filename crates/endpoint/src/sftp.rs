//! Files on hosts that run OpenSSH's server, or another that speaks SFTP version 3.
//!
//! Large files are written to a hidden name beside the final one, many requests at a time, read
//! back and summed, and renamed into place. Which segments are there is noted on this machine.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any answer but the one hoped for is a refusal"
)]

mod file;
mod session;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::Mutex;

use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{
        Boxed, Capabilities, Endpoint, Entry, FileSpec, Kind, Listing, Reader, Whole, Writer,
        base_name, join, partial_name,
    },
    posix::DraftRules,
};
use file::{OpenFile, SftpReader, SftpWriter};
use session::Session;
use wire::{
    Attributes, CLOSE, EXTENDED, LSTAT, MKDIR, OPEN_CREATE, OPEN_READ, OPEN_TRUNCATE, OPEN_WRITE,
    OPENDIR, READDIR, READLINK, REMOVE, RENAME, Reply, Request, SETSTAT, STAT, SYMLINK,
};

/// Files up to this size are written whole.
const SMALL_BYTES_MAX: u64 = 8 << 20;

/// Lanes when nobody says: hides the latency of small files on one connection.
const TRANSFERS_AUTO: usize = 8;

/// Directories made above a missing one: no path is deeper (`PATH_MAX` / 2).
const PARENTS_MAX: usize = 2048;

/// Answers of a server (draft-ietf-secsh-filexfer-02, section 7).
const OK: u32 = 0;
const END: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const PERMISSION_DENIED: u32 = 3;
const FAILURE: u32 = 4;
const UNSUPPORTED: u32 = 8;

/// Where to log in, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The user, when it is not what `ssh` would take.
    pub user: Option<String>,
    /// The host, or its alias in `ssh_config`.
    pub host: String,
    /// The port, when it is not what `ssh` would take.
    pub port: Option<u16>,
    /// Options as in `ssh_config`, `Name=value`.
    pub options: Vec<String>,
}

impl Host {
    /// `sftp://user@host:port`.
    fn show(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map_or_else(String::new, |user| format!("{user}@"));
        let port = self
            .port
            .map_or_else(String::new, |port| format!(":{port}"));
        if self.host.contains(':') {
            return format!("sftp://{user}[{}]{port}", self.host);
        }
        format!("sftp://{user}{}{port}", self.host)
    }
}

/// Files below a root on a host.
pub struct Sftp {
    remote: Arc<Remote>,
}

/// What open files share: the way to a living connection.
struct Remote {
    host: Host,
    root: Vec<u8>,
    rules: DraftRules,
    session: Mutex<Option<Arc<Session>>>,
}

impl Sftp {
    /// Connects to `host` and names `root` there, absolute or relative to the login directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub async fn open(host: Host, root: Vec<u8>, rules: DraftRules) -> Result<Self> {
        let session = Session::connect(&host).await?;
        let session = Mutex::new(Some(Arc::new(session)));
        Ok(Self {
            remote: Arc::new(Remote {
                host,
                root,
                rules,
                session,
            }),
        })
    }
}

impl Remote {
    fn path(&self, path: &[u8]) -> Vec<u8> {
        match (&*self.root, path) {
            (b"", b"") => b".".to_vec(),
            (b"/", path) => [b"/", path].concat(),
            (root, path) => join(root, path),
        }
    }

    fn show(&self, full: &[u8]) -> String {
        let path = String::from_utf8_lossy(full);
        let slash = if path.starts_with('/') { "" } else { "/~/" };
        format!("{}{slash}{path}", self.host.show())
    }

    /// The living connection; a broken one is made anew.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut slot = self.session.lock().await;
        if let Some(session) = slot.as_ref()
            && !session.is_dead()
        {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::connect(&self.host).await?);
        *slot = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn ask(&self, request: Request) -> Result<Reply> {
        self.session().await?.ask(request).await
    }

    /// The error a reply means that is not the one hoped for.
    fn refusal(&self, reply: &Reply, operation: &'static str, full: &[u8]) -> Error {
        let fail = |kind| Error::new(kind, operation, self.show(full));
        match reply {
            Reply::Status {
                code: NO_SUCH_FILE, ..
            } => fail(ErrorKind::NotFound).cause("no such file or directory"),
            Reply::Status {
                code: PERMISSION_DENIED,
                ..
            } => fail(ErrorKind::PermissionDenied).cause("permission denied"),
            Reply::Status {
                code: UNSUPPORTED, ..
            } => fail(ErrorKind::Unsupported),
            Reply::Status { message, .. } => {
                fail(ErrorKind::Other).cause(format!("the server says: {message}"))
            }
            Reply::Handle(_)
            | Reply::Data(_)
            | Reply::Names(_)
            | Reply::Attributes(_)
            | Reply::Extended(_) => fail(ErrorKind::Other).cause("an answer to something else"),
        }
    }

    /// As [`Remote::refusal`] for a write, where a bare failure may mean a full disk.
    async fn write_refusal(&self, reply: &Reply, full: &[u8]) -> Error {
        let error = self.refusal(reply, "write", full).at(Locus::Destination);
        if matches!(reply, Reply::Status { code: FAILURE, .. }) && self.is_full(full).await {
            return Error::new(ErrorKind::Full, "write", self.show(full))
                .cause("no space left there")
                .hint("free space there, then run the same command to continue")
                .at(Locus::Destination);
        }
        error
    }

    async fn is_full(&self, full: &[u8]) -> bool {
        /// Less free space than this, in bytes, explains a failed write.
        const FREE_BYTES_MIN: u64 = 1 << 20;
        use bytes::Buf;
        let Ok(session) = self.session().await else {
            return false;
        };
        if !session.statvfs {
            return false;
        }
        let request = Request::new(EXTENDED)
            .string(b"statvfs@openssh.com")
            .string(parent_of(full));
        match session.ask(request).await {
            Ok(Reply::Extended(mut figures)) if figures.len() >= 40 => {
                let (_, fragment) = (figures.get_u64(), figures.get_u64());
                let (_, _, available) = (figures.get_u64(), figures.get_u64(), figures.get_u64());
                available.saturating_mul(fragment) < FREE_BYTES_MIN
            }
            Ok(_) | Err(_) => false,
        }
    }

    async fn stat(&self, full: &[u8], follow: bool) -> Result<Option<Entry>> {
        let kind = if follow { STAT } else { LSTAT };
        match self.ask(Request::new(kind).string(full)).await? {
            Reply::Attributes(attributes) => Ok(Some(entry_of(Vec::new(), &attributes))),
            Reply::Status {
                code: NO_SUCH_FILE, ..
            } => Ok(None),
            reply => Err(self.refusal(&reply, "look at", full)),
        }
    }

    /// Makes a request whose only good answer is "done".
    async fn command(&self, request: Request, operation: &'static str, full: &[u8]) -> Result<()> {
        match self.ask(request).await? {
            Reply::Status { code: OK, .. } => Ok(()),
            reply => Err(self.refusal(&reply, operation, full).at(Locus::Destination)),
        }
    }

    /// Renames, replacing what has the name.
    async fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let session = self.session().await?;
        let request = if session.posix_rename {
            Request::new(EXTENDED).string(b"posix-rename@openssh.com")
        } else {
            // Version 3's own rename never replaces.
            let _ = session.ask(Request::new(REMOVE).string(to)).await?;
            Request::new(RENAME)
        };
        match session.ask(request.string(from).string(to)).await? {
            Reply::Status { code: OK, .. } => Ok(()),
            reply => {
                let there = self.stat(to, false).await?;
                if there.is_some_and(|there| there.kind == Kind::Directory) {
                    return Err(Error::new(ErrorKind::Conflict, "write", self.show(to))
                        .cause("a directory has that name")
                        .at(Locus::Destination));
                }
                Err(self.refusal(&reply, "write", to).at(Locus::Destination))
            }
        }
    }

    async fn make_directory(&self, full: &[u8]) -> Result<bool> {
        let mut missing = vec![full.to_vec()];
        let mut made = false;
        while let Some(path) = missing.last().cloned() {
            let request = Request::new(MKDIR)
                .string(&path)
                .attributes(&Attributes::default());
            match self.ask(request).await? {
                Reply::Status { code: OK, .. } => made = true,
                Reply::Status {
                    code: NO_SUCH_FILE, ..
                } if missing.len() < PARENTS_MAX && parent_of(&path) != &*path => {
                    missing.push(parent_of(&path).to_vec());
                    continue;
                }
                reply => {
                    made = false;
                    match self.stat(&path, true).await? {
                        Some(entry) if entry.kind == Kind::Directory => {}
                        Some(_) => {
                            return Err(Error::new(
                                ErrorKind::Conflict,
                                "make directory",
                                self.show(&path),
                            )
                            .cause("a file has that name")
                            .at(Locus::Destination));
                        }
                        None => {
                            let error = self.refusal(&reply, "make directory", &path);
                            return Err(error.at(Locus::Destination));
                        }
                    }
                }
            }
            missing.pop();
        }
        Ok(made)
    }

    fn partial(&self, full: &[u8], spec: &FileSpec) -> Vec<u8> {
        let name = partial_name(base_name(full), &spec.origin);
        match full.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => [&full[..=cut], &name].concat(),
            None => name,
        }
    }

    async fn get(self: &Arc<Self>, full: Vec<u8>) -> Result<Whole> {
        let file = OpenFile::open(Arc::clone(self), full, OPEN_READ).await?;
        let entry = file.stat().await?;
        let mut data = Vec::new();
        let mut summer = Summer::default();
        if entry.size > 0 {
            let mut body = file.read(0..entry.size).await?;
            while let Some(bytes) = body.next().await {
                let bytes = bytes?;
                summer.add(&bytes);
                data.push(bytes);
            }
        }
        file.confirm(&entry).await?;
        file.close().await;
        Ok(Whole {
            entry,
            data,
            checksum: summer.sum(),
        })
    }

    async fn put(
        self: &Arc<Self>,
        full: Vec<u8>,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let partial = self.partial(&full, spec);
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE | OPEN_TRUNCATE;
        let file = OpenFile::open(Arc::clone(self), partial.clone(), flags)
            .await
            .map_err(|error| error.at(Locus::Destination))?;
        let written = file.write_small(spec, data, sum).await;
        file.close().await;
        let published = match written {
            Ok(()) => self.rename(&partial, &full).await,
            Err(error) => Err(error),
        };
        if published.is_err() {
            // Of no use: a small file is written anew.
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        }
        published
    }
}

fn parent_of(full: &[u8]) -> &[u8] {
    match full.iter().rposition(|&byte| byte == b'/') {
        Some(0) => b"/",
        Some(cut) => &full[..cut],
        None => b".",
    }
}

fn entry_of(name: Vec<u8>, attributes: &Attributes) -> Entry {
    Entry {
        name,
        kind: attributes.kind(),
        size: attributes.size.unwrap_or(0),
        mtime: attributes.file_time(),
        mode: attributes.mode.map(|mode| mode & 0o7777),
        version: None,
    }
}

/// What the server is to keep of `spec`; times before 1970 and after 2106 don't fit its fields.
fn attributes_of(mode: Option<u32>, mtime: Option<crate::FileTime>) -> Attributes {
    Attributes {
        size: None,
        mode,
        mtime: mtime.and_then(|mtime| u32::try_from(mtime.secs).ok()),
    }
}

struct SftpListing {
    remote: Arc<Remote>,
    session: Arc<Session>,
    full: Vec<u8>,
    handle: Option<Bytes>,
    follow: bool,
}

impl SftpListing {
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
                    break;
                }
                reply => return Err(self.remote.refusal(&reply, "list", &self.full)),
            };
            let mut page = Vec::with_capacity(names.len());
            for (name, attributes) in names {
                if matches!(&*name, b"." | b"..") {
                    continue;
                }
                let mut entry = entry_of(name.to_vec(), &attributes);
                if self.follow && entry.kind == Kind::Link {
                    let target = self.remote.stat(&join(&self.full, &name), true).await?;
                    entry = target.map_or(entry, |found| Entry {
                        name: name.to_vec(),
                        ..found
                    });
                }
                page.push(entry);
            }
            if !page.is_empty() {
                return Ok(page);
            }
        }
        Ok(Vec::new())
    }
}

impl Listing for SftpListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}

impl Endpoint for Sftp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            scheme: "sftp",
            byte_names: true,
            mtime_step_ns: 1_000_000_000,
            mtimes_listed: true,
            directory_attributes: true,
            stores_checksum: false,
            segment_size_min: SMALL_BYTES_MAX,
            transfers_auto: TRANSFERS_AUTO,
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.remote.show(&self.remote.path(path))
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        let full = self.remote.path(path);
        Box::pin(async move { self.remote.stat(&full, follow).await })
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let full = self.remote.path(path);
            let session = self.remote.session().await?;
            let handle = match session.ask(Request::new(OPENDIR).string(&full)).await? {
                Reply::Handle(handle) => handle,
                reply => return Err(self.remote.refusal(&reply, "list", &full)),
            };
            let listing: Box<dyn Listing> = Box::new(SftpListing {
                remote: Arc::clone(&self.remote),
                session,
                full,
                handle: Some(handle),
                follow,
            });
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.remote.get(self.remote.path(path)))
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let full = self.remote.path(path);
            let reader = SftpReader::open(Arc::clone(&self.remote), full).await?;
            let reader: Arc<dyn Reader> = Arc::new(reader);
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let full = self.remote.path(path);
            match self
                .remote
                .ask(Request::new(READLINK).string(&full))
                .await?
            {
                Reply::Names(names) if names.len() == 1 => Ok(names[0].0.to_vec()),
                reply => Err(self.remote.refusal(&reply, "read link", &full)),
            }
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.remote.put(self.remote.path(path), spec, data, sum))
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let full = self.remote.path(path);
            let writer = SftpWriter::start(Arc::clone(&self.remote), full, spec).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let full = self.remote.path(path);
            let partial = self.remote.partial(&full, spec);
            let _ = self
                .remote
                .ask(Request::new(REMOVE).string(&partial))
                .await?;
            // OpenSSH takes the target first, against the draft (PROTOCOL, section 4.1).
            let request = Request::new(SYMLINK).string(target).string(&partial);
            self.remote.command(request, "make link", &full).await?;
            self.remote.rename(&partial, &full).await
        })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let full = self.remote.path(b"");
            match parent_of(&full) {
                b"." | b"/" => Ok(()),
                parent => self.remote.make_directory(parent).await.map(|_| ()),
            }
        })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            let full = self.remote.path(path);
            let new = self.remote.make_directory(&full).await?;
            if !new && !path.is_empty() {
                let there = self.remote.stat(&full, false).await?;
                if there.is_some_and(|there| there.kind == Kind::Link) {
                    return Err(Error::new(
                        ErrorKind::Conflict,
                        "make directory",
                        self.remote.show(&full),
                    )
                    .cause("a symbolic link has that name")
                    .hint("remove the link, or copy to where it points")
                    .at(Locus::Destination));
                }
            }
            Ok(new)
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let full = self.remote.path(path);
            let attributes = attributes_of(entry.mode, entry.mtime);
            let request = Request::new(SETSTAT).string(&full).attributes(&attributes);
            self.remote
                .command(request, "set the attributes of", &full)
                .await
        })
    }
}
