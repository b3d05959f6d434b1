//! FTP servers: `ftp://`, and `ftps://` with TLS.
//!
//! The client is our own, since no existing one keeps several sessions, reads ranges and reports
//! which of the server's answers are worth a retry; little of the protocol is needed. Names and
//! attributes come from MLST and MLSD (RFC 3659): a server without them is refused, because the
//! output of LIST can't be read for sure. Data connections are passive. A large file is written to
//! a hidden name one segment after the other (REST and STOR), so that a killed copy goes on. Then
//! it gets its time (MFMT), its mode (SITE CHMOD) and its name. A note on this machine lists the
//! segments that are there.

mod facts;
mod host;
mod listing;
mod pool;
mod remote;
mod reply;
mod session;
mod transfer;
mod writer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use rustls::version::TLS12;
use tokio::sync::OnceCell;

use crate::{
    Capabilities, Checksum, Error, ErrorKind, Locus, Protocol, Result, Server, Summer,
    access::Chosen,
    config::{self, Login, Secret, TlsChoice},
    endpoint::{
        Boxed, Endpoint, Entry, FileSpec, Listing, Reader, Whole, Writer, new_word, no_links,
        unsupported,
    },
    outgoing::Outgoing,
    posix::DraftRules,
    reach::Reach,
    trial,
    unkept::{Unkept, UnkeptCount},
    web::tls,
};
use host::{Host, Security, Ways};
use listing::FtpListing;
use pool::{Pool, SESSIONS_USUAL};
use remote::{Remote, parent_of, root_of};
use session::Session;
pub(crate) use session::try_lines;
use transfer::{FtpReader, is_same};
use writer::FtpWriter;

/// Largest file that is written whole.
const SMALL_BYTES_MAX: u64 = 8 << 20;

/// Port of `ftp://`, and of `ftps://` with AUTH TLS.
const PORT: u16 = 21;

/// Port of `ftps://` that is protected from the first byte.
const IMPLICIT_PORT: u16 = 990;

/// Files below a root on an FTP server.
pub struct Ftp {
    remote: Arc<Remote>,
    /// Step of the server's clock, once learnt.
    step_ns: OnceCell<Option<u32>>,
}

impl Ftp {
    /// Logs in at `server` with the credentials of the chosen profile, of `~/.netrc`, or as
    /// `anonymous`.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`], [`ErrorKind::Unreachable`], [`ErrorKind::Busy`];
    /// [`ErrorKind::Unsupported`] for servers without MLSD; [`ErrorKind::Invalid`] for unusable
    /// credentials or certificates.
    pub(crate) async fn open_chosen(
        server: &Server,
        rules: DraftRules,
        chosen: Option<&Chosen>,
        reach: Reach,
    ) -> Result<Self> {
        let host = Arc::new(Host {
            reach,
            ..host_of(server, chosen)?
        });
        let session = Session::open(Arc::clone(&host)).await?;
        let (features, round_trip) = (session.features, session.round_trip);
        if !features.facts {
            return Err(Error::new(ErrorKind::Unsupported, "use", host.show())
                .cause("the server has no MLSD (RFC 3659), and what its LIST prints can't be read for sure")
                .hint("ask for a newer server, or use sftp:// or webdavs:// if it has them"));
        }
        let profile = chosen.and_then(|chosen| chosen.ours.as_ref());
        let sessions_max = profile.and_then(|profile| profile.connections_max);
        let sessions_max = sessions_max.map_or(SESSIONS_USUAL, |max| max.get() as usize);
        Ok(Self {
            remote: Arc::new(Remote {
                pool: Pool::new(Arc::clone(&host), session, sessions_max),
                host,
                root: root_of(&server.path),
                rules,
                features,
                round_trip,
                reads_ranges: AtomicBool::new(features.range),
                sets_modes: AtomicBool::new(features.modes),
                sets_times: AtomicBool::new(features.set_time),
                has_set_times: AtomicBool::new(false),
                dresses_folders: AtomicBool::new(true),
                is_restart_proven: AtomicBool::new(false),
                unkept: UnkeptCount::default(),
            }),
            step_ns: OnceCell::new(),
        })
    }
}

/// Returns the host to log in to, its protection, and the user.
fn host_of(server: &Server, chosen: Option<&Chosen>) -> Result<Host> {
    let profile = chosen.and_then(|chosen| chosen.ours.as_ref());
    let is_ftps = server.protocol == Protocol::Ftps;
    let security = match profile.and_then(|profile| profile.tls) {
        Some(TlsChoice::Explicit) => Security::Explicit,
        Some(TlsChoice::Implicit) => Security::Implicit,
        None if !is_ftps => Security::Plain,
        None if server.port.is_none_or(|port| port == IMPLICIT_PORT) => Security::Implicit,
        None => Security::Explicit,
    };
    let usual = match security {
        Security::Implicit => IMPLICIT_PORT,
        Security::Plain | Security::Explicit => PORT,
    };
    let config = match security {
        Security::Plain => None,
        Security::Explicit | Security::Implicit => {
            let ca_file = profile.and_then(|profile| profile.ca_file.as_deref());
            Some(Arc::new(tls::client_config_of(&[&TLS12], ca_file)?))
        }
    };
    let login = config::login_for(&server.host, server.user.as_deref(), chosen)?;
    let (user, password) = match login {
        Some(Login::Password { user, password }) => (user, password),
        Some(Login::Token(_)) => {
            let error = Error::new(ErrorKind::Invalid, "log in at", &*server.host);
            return Err(error
                .cause("FTP has no tokens")
                .hint("give the profile user and password"));
        }
        None => match &server.user {
            Some(user) if user != "anonymous" => {
                let error = Error::new(ErrorKind::Unauthenticated, "log in at", &*server.host);
                return Err(error
                    .cause(format!("no password for {user}"))
                    .hint("put it into a profile or ~/.netrc"));
            }
            // The password of an anonymous user doesn't matter (RFC 1635).
            Some(_) | None => ("anonymous".to_owned(), Secret::new("anonymous@")),
        },
    };
    Ok(Host {
        scheme: server.protocol.scheme(),
        name: server.host.clone(),
        port: server.port.unwrap_or(usual),
        shows_port: server.port.is_some(),
        security,
        tls: config,
        user,
        password,
        ways: Ways::default(),
        reach: Reach::default(),
    })
}

impl Remote {
    async fn get(self: &Arc<Self>, full: Vec<u8>, listed: &Entry) -> Result<Whole> {
        match self.read_whole(&full, listed).await {
            Ok(found) if is_same(&found.entry, listed) => return Ok(found),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Changed => {}
            Err(error) => return Err(error),
        }
        // The file changed since it was listed: now, or before it was read.
        let before = self.stat(&full).await?.ok_or_else(|| self.missing(&full))?;
        let found = self.read_whole(&full, &before).await?;
        if is_same(&found.entry, &before) {
            return Ok(found);
        }
        let error = Error::new(ErrorKind::Changed, "read", self.show_full(&full));
        Err(error
            .cause("it changed while it was read")
            .at(Locus::Source))
    }

    /// Reads as many bytes as were reported, then looks again.
    async fn read_whole(self: &Arc<Self>, full: &[u8], told: &Entry) -> Result<Whole> {
        let (mut data, mut summer) = (Vec::new(), Summer::default());
        // Read a file that is reported as empty too: its content decides.
        let whole = 0..told.size;
        let mut download = self.download(full.to_vec(), whole, told.size).await?;
        download.look();
        while let Some(bytes) = download.next().await? {
            summer.add(&bytes);
            data.push(bytes);
        }
        let looked = download.looked();
        let entry = match looked.map(|reply| self.found(&reply, full)).transpose()? {
            Some(Some(told)) if told.has_size => Some(told.entry),
            Some(Some(_)) | None => self.stat(full).await?,
            Some(None) => None,
        };
        let entry = entry.ok_or_else(|| self.missing(full))?;
        Ok(Whole {
            entry,
            data,
            checksum: summer.sum(),
        })
    }

    fn missing(&self, full: &[u8]) -> Error {
        Error::new(ErrorKind::NotFound, "read", self.show_full(full)).at(Locus::Source)
    }

    async fn put(
        self: &Arc<Self>,
        full: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let partial = self.partial(full, &new_word());
        let stored = self.store(&partial, full, spec, data, sum).await;
        if stored.is_err() {
            // The copy is useless: a small file is written anew.
            let _ = self.ask("DELE", &partial).await;
        }
        stored
    }

    async fn store(
        self: &Arc<Self>,
        partial: &[u8],
        full: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let body = Outgoing::current().counted(data);
        self.write(partial, 0, body).await?;
        if self.rules.verify {
            let found = self.stat(partial).await?;
            let found = found.map_or(0, |found| found.size);
            self.expect_size(full, found, spec.size)?;
            if self.sum_of(partial, 0..found, found).await? != sum {
                let error = Error::new(ErrorKind::Corrupt, "write", self.show_full(full));
                return Err(error
                    .cause("what was written reads back differently")
                    .at(Locus::Destination));
            }
        }
        self.publish(partial, full, spec).await
    }
}

/// Capabilities at servers that know REST, MFMT and UNIX.mode.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    lists: true,
    ranges: true,
    writes: true,
    removes: true,
    resumes: true,
    mtime_step_ns: Some(1_000_000_000),
    mtime_secs: [0, i64::MAX],
    mtimes_listed: true,
    modes: true,
    directory_attributes: true,
    segment_size_min: SMALL_BYTES_MAX,
    // Further sessions: few lanes have work for each.
    requests_ahead_max: 4,
    segments_held: false,
    ..Capabilities::least("ftp")
};

impl Endpoint for Ftp {
    fn capabilities(&self) -> Capabilities {
        let features = self.remote.features;
        let is_none = self.step_ns.get().is_some_and(Option::is_none);
        let times = self.remote.sets_times.load(Relaxed) && !is_none;
        let modes = self.remote.sets_modes.load(Relaxed);
        Capabilities {
            ranges: features.restart,
            resumes: features.restart,
            mtime_step_ns: CAPABILITIES.mtime_step_ns.filter(|_| times),
            modes,
            directory_attributes: modes || times && self.remote.dresses_folders.load(Relaxed),
            ..CAPABILITIES
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.remote.show(path)
    }

    fn unkept(&self) -> Unkept {
        self.remote.unkept.get()
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async move {
            if !self.remote.sets_times.load(Relaxed) {
                return Ok(None);
            }
            // Beside the address's own file nothing can be tried.
            if path.is_empty() {
                return Ok(CAPABILITIES.mtime_step_ns);
            }
            let learning = || trial::time_step_ns(self, path, &self.remote.unkept);
            self.step_ns.get_or_try_init(learning).await.copied()
        })
    }

    fn round_trip(&self) -> Option<Duration> {
        Some(self.remote.round_trip)
    }

    fn system(&self) -> Option<String> {
        Some(self.remote.host.show())
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        [&self.remote.root, slash, path].concat()
    }

    fn stat<'a>(&'a self, path: &'a [u8], _follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(async { self.remote.stat(&self.remote.full(path)?).await })
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let full = self.remote.full(path)?;
            let listing = FtpListing::start(Arc::clone(&self.remote), full, follow).await?;
            let listing: Box<dyn Listing> = Box::new(listing);
            Ok(listing)
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async { self.remote.get(self.remote.full(path)?, entry).await })
    }

    fn open<'a>(&'a self, path: &'a [u8], _entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let full = self.remote.full(path)?;
            let found = self.remote.stat(&full).await?;
            let entry = found.ok_or_else(|| self.remote.missing(&full))?;
            let reader: Arc<dyn Reader> = Arc::new(FtpReader {
                remote: Arc::clone(&self.remote),
                full,
                entry,
            });
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async { Err(unsupported("read the link", self.show(path))) })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let full = self.remote.full(path)?;
            self.remote.put(&full, spec, data, sum).await
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let full = self.remote.full(path)?;
            let remote = Arc::clone(&self.remote);
            let writer = FtpWriter::start(remote, full, spec).await?;
            let writer: Arc<dyn Writer> = Arc::new(writer);
            Ok(writer)
        })
    }

    fn adopt<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move { writer::adopt(&self.remote, &self.remote.full(path)?, spec, note) })
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        _target: &'a [u8],
        _spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async { Err(no_links(self.show(path))) })
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let full = self.remote.full(b"")?;
            match parent_of(&full) {
                b"." | b"/" => Ok(()),
                parent => self.remote.make_directory(parent).await.map(|_| ()),
            }
        })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async { self.remote.make_directory(&self.remote.full(path)?).await })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        _empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let full = self.remote.full(path)?;
            let (mode, mtime) = (entry.mode, entry.mtime);
            self.remote.dress_folder(&full, mode, mtime).await
        })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async { self.remote.remove(&self.remote.full(path)?).await })
    }
}
