//! A request under way.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    board::{Inbox, Outcome, State},
    check::{Algorithm, Tally},
    greeting::WINDOW_BYTES,
    refusal::Doing,
    session::{Session, Stalled},
    wire::{Message, PAYLOAD_BYTES_MAX},
};
use crate::{Checksum, Error, ErrorKind, Locus, Result, endpoint::ByteStream};

/// Request that was sent. Dropping it before its end cancels it.
pub(super) struct Call {
    session: Arc<Session>,
    id: u64,
    inbox: Arc<Inbox>,
    doing: Doing,
    subject: String,
    /// Bytes received for which the plug-in has no credit yet.
    taken: u64,
    ended: bool,
}

impl Call {
    pub(super) fn new(
        session: Arc<Session>,
        id: u64,
        inbox: Arc<Inbox>,
        doing: Doing,
        subject: String,
    ) -> Self {
        Self {
            session,
            id,
            inbox,
            doing,
            subject,
            taken: 0,
            ended: false,
        }
    }

    /// Returns the error of a plug-in that is gone.
    pub(super) fn broken(&self) -> Error {
        self.session.broken(self.doing, &self.subject)
    }

    fn fail(&self, kind: ErrorKind) -> Error {
        self.doing.error(kind, &self.subject)
    }

    /// Waits until `look` finds something. A plug-in that is silent about this request for too long
    /// counts as hung and is ended.
    async fn wait<T>(&self, mut look: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        loop {
            let seen = {
                let mut state = self.inbox.lock();
                if let Some(found) = look(&mut state) {
                    return Ok(found);
                }
                state.seq
            };
            let rung = timeout(self.session.quiet, self.inbox.bell.notified()).await;
            if rung.is_err() && self.inbox.lock().seq == seen {
                let quiet = self.session.quiet;
                self.session
                    .give_up(&format!("said nothing about a request for {quiet:?}"));
                return Err(self
                    .fail(ErrorKind::TimedOut)
                    .cause(format!("the plug-in {}", self.session.fate())));
            }
        }
    }

    fn conclude(&mut self, outcome: Outcome) -> Result<Map<String, Value>> {
        self.ended = true;
        match outcome {
            Outcome::Done(result) => {
                self.session.note_answer();
                Ok(result)
            }
            Outcome::Refused(refusal) => {
                self.session.note_answer();
                Err(refusal.error(self.doing, &self.subject, &self.session.secrets))
            }
            Outcome::Broken => Err(self.broken()),
        }
    }

    /// Waits for the end.
    pub(super) async fn end(mut self) -> Result<Map<String, Value>> {
        let outcome = self.wait(|state| state.outcome.take()).await?;
        self.conclude(outcome)
    }

    /// Returns the next bytes of a range; at its end, the plug-in's report of it.
    async fn next(&mut self) -> Result<Result<Bytes, Map<String, Value>>> {
        let next = self
            .wait(|state| match state.take() {
                Some(bytes) => Some(Ok(bytes)),
                None => state.outcome.take().map(Err),
            })
            .await?;
        match next {
            Ok(bytes) => {
                self.give_credit(bytes.len() as u64).await?;
                Ok(Ok(bytes))
            }
            Err(outcome) => {
                let result = self.conclude(outcome)?;
                if self.inbox.lock().rest > 0 {
                    return Err(self
                        .fail(ErrorKind::Changed)
                        .cause("it became shorter while it was read")
                        .hint("copy it again when nothing writes to it")
                        .at(Locus::Source));
                }
                Ok(Err(result))
            }
        }
    }

    /// Gives credit for received bytes, half a window at a time.
    async fn give_credit(&mut self, taken: u64) -> Result<()> {
        self.taken += taken;
        let is_last = self.inbox.lock().rest == 0;
        if is_last || self.taken < WINDOW_BYTES / 2 {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.taken);
        self.inbox.lock().grant(bytes);
        self.send(Message::of(&json!({"id": self.id, "credit": bytes})))
            .await
    }

    /// Returns the bytes of a range as they arrive.
    pub(super) fn stream(self) -> ByteStream {
        Box::pin(stream::try_unfold(self, |mut call| async move {
            match call.next().await? {
                Ok(bytes) => Ok(Some((bytes, call))),
                Err(_) => Ok(None),
            }
        }))
    }

    /// Returns all bytes of a range, and the plug-in's report of it.
    pub(super) async fn collect(mut self) -> Result<(Vec<Bytes>, Map<String, Value>)> {
        let mut data = Vec::new();
        loop {
            match self.next().await? {
                Ok(bytes) => data.push(bytes),
                Err(result) => return Ok((data, result)),
            }
        }
    }

    /// Sends a body and waits for the end. Returns the sums of the sent bytes: ours, and the one
    /// the plug-in was given to compare with.
    pub(super) async fn upload(
        mut self,
        len: u64,
        mut body: ByteStream,
        algorithm: Option<Algorithm>,
    ) -> Result<Sent> {
        let mut tally = Tally::new(algorithm);
        let mut sent = 0;
        while let Some(bytes) = body.next().await {
            let mut bytes = bytes?;
            sent += bytes.len() as u64;
            if sent > len {
                return Err(source_fault("the source is longer than it was"));
            }
            tally.add(&bytes);
            while !bytes.is_empty() {
                let room = self.room().await?;
                let room = usize::try_from(room).unwrap_or(usize::MAX);
                let chunk = bytes.split_to(room.min(PAYLOAD_BYTES_MAX).min(bytes.len()));
                self.inbox.lock().credit -= chunk.len() as u64;
                self.send(Message::data(self.id, chunk)).await?;
            }
        }
        if sent < len {
            return Err(source_fault("the source ended early"));
        }
        let theirs = tally.theirs();
        let sums: Map<String, Value> = algorithm
            .zip(theirs.as_ref())
            .map(|(algorithm, sum)| (algorithm.name().to_owned(), json!(sum)))
            .into_iter()
            .collect();
        self.send(Message::of(&json!({"id": self.id, "end": sums})))
            .await?;
        self.end().await?;
        Ok(Sent {
            sum: tally.sum(),
            theirs,
        })
    }

    /// Waits until the plug-in accepts bytes; fails if it has ended the request instead.
    async fn room(&mut self) -> Result<u64> {
        let next = self
            .wait(|state| match state.outcome.take() {
                Some(outcome) => Some(Err(outcome)),
                None => (state.credit > 0).then_some(Ok(state.credit)),
            })
            .await?;
        match next {
            Ok(bytes) => Ok(bytes),
            Err(outcome) => {
                self.conclude(outcome)?;
                Err(self
                    .fail(ErrorKind::Other)
                    .cause("the plug-in was done before it had everything")
                    .at(Locus::Destination))
            }
        }
    }

    async fn send(&self, message: Message) -> Result<()> {
        match self.session.send(message).await {
            Ok(()) => Ok(()),
            Err(Stalled) => Err(self.broken()),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.ended {
            self.session.cancel(self.id);
        }
    }
}

/// Outcome of a write.
pub(super) struct Sent {
    pub sum: Checksum,
    /// Checksum that the plug-in compared, in hexadecimal digits.
    pub theirs: Option<String>,
}

fn source_fault(cause: &'static str) -> Error {
    Error::new(ErrorKind::Unreachable, "read", "the source")
        .cause(cause)
        .at(Locus::Source)
}
