//! What can be asked of a host, over a connection that is made anew when it breaks.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;

use super::{
    END, FAILURE, Host, NO_SUCH_FILE, OK, PARENTS_MAX, PERMISSION_DENIED, UNSUPPORTED,
    file::OpenFile,
    parent_of,
    pool::Pool,
    session::Session,
    wire::{
        Attributes, CLOSE, EXTENDED, LSTAT, MKDIR, OPEN_CREATE, OPEN_READ, OPEN_WRITE, READDIR,
        REMOVE, RENAME, Reply, Request, SETSTAT, STAT,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    endpoint::{
        Boxed, Entry, FileSpec, Kind, Listing, Whole, base_name, beside, join, new_word,
        partial_name, same_partial_name, unsupported,
    },
    posix::DraftRules,
    unkept::Unkept,
};

/// What open files share: the way to a living connection.
pub(super) struct Remote {
    pub(super) host: Host,
    pub(super) root: Vec<u8>,
    pub(super) rules: DraftRules,
    pub(super) pool: Arc<Pool>,
    /// The way there and back, as the first answer told.
    pub(super) round_trip: Option<Duration>,
    /// The server copies among its own files.
    pub(super) copies: bool,
    /// What files arrived without.
    pub(super) unkept: Mutex<Unkept>,
}

impl Remote {
    pub(super) fn path(&self, path: &[u8]) -> Vec<u8> {
        match (&*self.root, path) {
            (b"", b"") => b".".to_vec(),
            (b"/", path) => [b"/", path].concat(),
            (root, path) => join(root, path),
        }
    }

    pub(super) fn show(&self, full: &[u8]) -> String {
        let path = String::from_utf8_lossy(full);
        let slash = if path.starts_with('/') { "" } else { "/~/" };
        format!("{}{slash}{path}", self.host.show())
    }

    /// The connection for everything but streams.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        self.pool.session(0).await
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Reply> {
        self.session().await?.ask(request).await
    }

    /// The error a reply means that is not the one hoped for.
    pub(super) fn refusal(&self, reply: &Reply, operation: &'static str, full: &[u8]) -> Error {
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
    pub(super) async fn write_refusal(&self, reply: &Reply, full: &[u8]) -> Error {
        let error = self.refusal(reply, "write", full).at(Locus::Destination);
        if matches!(reply, Reply::Status { code: FAILURE, .. }) && self.is_full(full).await {
            return Error::new(ErrorKind::Full, "write", self.show(full))
                .cause("no space left there")
                .hint("free space there, then run the same command to continue")
                .at(Locus::Destination);
        }
        error
    }

    pub(super) async fn is_full(&self, full: &[u8]) -> bool {
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

    /// What the server says of a file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a file whose size it does not tell.
    pub(super) fn entry(
        &self,
        name: Vec<u8>,
        attributes: &Attributes,
        full: &[u8],
    ) -> Result<Entry> {
        let kind = attributes.kind();
        if kind == Kind::File && attributes.size.is_none() {
            return Err(
                Error::new(ErrorKind::Unsupported, "look at", self.show(full))
                    .cause("the server does not say how long it is"),
            );
        }
        Ok(Entry {
            name,
            kind,
            size: attributes.size.unwrap_or(0),
            mtime: attributes.file_time(),
            stored: None,
            mode: attributes.mode.map(|mode| mode & 0o7777),
            version: None,
        })
    }

    pub(super) async fn stat(&self, full: &[u8], follow: bool) -> Result<Option<Entry>> {
        let kind = if follow { STAT } else { LSTAT };
        match self.ask(Request::new(kind).string(full)).await? {
            Reply::Attributes(attributes) => self.entry(Vec::new(), &attributes, full).map(Some),
            Reply::Status {
                code: NO_SUCH_FILE, ..
            } => Ok(None),
            reply => Err(self.refusal(&reply, "look at", full)),
        }
    }

    /// Makes a request whose only good answer is "done".
    pub(super) async fn command(
        &self,
        request: Request,
        operation: &'static str,
        full: &[u8],
    ) -> Result<()> {
        match self.ask(request).await? {
            Reply::Status { code: OK, .. } => Ok(()),
            reply => Err(self.refusal(&reply, operation, full).at(Locus::Destination)),
        }
    }

    /// Gives an unfinished copy its final name, replacing what has it.
    pub(super) async fn publish(&self, from: &[u8], to: &[u8], spec: &FileSpec) -> Result<()> {
        let session = self.session().await?;
        let renamed = if session.posix_rename {
            let request = Request::new(EXTENDED).string(b"posix-rename@openssh.com");
            session.ask(request.string(from).string(to)).await
        } else {
            self.replace(&session, from, to).await
        };
        match renamed {
            Ok(Reply::Status { code: OK, .. }) => Ok(()),
            Ok(reply) => {
                let is_gone = matches!(
                    reply,
                    Reply::Status {
                        code: NO_SUCH_FILE,
                        ..
                    }
                );
                match self.stat(to, false).await? {
                    Some(there) if there.kind == Kind::Directory => {
                        Err(Error::new(ErrorKind::Conflict, "write", self.show(to))
                            .cause("a directory has that name")
                            .at(Locus::Destination))
                    }
                    // Who copies the same wrote the same, and was first.
                    Some(there) if is_gone && is_copy(&there, spec) => Ok(()),
                    _ => Err(self.refusal(&reply, "write", to).at(Locus::Destination)),
                }
            }
            // The answer may be lost and not the deed: nobody else knows the name that is gone.
            Err(error) => match (self.stat(from, false).await, self.stat(to, false).await) {
                (Ok(None), Ok(Some(_))) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Renames where the server's own rename never replaces: what has the name is kept until it is replaced.
    async fn replace(&self, session: &Session, from: &[u8], to: &[u8]) -> Result<Reply> {
        let rename = |from: &[u8], to: &[u8]| Request::new(RENAME).string(from).string(to);
        let there = self.stat(to, false).await?;
        if there.is_none_or(|there| there.kind == Kind::Directory) {
            return session.ask(rename(from, to)).await;
        }
        let aside = self.partial(to, &new_word());
        let moved = session.ask(rename(to, &aside)).await?;
        if !matches!(moved, Reply::Status { code: OK, .. }) {
            return Ok(moved);
        }
        let renamed = session.ask(rename(from, to)).await;
        let undo = match renamed {
            Ok(Reply::Status { code: OK, .. }) => Request::new(REMOVE).string(&aside),
            _ => rename(&aside, to),
        };
        let _ = session.ask(undo).await;
        renamed
    }

    /// Gives what lies at `full` its permission bits and its time, as far as the file system there keeps them.
    pub(super) async fn dress(&self, full: &[u8], wanted: Attributes) -> Result<()> {
        let mode = Attributes {
            mtime: None,
            ..wanted
        };
        let time = Attributes {
            mode: None,
            ..wanted
        };
        let (mut modes, mut times) = (wanted.mode.is_some(), wanted.mtime.is_some());
        for attributes in [wanted, mode, time] {
            let request = Request::new(SETSTAT).string(full).attributes(&attributes);
            match self.ask(request).await? {
                Reply::Status { code: OK, .. } if attributes == wanted => return Ok(()),
                reply @ Reply::Status {
                    code: NO_SUCH_FILE, ..
                } => {
                    let error = self.refusal(&reply, "set the attributes of", full);
                    return Err(error.at(Locus::Destination));
                }
                Reply::Status { code: OK, .. } => {
                    modes &= attributes.mode.is_none();
                    times &= attributes.mtime.is_none();
                }
                // What it refuses together it may take alone.
                _ => {}
            }
        }
        let (modes, times) = (modes.into(), times.into());
        *self.unkept.lock().unwrap_or_else(PoisonError::into_inner) += Unkept { modes, times };
        Ok(())
    }

    pub(super) async fn make_directory(&self, full: &[u8]) -> Result<bool> {
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

    /// Where the writer with this word writes what becomes `full`.
    pub(super) fn partial(&self, full: &[u8], word: &str) -> Vec<u8> {
        beside(full, &partial_name(base_name(full), word))
    }

    /// Where what becomes `full` is written in one go.
    pub(super) fn same_partial(&self, full: &[u8], spec: &FileSpec) -> Vec<u8> {
        beside(full, &same_partial_name(base_name(full), spec))
    }

    pub(super) async fn get(self: &Arc<Self>, full: Vec<u8>, listed: &Entry) -> Result<Whole> {
        let file = OpenFile::open_small(Arc::clone(self), full.clone(), OPEN_READ).await?;
        if let Some(whole) = file.read_at_once(listed).await? {
            return Ok(whole);
        }
        self.get_step_by_step(full).await
    }

    /// Reads a file that doesn't look as it was listed, or that the server gives in other pieces.
    async fn get_step_by_step(self: &Arc<Self>, full: Vec<u8>) -> Result<Whole> {
        let file = OpenFile::open_small(Arc::clone(self), full, OPEN_READ).await?;
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
        // It was only read.
        let _ = file.close().await;
        Ok(Whole {
            entry,
            data,
            checksum: summer.sum(),
        })
    }

    pub(super) async fn put(
        self: &Arc<Self>,
        full: Vec<u8>,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let partial = self.same_partial(&full, spec);
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE;
        let file = OpenFile::open_small(Arc::clone(self), partial.clone(), flags)
            .await
            .map_err(|error| error.at(Locus::Destination))?;
        let written = file.write_small(spec, data, sum).await;
        let closed = file.close().await;
        let published = match written.and(closed) {
            Ok(()) => self.publish(&partial, &full, spec).await,
            Err(error) => Err(error),
        };
        if published.is_err() {
            // Of no use: a small file is written anew.
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        }
        published
    }

    /// Lets the server copy `from` to `full`.
    pub(super) async fn copy(
        self: &Arc<Self>,
        from: &[u8],
        full: &[u8],
        spec: &FileSpec,
    ) -> Result<()> {
        if !self.copies {
            return Err(unsupported("copy on the server to", self.show(full)));
        }
        let source = OpenFile::open(Arc::clone(self), from.to_vec(), OPEN_READ).await?;
        let partial = self.same_partial(full, spec);
        let flags = OPEN_READ | OPEN_WRITE | OPEN_CREATE;
        let copied = async {
            let file = OpenFile::open(Arc::clone(self), partial.clone(), flags).await;
            let file = file.map_err(|error| error.at(Locus::Destination))?;
            let copied = source.copy_to(&file, spec).await;
            let closed = file.close().await;
            copied?;
            closed?;
            self.publish(&partial, full, spec).await
        };
        let copied = copied.await;
        let _ = source.close().await;
        if copied.is_err() {
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        }
        copied
    }
}

/// Whether what is there looks like a copy of what `spec` says.
fn is_copy(there: &Entry, spec: &FileSpec) -> bool {
    let kept = super::attributes_of(None, spec.mtime).file_time();
    there.kind == Kind::File && there.size == spec.size && (kept.is_none() || there.mtime == kept)
}

pub(super) struct SftpListing {
    pub(super) remote: Arc<Remote>,
    pub(super) session: Arc<Session>,
    pub(super) full: Vec<u8>,
    pub(super) handle: Option<Bytes>,
    pub(super) follow: bool,
}

impl SftpListing {
    /// What has this name: of links that are followed what they point to, and what a listing leaves out is asked for.
    async fn entry(&self, name: Vec<u8>, attributes: &Attributes) -> Result<Entry> {
        let full = join(&self.full, &name);
        let is_vague = attributes.kind() == Kind::File && attributes.size.is_none();
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
                    break;
                }
                reply => return Err(self.remote.refusal(&reply, "list", &self.full)),
            };
            let mut page = Vec::with_capacity(names.len());
            for (name, attributes) in names {
                if matches!(&*name, b"." | b"..") {
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

impl Listing for SftpListing {
    fn next_page(&mut self) -> Boxed<'_, Result<Vec<Entry>>> {
        Box::pin(self.read_page())
    }
}
