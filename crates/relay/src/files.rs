//! Serves files to another posthaste: the other end of `posthaste_endpoint::peer`.
//!
//! The server runs in a relay, which lends one folder within its capacity. It also runs in the
//! process that `posthaste cp` starts over SSH, which serves what its user may reach.

mod bundle;
mod drafts;
mod ground;
mod inflow;
mod listing;
mod outflow;
mod reading;
mod space;
mod taking;

use std::{future::Future, sync::Arc};

use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use posthaste_endpoint::{
    Checksum, ErrorKind, Result, is_unfinished,
    peer::wire::{
        self, Create, DIRECTORIES_MAX, Done, Fetch, Finish, FinishOpen, Hello, Looked,
        MakeDirectories, MakeLink, Name, Named, Operation, Outcomes, Refusal, SealDirectories,
        Stat, Welcome,
    },
    posix,
    relay::{Scope, wire::status_of},
};
use posthaste_types::Record;
use tokio::{sync::Semaphore, task::spawn_blocking};

use crate::rate::RateLimit;
use drafts::Drafts;
pub(crate) use ground::Ground;
use inflow::Inflow;
pub(crate) use outflow::Body;
use outflow::Noted;
pub(crate) use space::{Space, beyond_disk, disk_free};

/// Bytes of all clients' bundles in memory at once, in MiB; more wait.
const BUNDLES_MIB_MAX: usize = 64;

/// Maximum of entries of a directory searched for unfinished files when a client asks about a
/// single file.
const SIBLINGS_MAX: usize = 4096;

/// State needed to answer.
pub(crate) struct Files {
    ground: Arc<Ground>,
    drafts: Drafts,
    space: Space,
    secret: [u8; 32],
    rate: Option<Arc<RateLimit>>,
    /// Everything is flushed, whether asked for or not.
    flush: bool,
    bundles: Semaphore,
    clocks: posix::Clocks,
}

impl Files {
    pub(crate) fn new(
        ground: Ground,
        space: Space,
        secret: [u8; 32],
        rate: Option<Arc<RateLimit>>,
        flush: bool,
    ) -> Arc<Self> {
        let ground = Arc::new(ground);
        Arc::new(Self {
            drafts: Drafts::new(Arc::clone(&ground), space.clone()),
            ground,
            space,
            secret,
            rate,
            flush,
            bundles: Semaphore::new(BUNDLES_MIB_MAX),
            clocks: posix::Clocks::default(),
        })
    }

    /// Answers one request. No input makes it fail.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let mut inflow = Inflow::new(body, self.rate.clone());
        let noted = Noted::new(&head.headers);
        let refused = match self.admit(&head.method, head.uri.path(), &head.headers) {
            Ok(operation) => return self.serve(operation, inflow, noted).await,
            Err(refused) => refused,
        };
        let is_ended = inflow.discard().await;
        let status = StatusCode::from_u16(status_of(wire::number_kind(refused.kind)));
        let mut response = outflow::refuse(status.unwrap_or(StatusCode::BAD_REQUEST), refused);
        if !is_ended {
            let close = http::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        response
    }

    /// Returns the requested operation if the caller has the right to it.
    fn admit(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Operation, Refusal> {
        let Some(operation) = Operation::parse(path) else {
            return Err(Refusal::new(ErrorKind::NotFound, "no such path"));
        };
        if method != Method::POST {
            return Err(Refusal::new(ErrorKind::Unsupported, "no such method here"));
        }
        let scope = if operation.writes() {
            Scope::FilesWrite
        } else {
            Scope::FilesRead
        };
        let allowed = crate::rights::authorize(&self.secret, headers, scope, None);
        allowed.map_err(|refusal| {
            let told = Refusal::new(refusal.kind, refusal.message);
            match refusal.hint {
                Some(hint) => told.hint(hint),
                None => told,
            }
        })?;
        Ok(operation)
    }

    async fn serve(
        self: Arc<Self>,
        operation: Operation,
        inflow: Inflow,
        noted: Noted,
    ) -> Response<Body> {
        match operation {
            Operation::Hello => self.hello(inflow).await,
            Operation::Stat => self.short(inflow, noted, Self::stat).await,
            Operation::List => self.long(inflow, listing::list).await,
            Operation::Read => self.long(inflow, reading::read).await,
            Operation::Fetch => {
                self.long(inflow, |ground, message: &Fetch, outlet| {
                    bundle::fetch(ground, &message.paths, outlet)
                })
                .await
            }
            Operation::Store => self.taking(inflow, noted, Self::store).await,
            Operation::Write => {
                let write = |files: Arc<Self>, inflow, _| files.write(inflow);
                self.taking(inflow, noted, write).await
            }
            Operation::WriteOpen => {
                let write = |files: Arc<Self>, inflow, _| files.write_open(inflow);
                self.taking(inflow, noted, write).await
            }
            Operation::Create => self.short(inflow, noted, Self::create).await,
            Operation::Finish => self.short(inflow, noted, Self::finish).await,
            Operation::FinishAhead => self.finish_ahead(inflow, noted).await,
            Operation::FinishOpen => self.short(inflow, noted, Self::finish_open).await,
            Operation::Discard => self.short(inflow, noted, Self::discard).await,
            Operation::MakeLink => self.short(inflow, noted, Self::make_link).await,
            Operation::ReadLink => self.short(inflow, noted, Self::read_link).await,
            Operation::MakeDirectories => self.short(inflow, noted, Self::make_directories).await,
            Operation::SealDirectories => self.short(inflow, noted, Self::seal_directories).await,
            Operation::Remove => self.short(inflow, noted, Self::remove).await,
            Operation::RealPath => self.short(inflow, noted, Self::real_path).await,
            Operation::TimeStep => self.short(inflow, noted, Self::time_step).await,
        }
    }

    /// Answers a message with the result of blocking work.
    async fn short<M: Record + Send + 'static, A: Record + Send + 'static>(
        self: Arc<Self>,
        mut inflow: Inflow,
        noted: Noted,
        work: impl FnOnce(&Self, &M, &Noted) -> Result<A> + Send + 'static,
    ) -> Response<Body> {
        outflow::when_done(noted.clone(), async move {
            let message: M = inflow.message().await?;
            inflow.end().await?;
            blocking(move || work(&self, &message, &noted).map_err(|error| Refusal::of(&error)))
                .await
        })
        .await
    }

    /// Answers a message with what blocking work sends bit by bit.
    async fn long<M: Record + Send + 'static>(
        self: Arc<Self>,
        mut inflow: Inflow,
        work: impl FnOnce(&Ground, &M, &outflow::Outlet) -> Result<(), outflow::Gone> + Send + 'static,
    ) -> Response<Body> {
        let message = async {
            let message: M = inflow.message().await?;
            inflow.end().await?;
            Ok::<_, Refusal>(message)
        };
        match message.await {
            Ok(message) => outflow::made(move |outlet| work(&self.ground, &message, outlet)),
            Err(refusal) => outflow::refused(refusal),
        }
    }

    /// Answers a request that brings data. After a refusal it still reads the rest.
    async fn taking<A, F>(
        self: Arc<Self>,
        inflow: Inflow,
        noted: Noted,
        work: impl FnOnce(Arc<Self>, Inflow, Noted) -> F,
    ) -> Response<Body>
    where
        A: Record + Send + 'static,
        F: Future<Output = (Result<A, Refusal>, Inflow)> + Send + 'static,
    {
        let work = work(self, inflow, noted.clone());
        outflow::when_done(noted, async move {
            let (taken, mut inflow) = work.await;
            if taken.is_err() {
                inflow.discard().await;
            }
            taken
        })
        .await
    }

    async fn finish_ahead(self: Arc<Self>, mut inflow: Inflow, noted: Noted) -> Response<Body> {
        outflow::when_done(noted.clone(), async move {
            let message: Finish = inflow.message().await?;
            inflow.end().await?;
            let (files, file) = (Arc::clone(&self), message.file.clone());
            let draft = blocking(move || {
                let draft = files.drafts.open(&file);
                draft.map_err(|error| Refusal::of(&error))
            });
            draft.await?.all_arrived().await;
            blocking(move || {
                let finished = self.finish(&message, &noted);
                finished.map_err(|error| Refusal::of(&error))
            })
            .await
        })
        .await
    }

    async fn hello(self: Arc<Self>, mut inflow: Inflow) -> Response<Body> {
        outflow::when_done(Noted::default(), async move {
            let bytes = inflow.message_bytes().await?;
            // Additions of a later version at the end are ignored.
            let hello = Hello::read(&mut &bytes[..])
                .map_err(|cause| Refusal::new(ErrorKind::Invalid, cause.to_string()))?;
            let version = wire::agree(hello.oldest, hello.newest, "unknown")
                .map_err(|line| Refusal::new(ErrorKind::Unsupported, line))?;
            blocking(move || {
                self.welcome(version, &hello.root.0)
                    .map_err(|error| Refusal::of(&error))
            })
            .await
        })
        .await
    }

    fn welcome(&self, version: u32, root: &[u8]) -> Result<Welcome> {
        self.ground.copies(root);
        let followed = self.look(root, true)?;
        let found = self.look(root, false)?;
        let is_clean = match &found.entry {
            Some(entry) if entry.kind == posthaste_endpoint::Kind::Directory => false,
            Some(_) | None => self.has_clean_siblings(root),
        };
        let near = self.ground.target(b"");
        Ok(Welcome {
            version,
            features: wire::FEATURE_RUNS
                | wire::FEATURE_FINISH_AHEAD
                | wire::FEATURE_REAL_PATHS
                | wire::FEATURE_CLOCKS,
            release: env!("CARGO_PKG_VERSION").into(),
            free_bytes: near
                .ok()
                .and_then(|place| self.space.free_bytes(&place.path)),
            followed,
            root: Looked { is_clean, ..found },
        })
    }

    /// Returns whether nothing unfinished lies beside `path`, as far as that is cheap to find out.
    fn has_clean_siblings(&self, path: &[u8]) -> bool {
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let parent = match cut {
            Some(0) => b"/",
            Some(cut) => &path[..cut],
            None => &b""[..],
        };
        let Ok(place) = self.ground.target(parent) else {
            return true;
        };
        let Ok(entries) = std::fs::read_dir(&place.path) else {
            return false;
        };
        let mut seen = 0;
        for entry in entries {
            seen += 1;
            let Ok(entry) = entry else { return false };
            let name = entry.file_name();
            let name = std::os::unix::ffi::OsStrExt::as_bytes(name.as_os_str());
            if seen > SIBLINGS_MAX || is_unfinished(name) {
                return false;
            }
        }
        true
    }

    fn look(&self, path: &[u8], follow: bool) -> Result<Looked> {
        let place = if follow {
            self.ground.target(path)
        } else {
            self.ground.place(path)
        };
        let place = match place {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Looked::default());
            }
            place => place?,
        };
        Ok(Looked {
            entry: posix::stat(&place.path, follow)?,
            is_clean: false,
        })
    }

    fn stat(&self, message: &Stat, _: &Noted) -> Result<Looked> {
        self.look(&message.path.0, message.follow)
    }

    fn real_path(&self, message: &Named, _: &Noted) -> Result<Name> {
        self.ground.real_path(&message.path.0).map(Name)
    }

    fn time_step(&self, message: &Named, _: &Noted) -> Result<Option<u32>> {
        let place = self.ground.place(&message.path.0)?;
        Ok(self.clocks.step_ns(&place.path))
    }

    fn create(&self, file: &Create, _: &Noted) -> Result<Vec<(u64, Checksum)>> {
        Ok(self.drafts.open(file)?.kept())
    }

    fn finish(&self, message: &Finish, noted: &Noted) -> Result<Done> {
        let flush = message.flush || self.flush;
        noted.add(self.drafts.finish(message, flush)?);
        Ok(Done)
    }

    fn finish_open(&self, message: &FinishOpen, noted: &Noted) -> Result<Done> {
        let flush = message.flush || self.flush;
        noted.add(self.drafts.finish_open(message, flush)?);
        Ok(Done)
    }

    fn discard(&self, file: &Create, _: &Noted) -> Result<Done> {
        self.drafts.discard(file).map(|()| Done)
    }

    fn read_link(&self, message: &Named, _: &Noted) -> Result<Name> {
        let place = self.ground.place(&message.path.0)?;
        posix::read_link(&place.path).map(Name)
    }

    fn make_link(&self, message: &MakeLink, noted: &Noted) -> Result<Done> {
        let make = |make| {
            let place = self.ground.place_to_write(&message.path.0, make)?;
            posix::make_link(&place.path, &message.target.0, &message.spec)
        };
        let made = match make(false) {
            Err(error) if error.kind() == ErrorKind::NotFound => make(true),
            made => made,
        };
        noted.add(made?);
        Ok(Done)
    }

    fn make_directories(&self, message: &MakeDirectories, _: &Noted) -> Result<Outcomes<bool>> {
        let made = message.directories.iter().take(DIRECTORIES_MAX);
        let made = made.map(|wanted| {
            let made = self
                .ground
                .place_to_write(&wanted.path.0, true)
                .and_then(|place| posix::ensure_directory(&place.path, wanted.follow));
            made.map_err(|error| Refusal::of(&error))
        });
        Ok(Outcomes(made.collect()))
    }

    fn seal_directories(&self, message: &SealDirectories, noted: &Noted) -> Result<Outcomes<Done>> {
        let sealed = message.directories.iter().take(DIRECTORIES_MAX);
        let sealed = sealed.map(|wanted| {
            let entry = posthaste_endpoint::Entry {
                name: Vec::new(),
                kind: posthaste_endpoint::Kind::Directory,
                size: 0,
                mtime: wanted.mtime,
                stored: None,
                mode: wanted.mode,
                version: None,
            };
            let seal = || {
                let place = self.ground.folder_to_change(&wanted.path.0)?;
                posix::seal_directory(&place.path, &entry)
            };
            let sealed = match seal() {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let place = self.ground.place_to_write(&wanted.path.0, true);
                    place
                        .and_then(|place| posix::ensure_directory(&place.path, false))
                        .and_then(|_| seal())
                }
                sealed => sealed,
            };
            let sealed = sealed.map(|unkept| noted.add(unkept));
            sealed.map(|()| Done).map_err(|error| Refusal::of(&error))
        });
        Ok(Outcomes(sealed.collect()))
    }

    fn remove(&self, message: &Named, _: &Noted) -> Result<Done> {
        let place = match self.ground.place_to_write(&message.path.0, false) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Done),
            place => place?,
        };
        let had = space::size_at(&place.path);
        match std::fs::remove_file(&place.path) {
            Ok(()) => {
                let _ = self.space.change(had, 0);
                Ok(Done)
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(Done),
            Err(cause) => Err(posthaste_endpoint::Error::io("remove", "", cause)),
        }
    }
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    spawn_blocking(work).await.map_err(ended)?
}

fn ended(_: tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorKind::Busy, "it is shutting down")
}
