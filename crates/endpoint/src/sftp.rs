//! Files on hosts that run OpenSSH's server, or another that speaks SFTP version 3.
//!
//! Large files are written to a hidden name beside the final one, many requests at a time, read
//! back and hashed, and renamed into place. This machine notes which segments are stored.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "any answer but the one hoped for is a refusal"
)]

mod attributes;
mod clock;
mod file;
mod filling;
mod listing;
mod pool;
mod publish;
mod reader;
mod reading;
mod remote;
mod session;
mod unfinished;
mod wire;
mod writer;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    Capabilities, Checksum, Error, ErrorKind, Locus, Result,
    endpoint::{
        Boxed, ByteStream, Endpoint, Entry, FileSpec, Kind, LentSegment, Listing, Reader, Whole,
        Writer,
    },
    objects::Circle,
    posix::DraftRules,
    ssh,
    trial::SECOND_NS,
    unkept::{Unkept, UnkeptCount},
};
use listing::SftpListing;
use pool::Pool;
use reader::SftpReader;
use remote::Remote;
use session::Session;
use wire::{OPENDIR, READLINK, REMOVE, Reply, Request};
use writer::SftpWriter;

/// Largest file that is written whole.
const SMALL_BYTES_MAX: u64 = 8 << 20;

/// Most files in flight: each uses a handle on one of few connections, and servers have a thousand
/// there.
const FILES_AT_ONCE_MAX: u16 = 128;

/// Most directories made above a missing one: no path is deeper (`PATH_MAX` / 2).
const PARENTS_MAX: usize = 2048;

/// Status codes of a server (draft-ietf-secsh-filexfer-02, section 7).
const OK: u32 = 0;
const END: u32 = 1;
const NO_SUCH_FILE: u32 = 2;
const PERMISSION_DENIED: u32 = 3;
const FAILURE: u32 = 4;
const BAD_MESSAGE: u32 = 5;
const UNSUPPORTED: u32 = 8;

/// Host to log in to, and the means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The user, if not `ssh`'s default.
    pub user: Option<String>,
    /// Host, or its alias in `ssh_config`.
    pub host: String,
    /// The port, if not `ssh`'s default.
    pub port: Option<u16>,
    /// Options as in `ssh_config`, `Name=value`.
    pub options: Vec<String>,
}

impl Host {
    /// Returns `sftp://user@host:port`.
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

impl Sftp {
    /// Connects to `host` and opens `root` there, absolute or relative to the login directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], [`ErrorKind::Unreachable`], [`ErrorKind::TimedOut`].
    pub async fn open(host: Host, root: Vec<u8>, rules: DraftRules) -> Result<Self> {
        let ciphers = ssh::ciphers(&host).await;
        let session = Session::connect(&host, ciphers.as_deref()).await?;
        let (round_trip, copies) = (session.round_trip, session.copy_data);
        let pool = Pool::new(host.clone(), ciphers, session);
        Ok(Self {
            remote: Arc::new(Remote {
                host,
                root,
                rules,
                pool,
                round_trip,
                copies,
                unkept: UnkeptCount::default(),
                clocks: clock::Clocks::default(),
            }),
        })
    }
}

fn parent_of(full: &[u8]) -> &[u8] {
    match full.iter().rposition(|&byte| byte == b'/') {
        Some(0) => b"/",
        Some(cut) => &full[..cut],
        None => b".",
    }
}

/// Capabilities of SFTP.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    byte_names: true,
    lists: true,
    ranges: true,
    writes: true,
    removes: true,
    segments_in_any_order: true,
    resumes: true,
    open_ended: true,
    mtime_step_ns: Some(SECOND_NS),
    mtime_secs: [0, i32::MAX as i64],
    mtimes_listed: true,
    modes: true,
    links: true,
    directory_attributes: true,
    server_copy: true,
    segment_size_min: SMALL_BYTES_MAX,
    files_at_once_max: FILES_AT_ONCE_MAX,
    requests_ahead_max: 8,
    segments_held: false,
    ..Capabilities::least("sftp")
};

impl Endpoint for Sftp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            server_copy: self.remote.copies,
            mtime_secs: attributes::mtime_secs(),
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.remote.show(&self.remote.path(path))
    }

    fn unkept(&self) -> Unkept {
        self.remote.unkept.get()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.remote.round_trip
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
                circle: Circle::default(),
            });
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(self.remote.get(self.remote.path(path), entry))
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
            let size = Some(spec.size);
            let writer = SftpWriter::start(Arc::clone(&self.remote), full, spec, size).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let (full, spec) = (self.remote.path(path), spec.open_ended());
            let writer = SftpWriter::start(Arc::clone(&self.remote), full, &spec, None).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn write_lent<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        segment: &'a LentSegment,
        body: ByteStream,
    ) -> Boxed<'a, Result<(Checksum, String)>> {
        let full = self.remote.path(path);
        Box::pin(async move { writer::write_lent(&self.remote, &full, spec, segment, body).await })
    }

    fn adopt<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        let full = self.remote.path(path);
        Box::pin(async move { writer::adopt(&self.remote, &full, spec, note) })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let full = self.remote.path(path);
            match self.remote.ask(Request::new(REMOVE).string(&full)).await? {
                Reply::Status {
                    code: OK | NO_SUCH_FILE,
                    ..
                } => Ok(()),
                reply => {
                    let error = self.remote.refusal(&reply, "remove", &full);
                    Err(error.at(Locus::Destination))
                }
            }
        })
    }

    fn realm(&self) -> Option<String> {
        let Remote { host, copies, .. } = &*self.remote;
        copies.then(|| format!("{} {}", host.show(), host.options.join(" ")))
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        self.remote.path(path)
    }

    fn system(&self) -> Option<String> {
        Some(self.remote.host.show())
    }

    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        let full = self.remote.path(path);
        Box::pin(async move { self.remote.real_path(&full).await })
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        let full = self.remote.path(path);
        Box::pin(async move { self.remote.time_step_ns(&full).await })
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { self.remote.copy(from, &self.remote.path(path), spec).await })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        let full = self.remote.path(path);
        Box::pin(async move { self.remote.make_link(&full, target, spec).await })
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

    fn keep_private<'a>(&'a self, path: &'a [u8], mode: u32) -> Boxed<'a, ()> {
        Box::pin(self.remote.hide_directory(self.remote.path(path), mode))
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(self.remote.dress_directory(self.remote.path(path), entry))
    }
}

/// Parses a packet, for [`crate::fuzzing`].
pub(crate) fn try_reply(data: &[u8]) {
    let len = data.len();
    if let Some((_, Reply::Names(names))) = wire::read_reply(Bytes::copy_from_slice(data)) {
        let told: usize = names.iter().map(|(name, _)| name.len()).sum();
        assert!(told + names.len() <= len, "more was read than was there");
    }
}
