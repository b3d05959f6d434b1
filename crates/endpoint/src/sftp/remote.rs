//! Requests to a host, over a connection that is reopened when it breaks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    BAD_MESSAGE, FAILURE, Host, NO_SUCH_FILE, OK, PARENTS_MAX, PERMISSION_DENIED, UNSUPPORTED,
    clock::Clocks,
    file::{FilePath, OpenFile},
    parent_of,
    pool::Pool,
    session::Session,
    unfinished::Unfinished,
    wire::{
        Attributes, CLOSE, EXTENDED, LSTAT, MKDIR, OPEN, OPEN_CREATE, OPEN_NEW, OPEN_READ,
        OPEN_WRITE, REALPATH, REMOVE, Reply, Request, STAT, SYMLINK, WRITE,
    },
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result,
    endpoint::{
        Entry, FileSpec, Kind, Whole, base_name, beside, join, partial_name, same_partial_name,
        unsupported,
    },
    error::server_says,
    posix::{self, DraftRules},
    unfinished::trial_name,
    unkept::UnkeptCount,
};

/// State that open files share, to reach a living connection.
pub(super) struct Remote {
    pub(super) host: Host,
    pub(super) root: Vec<u8>,
    pub(super) rules: DraftRules,
    pub(super) pool: Arc<Pool>,
    /// Round-trip time, from the first answer.
    pub(super) round_trip: Option<Duration>,
    /// True if the server copies among its own files.
    pub(super) copies: bool,
    /// Counts of what files arrived without.
    pub(super) unkept: UnkeptCount,
    /// Learnt clocks of the host's file systems.
    pub(super) clocks: Clocks,
}

impl Remote {
    pub(super) fn path(&self, path: &[u8]) -> Vec<u8> {
        match (&*self.root, path) {
            (b"", b"") => b".".to_vec(),
            (root, path) => below_of(root, path),
        }
    }

    pub(super) fn show(&self, full: &[u8]) -> String {
        let path = String::from_utf8_lossy(full);
        let slash = if path.starts_with('/') { "" } else { "/~/" };
        format!("{}{slash}{path}", self.host.show())
    }

    /// Returns the connection for everything but streams.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        self.pool.session(0).await
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Reply> {
        self.session().await?.ask(request).await
    }

    /// Returns the error of an unexpected reply.
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
            Reply::Status { code, message } if matches!(*code, FAILURE | BAD_MESSAGE) => {
                let error = fail(ErrorKind::Other).cause(server_says(message));
                // OpenSSH reports EINVAL, ENAMETOOLONG and everything without a code of its own
                // like this.
                error.hint(match *code {
                    BAD_MESSAGE => "the file system there may not take such a name: rename it",
                    _ => "it says no more: look at the quota, the disk and the log there",
                })
            }
            Reply::Status { message, .. } => fail(ErrorKind::Other).cause(server_says(message)),
            Reply::Handle(_)
            | Reply::Data(_)
            | Reply::Names(_)
            | Reply::Attributes(_)
            | Reply::Extended(_) => fail(ErrorKind::Other).cause("an answer to something else"),
        }
    }

    /// Returns the error of a refused write, as [`Remote::refusal`] does. A bare failure may mean a
    /// full disk.
    pub(super) async fn write_refusal(&self, reply: &Reply, full: &[u8]) -> Error {
        let error = self.refusal(reply, "write", full).at(Locus::Destination);
        if !matches!(reply, Reply::Status { code: FAILURE, .. }) {
            return error;
        }
        let (cause, hint) = if self.is_full(full).await {
            (
                "no space left there",
                "free space there, then run the same command to continue",
            )
        } else if self.takes_nothing(full).await {
            (
                "the server takes no bytes there: a quota may be used up, or the disk fails",
                "look at the quota there, then run the same command to continue",
            )
        } else {
            return error;
        };
        let error = Error::new(ErrorKind::Full, "write", self.show(full));
        error.cause(cause).hint(hint).at(Locus::Destination)
    }

    /// Returns whether a small file beside `full` can't be written either: for an exceeded quota,
    /// servers report a bare failure.
    async fn takes_nothing(&self, full: &[u8]) -> bool {
        const BLOCK: Bytes = Bytes::from_static(&[1; 4096]);
        let path = beside(full, &trial_name(b"room"));
        let open = Request::new(OPEN)
            .string(&path)
            .u32(OPEN_WRITE | OPEN_CREATE | OPEN_NEW)
            .attributes(&Attributes::default());
        let has_failed =
            |reply: &Result<Reply>| matches!(reply, Ok(Reply::Status { code: FAILURE, .. }));
        let handle = match self.ask(open).await {
            Ok(Reply::Handle(handle)) => handle,
            other => return has_failed(&other),
        };
        let write = Request::new(WRITE).string(&handle).u64(0);
        let written = self.ask(write.payload(vec![BLOCK])).await;
        let closed = self.ask(Request::new(CLOSE).string(&handle)).await;
        // The file is hidden, and its name says whose it is.
        let _ = self.ask(Request::new(REMOVE).string(&path)).await;
        has_failed(&written) || has_failed(&closed)
    }

    pub(super) async fn is_full(&self, full: &[u8]) -> bool {
        /// Free space below which a failed write is explained, in bytes.
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
                let is_without = |figures: &mut Bytes| {
                    let (files, _, left) =
                        (figures.get_u64(), figures.get_u64(), figures.get_u64());
                    files > 0 && left == 0
                };
                available.saturating_mul(fragment) < FREE_BYTES_MIN
                    || figures.len() >= 24 && is_without(&mut figures)
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Returns the entry of a file, as the server reports it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a file whose size it does not report.
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

    /// Fails if the path holds an entry that a file must not replace: a device, a pipe or a socket.
    pub(super) async fn refuse_special(&self, full: &[u8]) -> Result<()> {
        // The target of /dev/stdout is meant, not the link.
        let there = self.stat(full, true).await;
        let there = there.map_err(|error| error.at(Locus::Destination))?;
        match there {
            Some(there) if there.kind == Kind::Special => {
                Err(posix::special_there("write", self.show(full)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Resolves a path, whose last name need not exist yet.
    pub(super) async fn real_path(&self, full: &[u8]) -> Result<Vec<u8>> {
        let (mut there, mut missing) = (full, Vec::<&[u8]>::new());
        loop {
            let request = Request::new(REALPATH).string(there);
            if let Reply::Names(names) = self.ask(request).await?
                && let [(found, _)] = &names[..]
            {
                let below = missing.iter().rev();
                return Ok(below.fold(found.to_vec(), |path, name| below_of(&path, name)));
            }
            let above = parent_of(there);
            if matches!(there, b"." | b"/") || above == there {
                return Ok(full.to_vec());
            }
            missing.push(base_name(there));
            there = above;
        }
    }

    /// Makes a symbolic link, replacing an existing one.
    pub(super) async fn make_link(
        &self,
        full: &[u8],
        target: &[u8],
        spec: &FileSpec,
    ) -> Result<()> {
        let partial = self.same_partial(full, spec);
        let removing = self.ask(Request::new(REMOVE).string(&partial));
        let (clear, removed) = tokio::join!(self.refuse_special(full), removing);
        clear?;
        removed?;
        // OpenSSH expects the target first, against the draft (PROTOCOL, section 4.1).
        let request = Request::new(SYMLINK).string(target).string(&partial);
        match self.ask(request).await? {
            Reply::Status { code: OK, .. } => {}
            reply @ Reply::Status {
                code: NO_SUCH_FILE, ..
            } => {
                let error = self.refusal(&reply, "make link", full);
                return Err(error.at(Locus::Destination));
            }
            // Servers report a file system without links in many ways.
            reply => {
                let refused = self.write_refusal(&reply, full).await;
                if refused.kind() == ErrorKind::Full {
                    return Err(refused);
                }
                let error = Error::new(ErrorKind::Unsupported, "make link", self.show(full));
                return Err(error
                    .cause(refused.cause_text())
                    .hint("--links follow copies what links point to")
                    .at(Locus::Destination));
            }
        }
        self.dress_link(&partial, spec).await?;
        let published = self.publish(&partial, full, spec, None).await;
        if published.is_err() {
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        }
        published
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

    /// Returns the path at which the writer with this word writes the future `full`.
    pub(super) fn partial(&self, full: &[u8], word: &str) -> Vec<u8> {
        beside(full, &partial_name(base_name(full), word))
    }

    /// Returns the path at which the future `full` is written in one go.
    pub(super) fn same_partial(&self, full: &[u8], spec: &FileSpec) -> Vec<u8> {
        beside(full, &same_partial_name(base_name(full), spec))
    }

    pub(super) async fn get(self: &Arc<Self>, full: Vec<u8>, listed: &Entry) -> Result<Whole> {
        let open = || OpenFile::open_small(Arc::clone(self), FilePath::of(full.clone()), OPEN_READ);
        if let Some(whole) = open().await?.read_at_once(listed).await? {
            return Ok(whole);
        }
        let file = open().await?;
        let whole = file.read_whole().await;
        // The file was only read.
        let _ = file.close().await;
        whole
    }

    pub(super) async fn put(
        self: &Arc<Self>,
        full: Vec<u8>,
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let opening = self.open_unfinished(&full, spec, OpenFile::open_small);
        let (clear, opened) = tokio::join!(self.refuse_special(&full), opening);
        let Unfinished {
            file,
            partial,
            beside,
        } = opened?;
        let written = match clear {
            Ok(()) => file.write_small(spec, data, sum).await,
            Err(error) => Err(error),
        };
        let written = match written {
            Ok(()) => file.flush().await,
            Err(error) => Err(error),
        };
        let closed = file.close().await;
        let published = match written.and(closed) {
            Ok(()) => self.publish(&partial, &full, spec, Some(spec.size)).await,
            Err(error) => Err(error),
        };
        if published.is_err() {
            // The copy is useless: a small file is written anew.
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        } else {
            self.clear(beside).await;
        }
        published
    }

    /// Makes the server copy `from` to `full`.
    pub(super) async fn copy(
        self: &Arc<Self>,
        from: &[u8],
        full: &[u8],
        spec: &FileSpec,
    ) -> Result<()> {
        if !self.copies {
            return Err(unsupported("copy on the server to", self.show(full)));
        }
        self.refuse_special(full).await?;
        let path = FilePath::of(from.to_vec());
        let source = OpenFile::open(Arc::clone(self), path, OPEN_READ).await?;
        let opened = self.open_unfinished(full, spec, OpenFile::open).await;
        let Unfinished {
            file,
            partial,
            beside,
        } = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let _ = source.close().await;
                return Err(error);
            }
        };
        let copied = async {
            let copied = source.copy_to(&file, spec).await;
            let copied = match copied {
                Ok(()) => file.flush().await,
                Err(error) => Err(error),
            };
            let closed = file.close().await;
            copied?;
            closed?;
            self.publish(&partial, full, spec, Some(spec.size)).await
        };
        let copied = copied.await;
        let _ = source.close().await;
        if copied.is_err() {
            let _ = self.ask(Request::new(REMOVE).string(&partial)).await;
        } else {
            self.clear(beside).await;
        }
        copied
    }
}

/// Returns a path below a directory, which may be the server's root.
fn below_of(directory: &[u8], path: &[u8]) -> Vec<u8> {
    match directory {
        b"/" if !path.is_empty() => [b"/", path].concat(),
        _ => join(directory, path),
    }
}
