//! Answers: short ones at once, slow ones with a sign of life, long ones as they are made.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use posthaste_endpoint::{
    Unkept,
    peer::{
        frame::{FrameKind, frame, unkept_frame},
        wire::{self, Refusal, WAIT_EVERY},
    },
};
use posthaste_types::Record;
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// Body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Frames made ahead of the network: one waits while one is sent, so that disk and wire overlap.
const FRAMES_AHEAD: usize = 2;

/// Time that work may take before its answer begins with a sign of life.
const AT_ONCE: Duration = WAIT_EVERY;

type Work = Pin<Box<dyn Future<Output = Bytes> + Send>>;

/// Returns an answer that is ready.
fn at_once(bytes: Bytes) -> Response<Body> {
    Response::new(Full::new(bytes).boxed_unsync())
}

/// Returns a refusal of an understood request.
pub(super) fn refused(refusal: Refusal) -> Response<Body> {
    at_once(message(&Err::<wire::Done, _>(refusal)))
}

/// Returns a refusal with its status, before anything was understood.
pub(super) fn refuse(status: StatusCode, refusal: Refusal) -> Response<Body> {
    let mut response = refused(refusal);
    *response.status_mut() = status;
    response
}

fn message<T: Record>(answer: &Result<T, Refusal>) -> Bytes {
    frame(FrameKind::Message, &wire::write_answer(answer))
}

/// Attributes that the files of a request arrived without, for clients that ask for them.
#[derive(Debug, Clone, Default)]
pub(super) struct Noted {
    is_heard: bool,
    unkept: Arc<Mutex<Unkept>>,
}

impl Noted {
    /// Returns an empty note for a request with these headers.
    pub(super) fn new(headers: &HeaderMap) -> Self {
        Self {
            is_heard: headers.contains_key(wire::HEARS_UNKEPT),
            unkept: Arc::default(),
        }
    }

    /// Counts more.
    pub(super) fn add(&self, unkept: Unkept) {
        *self.unkept.lock().unwrap_or_else(PoisonError::into_inner) += unkept;
    }

    /// Returns an answer with the frame that follows and reports it.
    fn follow(&self, answer: Bytes) -> Bytes {
        let unkept = *self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_heard || unkept == Unkept::default() {
            return answer;
        }
        [answer, unkept_frame(unkept)].concat().into()
    }
}

/// Answers work that may take long: meanwhile frames show that it continues.
pub(super) async fn when_done<T: Record>(
    noted: Noted,
    work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Response<Body> {
    let mut work: Work = Box::pin(async move { noted.follow(message(&work.await)) });
    match timeout(AT_ONCE, &mut work).await {
        Ok(bytes) => at_once(bytes),
        Err(_) => {
            let frames = stream::unfold(Some(work), |work| async move {
                let mut work = work?;
                tokio::select! {
                    bytes = &mut work => Some((Ok(Frame::data(bytes)), None)),
                    () = sleep(WAIT_EVERY) => {
                        Some((Ok(Frame::data(frame(FrameKind::Wait, b""))), Some(work)))
                    }
                }
            });
            Response::new(StreamBody::new(frames).boxed_unsync())
        }
    }
}

/// Sink for the frames of a long answer. Its methods block until the network wants more.
pub(super) struct Outlet {
    frames: mpsc::Sender<Bytes>,
}

/// Error that nobody reads the answer any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gone;

impl Outlet {
    pub(super) fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.frames.blocking_send(bytes).map_err(|_| Gone)
    }

    pub(super) fn message<T: Record>(&self, answer: &Result<T, Refusal>) -> Result<(), Gone> {
        self.send(message(answer))
    }

    pub(super) fn digest(&self, hasher: &blake3::Hasher) -> Result<(), Gone> {
        self.send(frame(FrameKind::Digest, hasher.finalize().as_bytes()))
    }
}

/// Answers with frames that a blocking thread makes while they are sent.
pub(super) fn made(
    make: impl FnOnce(&Outlet) -> Result<(), Gone> + Send + 'static,
) -> Response<Body> {
    let (frames, made) = mpsc::channel(FRAMES_AHEAD);
    // The thread ends at the latest when the body, and with it the receiver, is dropped.
    let making = spawn_blocking(move || {
        let _ = make(&Outlet { frames });
    });
    let frames = stream::unfold((made, making), |(mut made, making)| async move {
        let bytes: Bytes = made.recv().await?;
        Some((Ok(Frame::data(bytes)), (made, making)))
    });
    Response::new(StreamBody::new(frames).boxed_unsync())
}
