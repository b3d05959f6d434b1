//! Requests and answers: the common basis of all operations.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::BodyExt;
use posthaste_types::Record;

use super::{
    body::{self, Body, Sending},
    frame::{Broken, Frames, Piece},
    knowledge::Knowledge,
    pool::Lease,
    ways::Ways,
    wire::{self, Hello, Name, Named, Operation, Refusal, Welcome},
};
use crate::{
    Boxed, Error, ErrorKind, Locus, Result, Status, clock,
    endpoint::join,
    outgoing::{Load, Outgoing},
    relay::{
        Credential, Scope,
        wire::{ErrorBody, kind_of},
    },
    unkept::{Unkept, UnkeptCount},
};

/// Largest body of an error outside this protocol, in bytes.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Peer, and cached facts about it.
pub(super) struct Remote {
    pub(super) ways: Ways,
    /// Prefix `posthaste://host:port` or `user@host:`; a path follows.
    prefix: String,
    root: Vec<u8>,
    /// True if files are flushed to the disk before they count.
    pub(super) flush: bool,
    pub(super) knowledge: Knowledge,
    /// Features that the server reported.
    features: AtomicU64,
    /// Attributes that files arrived without.
    unkept: UnkeptCount,
}

impl Remote {
    pub(super) fn new(ways: Ways, prefix: String, root: Vec<u8>, flush: bool) -> Self {
        Self {
            ways,
            prefix,
            root,
            flush,
            knowledge: Knowledge::default(),
            features: AtomicU64::new(0),
            unkept: UnkeptCount::default(),
        }
    }

    /// Returns the attributes that files arrived without so far.
    pub(super) fn unkept(&self) -> Unkept {
        self.unkept.get()
    }

    fn note(&self, unkept: Unkept) {
        self.unkept.add(unkept);
    }

    /// Returns the address that precedes all paths.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the path at the peer for a path relative to the root.
    pub(super) fn full(&self, path: &[u8]) -> Vec<u8> {
        if self.root == b"/" && !path.is_empty() {
            return [b"/", path].concat();
        }
        join(&self.root, path)
    }

    pub(super) fn name(&self, path: &[u8]) -> Name {
        Name(self.full(path))
    }

    /// Returns a message that is only a path.
    pub(super) fn named(&self, path: &[u8]) -> Named {
        Named {
            path: self.name(path),
        }
    }

    /// Returns the address of a relative path, for messages.
    pub(super) fn show(&self, path: &[u8]) -> String {
        format!(
            "{}{}",
            self.prefix,
            String::from_utf8_lossy(&self.full(path))
        )
    }

    /// Agrees on a version, and looks at the root in the same request.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is no version that both speak.
    pub(super) async fn greet(self: &Arc<Self>) -> Result<Welcome> {
        let hello = Hello {
            oldest: wire::VERSION_OLDEST,
            newest: wire::VERSION_NEWEST,
            features: 0,
            root: Name(self.root.clone()),
        };
        let mut answer = self.begin(Operation::Hello, b"", &hello).await?;
        let bytes = answer.message_bytes().await?;
        // Fields that a later version adds at the end are ignored.
        let welcome = wire::read_outcome::<Welcome>(&mut &bytes[..]);
        let welcome = welcome.map_err(|cause| self.nonsense(Operation::Hello, cause))?;
        let welcome = welcome.map_err(|refusal| self.refused(Operation::Hello, b"", refusal))?;
        answer.end().await?;
        if !(wire::VERSION_OLDEST..=wire::VERSION_NEWEST).contains(&welcome.version) {
            return Err(self.nonsense(Operation::Hello, "it speaks another version than agreed"));
        }
        Ok(welcome)
    }

    /// Sends a request that has one short answer.
    pub(super) async fn ask<A: Record>(
        self: &Arc<Self>,
        operation: Operation,
        path: &[u8],
        message: &impl Record,
    ) -> Result<A> {
        let mut answer = self.begin(operation, path, message).await?;
        let value = answer.message().await?;
        answer.end().await?;
        Ok(value)
    }

    /// Sends a request whose body is only a message. A kept connection that the peer closed
    /// meanwhile is replaced once: every request may be made twice.
    pub(super) async fn begin(
        self: &Arc<Self>,
        operation: Operation,
        path: &[u8],
        message: &impl Record,
    ) -> Result<Answer> {
        let message = message.to_bytes();
        if message.len() > wire::MESSAGE_BYTES_MAX {
            return Err(
                Error::new(ErrorKind::Invalid, operation.verb(), self.show(path))
                    .cause("the names are too long"),
            );
        }
        self.begin_whole(operation, path, VecDeque::from([body::message(&message)]))
            .await
    }

    /// Sends a request like [`Remote::begin`], with a body in memory.
    pub(super) fn begin_whole<'a>(
        self: &'a Arc<Self>,
        operation: Operation,
        path: &'a [u8],
        pieces: VecDeque<Bytes>,
    ) -> Boxed<'a, Result<Answer>> {
        Box::pin(async move {
            let mut reuse = true;
            loop {
                let (mut lease, credential) = self.ways.lease(operation, reuse).await?;
                let load = match operation == Operation::Store {
                    true => Outgoing::current().load(),
                    false => Load::default(),
                };
                let body = Body::whole(pieces.clone(), load);
                let request = self.request(operation, &credential, body)?;
                match lease.send(request, None, operation.verb()).await? {
                    Ok(response) => return self.answer(operation, path, lease, response).await,
                    Err(_) if lease.reused && reuse => reuse = false,
                    Err(cause) => return Err(self.broken(operation, path, cause)),
                }
            }
        })
    }

    /// Sends a request whose body comes from a source, once.
    pub(super) async fn begin_streamed(
        self: &Arc<Self>,
        operation: Operation,
        path: &[u8],
        body: Body,
        sending: &Sending,
    ) -> Result<Answer> {
        let (mut lease, credential) = self.ways.lease(operation, true).await?;
        let request = self.request(operation, &credential, body)?;
        match lease.send(request, Some(sending), operation.verb()).await? {
            Ok(response) => self.answer(operation, path, lease, response).await,
            Err(cause) => Err(self.broken(operation, path, cause)),
        }
    }

    fn request(
        &self,
        operation: Operation,
        credential: &Credential,
        body: Body,
    ) -> Result<Request<Body>> {
        let scope = if operation.writes() {
            Scope::FilesWrite
        } else {
            Scope::FilesRead
        };
        let token = credential.token(scope, None, clock::unix_secs());
        Request::builder()
            .method(Method::POST)
            .uri(operation.path())
            .header(header::HOST, "posthaste")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(wire::HEARS_UNKEPT, "1")
            .body(body)
            .map_err(|_| {
                // Only a token can contain bytes that no header may contain; it must not be shown.
                Error::new(ErrorKind::Invalid, operation.verb(), self.show(b""))
                    .cause("the token has characters no token has")
            })
    }

    async fn answer(
        self: &Arc<Self>,
        operation: Operation,
        path: &[u8],
        lease: Lease,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<Answer> {
        if response.status().is_success() {
            return Ok(Answer {
                remote: Arc::clone(self),
                operation,
                path: path.to_vec(),
                lease,
                frames: Frames::new(response.into_body()),
            });
        }
        let status = response.status();
        let error = Error::new(kind_of(status.as_u16()), operation.verb(), self.show(path))
            .at(locus_of(operation))
            .with("status", status.as_u16());
        let body = http_body_util::Limited::new(response.into_body(), REFUSAL_BYTES_MAX);
        let body = lease.watch(operation.verb(), body.collect()).await?;
        let body = body
            .ok()
            .and_then(|body| serde_json::from_slice::<ErrorBody>(&body.to_bytes()).ok());
        Err(match body {
            Some(ErrorBody {
                message,
                hint: Some(hint),
                ..
            }) => error.cause(message).hint(hint),
            Some(ErrorBody { message, .. }) => error.cause(message),
            None => error.cause(format!("it answered {status}")),
        })
    }

    /// Returns the error that a refusal means.
    pub(super) fn refused(&self, operation: Operation, path: &[u8], refusal: Refusal) -> Error {
        refusal
            .into_error(operation.verb(), self.show(path))
            .at(locus_of(operation))
    }

    fn broken(&self, operation: Operation, path: &[u8], cause: Option<hyper::Error>) -> Error {
        let error = Error::new(ErrorKind::Unreachable, operation.verb(), self.show(path))
            .at(Locus::Network)
            .hint("the connection broke");
        match cause {
            Some(cause) => error.cause(cause),
            None => error,
        }
    }

    pub(super) fn nonsense(
        &self,
        operation: Operation,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::new(ErrorKind::Other, operation.verb(), self.show(b""))
            .at(Locus::Network)
            .cause(cause)
            .hint("what answers there is no posthaste of this release")
    }

    /// Records the facts of the greeting.
    pub(super) fn learn(&self, welcome: Welcome) {
        self.features.store(welcome.features, Relaxed);
        self.knowledge.see_root(welcome.followed, welcome.root);
    }

    /// Returns whether the server has this optional feature.
    pub(super) fn can(&self, feature: u64) -> bool {
        self.features.load(Relaxed) & feature != 0
    }
}

fn locus_of(operation: Operation) -> Locus {
    if operation == Operation::Hello {
        Locus::Network
    } else if operation.writes() {
        Locus::Destination
    } else {
        Locus::Source
    }
}

/// Answer being read. Dropping it before its end closes its connection.
pub(super) struct Answer {
    remote: Arc<Remote>,
    operation: Operation,
    path: Vec<u8>,
    lease: Lease,
    frames: Frames,
}

impl Answer {
    /// Returns the next piece.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>> {
        let step = self.lease.watch(self.operation.verb(), self.frames.next());
        let step = step.await?;
        self.remote.note(self.frames.take_unkept());
        step.map_err(|broken| match broken {
            Broken::Connection(_) | Broken::Short => {
                self.lease.broke();
                Error::new(
                    ErrorKind::Unreachable,
                    self.operation.verb(),
                    self.remote.show(&self.path),
                )
                .at(Locus::Network)
                .cause(broken)
                .hint("the connection broke")
            }
            Broken::Nonsense(what) => self.remote.nonsense(self.operation, what),
        })
    }

    /// Returns the next piece, which must be a message.
    pub(super) async fn message_bytes(&mut self) -> Result<Bytes> {
        match self.next().await? {
            Some(Piece::Message(bytes)) => Ok(bytes),
            Some(Piece::Data(_) | Piece::Digest(_)) | None => {
                Err(self.nonsense("the answer says nothing"))
            }
        }
    }

    /// Returns the next piece, which must be an answer; a refusal is an error.
    pub(super) async fn message<T: Record>(&mut self) -> Result<T> {
        let bytes = self.message_bytes().await?;
        self.read(&bytes)
    }

    /// Parses an answer; a refusal is an error.
    pub(super) fn read<T: Record>(&self, bytes: &[u8]) -> Result<T> {
        let rest = &mut &bytes[..];
        let read = wire::read_outcome(rest);
        match read {
            Ok(_) if !rest.is_empty() => Err(self.nonsense("the answer says too much")),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(refusal)) => Err(self.refused(refusal)),
            Err(cause) => Err(self.nonsense(cause)),
        }
    }

    /// Returns the error that a refusal within the answer means.
    pub(super) fn refused(&self, refusal: Refusal) -> Error {
        self.remote.refused(self.operation, &self.path, refusal)
    }

    /// Returns the error for an answer that can't be parsed.
    pub(super) fn nonsense(
        &self,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        self.remote.nonsense(self.operation, cause)
    }

    /// Returns the error for data with a wrong digest.
    pub(super) fn corrupt(&self) -> Error {
        Error::new(
            ErrorKind::Corrupt,
            self.operation.verb(),
            self.remote.show(&self.path),
        )
        .at(Locus::Network)
        .status_is(Status::Temporary)
        .cause("what arrived has another digest than what was sent")
    }

    /// Checks that nothing follows, and keeps the connection.
    pub(super) async fn end(mut self) -> Result<()> {
        match self.next().await? {
            None => {
                self.lease.give_back();
                Ok(())
            }
            Some(_) => Err(self.nonsense("the answer says too much")),
        }
    }
}
