//! Unanswered requests to a plug-in, and what each has received so far.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use serde_json::{Map, Value};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::{
    refusal::Refusal,
    wire::{Answer, Fault, Piece},
};

/// Size below which payloads are gathered: a stream of single bytes must not cost a buffer each.
const GATHERED_BYTES: usize = 64 << 10;

/// End of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    Done(Map<String, Value>),
    Refused(Refusal),
    /// Process gone.
    Broken,
}

/// Answers received for one request.
#[derive(Debug)]
pub(super) struct State {
    chunks: VecDeque<BytesMut>,
    /// Bytes that the plug-in may send before it gets more credit.
    window: u64,
    /// Bytes of the range still to come.
    pub rest: u64,
    /// Bytes of a write that the plug-in still accepts.
    pub credit: u64,
    /// Number that grows with each message, as a sign of life.
    pub seq: u64,
    pub outcome: Option<Outcome>,
}

impl State {
    /// Returns the next bytes of a range.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        self.chunks.pop_front().map(BytesMut::freeze)
    }

    /// Lets the plug-in send more bytes.
    pub(super) fn grant(&mut self, bytes: u64) {
        self.window += bytes;
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.len() < GATHERED_BYTES {
            match self.chunks.back_mut() {
                Some(last) if last.len() + bytes.len() <= GATHERED_BYTES => {
                    last.extend_from_slice(&bytes);
                }
                Some(_) | None => self.chunks.push_back(BytesMut::from(&bytes[..])),
            }
        } else {
            self.chunks.push_back(bytes.into());
        }
    }
}

/// Queue in which a request's answers arrive.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// Notification of each message.
    pub bell: Notify,
}

impl Inbox {
    /// Returns an inbox for `rest` bytes of a range, of which `window` may arrive at once, and for
    /// a write of up to `credit` bytes.
    pub(super) fn new(rest: u64, window: u64, credit: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                chunks: VecDeque::new(),
                window,
                rest,
                credit,
                seq: 0,
                outcome: None,
            }),
            bell: Notify::new(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State) -> Result<(), Fault>) -> Result<(), Fault> {
        let mut state = self.lock();
        state.seq += 1;
        let changed = change(&mut state);
        drop(state);
        self.bell.notify_one();
        changed
    }
}

struct Request {
    inbox: Arc<Inbox>,
    /// Number of looks since the answer became unwanted.
    looks: Option<u32>,
    /// Permit among the pending requests, released when the plug-in has answered.
    _permit: Option<OwnedSemaphorePermit>,
}

/// Requests under way.
#[derive(Default)]
pub(super) struct Board {
    requests: Mutex<BTreeMap<u64, Request>>,
    /// Reason why no requests are possible any more.
    fate: Mutex<Option<String>>,
    /// Cancelled requests that the plug-in has not been notified of.
    cancelled: Mutex<Vec<u64>>,
    /// Notification that there are any.
    pub cancelling: Notify,
}

impl Board {
    fn requests(&self) -> MutexGuard<'_, BTreeMap<u64, Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request before it is sent. On a closed board it is broken from the start.
    pub(super) fn open(&self, id: u64, inbox: Arc<Inbox>, permit: Option<OwnedSemaphorePermit>) {
        let mut requests = self.requests();
        if self.fate().is_some() {
            inbox.lock().outcome = Some(Outcome::Broken);
            return;
        }
        let request = Request {
            inbox,
            looks: None,
            _permit: permit,
        };
        requests.insert(id, request);
    }

    /// Delivers a piece from the plug-in.
    pub(super) fn deliver(&self, piece: Piece) -> Result<(), Fault> {
        match piece {
            Piece::Payload { id, bytes } => {
                // The line that announced the payload was checked; its request may have been
                // cancelled since.
                if let Some(inbox) = self.wanted(id) {
                    inbox.change(|state| {
                        state.push(bytes);
                        Ok(())
                    })?;
                }
                Ok(())
            }
            Piece::Answer(Answer::Hello(_)) => Err(Fault::new("said hello twice")),
            Piece::Answer(Answer::Refused(_)) => Err(Fault::new("sent an error without an id")),
            Piece::Answer(Answer::Data { id, len }) => {
                let len = len as u64;
                self.find(id)?.change(|state| {
                    if len > state.window || len > state.rest {
                        return Err(Fault::new("sent more bytes than were asked for"));
                    }
                    state.window -= len;
                    state.rest -= len;
                    Ok(())
                })
            }
            Piece::Answer(Answer::Credit { id, bytes }) => self.find(id)?.change(|state| {
                state.credit = state.credit.saturating_add(bytes);
                Ok(())
            }),
            Piece::Answer(Answer::Alive { id }) => self.find(id)?.change(|_| Ok(())),
            Piece::Answer(Answer::Done { id, result }) => self.end(id, Outcome::Done(result)),
            Piece::Answer(Answer::Failed { id, refusal }) => {
                self.end(id, Outcome::Refused(refusal))
            }
        }
    }

    fn find(&self, id: u64) -> Result<Arc<Inbox>, Fault> {
        match self.requests().get(&id) {
            Some(request) => Ok(Arc::clone(&request.inbox)),
            None => Err(unasked(id)),
        }
    }

    fn wanted(&self, id: u64) -> Option<Arc<Inbox>> {
        let requests = self.requests();
        let request = requests.get(&id)?;
        request.looks.is_none().then(|| Arc::clone(&request.inbox))
    }

    fn end(&self, id: u64, outcome: Outcome) -> Result<(), Fault> {
        let request = self.requests().remove(&id).ok_or_else(|| unasked(id))?;
        request.inbox.change(|state| {
            state.outcome = Some(outcome);
            Ok(())
        })
    }

    /// Cancels the request `id`; the plug-in is to be notified.
    pub(super) fn cancel(&self, id: u64) {
        if let Some(request) = self.requests().get_mut(&id) {
            request.looks = Some(0);
            let mut cancelled = self
                .cancelled
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            cancelled.push(id);
            self.cancelling.notify_one();
        }
    }

    /// Takes the cancellations to report to the plug-in now: no more than the requests under way.
    pub(super) fn take_cancelled(&self) -> Vec<u64> {
        let mut cancelled = self
            .cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cancelled)
    }

    /// Returns whether a cancelled request has not ended after so many looks. Call it at regular
    /// times.
    pub(super) fn is_stuck(&self, looks_max: u32) -> bool {
        let mut requests = self.requests();
        let mut stuck = false;
        for looks in requests
            .values_mut()
            .filter_map(|request| request.looks.as_mut())
        {
            *looks += 1;
            stuck |= *looks > looks_max;
        }
        stuck
    }

    /// Closes the board: fails the requests under way. The first reason stays.
    pub(super) fn close(&self, reason: impl Into<String>) {
        let mut requests = self.requests();
        self.fate
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(|| reason.into());
        for request in std::mem::take(&mut *requests).into_values() {
            request.inbox.lock().outcome = Some(Outcome::Broken);
            request.inbox.bell.notify_one();
        }
    }

    /// Returns why no request can be made any more.
    pub(super) fn fate(&self) -> Option<String> {
        let fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        fate.clone()
    }
}

fn unasked(id: u64) -> Fault {
    Fault::new(format!("answered the request {id}, which nobody made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(id: u64, len: usize) -> [Piece; 2] {
        [
            Piece::Answer(Answer::Data { id, len }),
            Piece::Payload {
                id,
                bytes: Bytes::from(vec![7; len]),
            },
        ]
    }

    fn done(id: u64) -> Piece {
        Piece::Answer(Answer::Done {
            id,
            result: Map::new(),
        })
    }

    #[test]
    fn single_bytes_are_gathered() {
        let board = Board::default();
        let inbox = Inbox::new(100_000, 100_000, 0);
        board.open(1, Arc::clone(&inbox), None);
        for _ in 0..100_000 {
            for piece in data(1, 1) {
                board.deliver(piece).unwrap();
            }
        }
        let mut state = inbox.lock();
        let lens: Vec<usize> = std::iter::from_fn(|| state.take())
            .map(|bytes| bytes.len())
            .collect();
        assert_eq!(lens, [GATHERED_BYTES, 100_000 - GATHERED_BYTES]);
    }

    #[test]
    fn more_than_window_or_range_is_a_fault() {
        for (rest, window, granted, ok) in [
            (10, 10, 0, true),
            (9, 10, 0, false),
            (10, 9, 0, false),
            (10, 9, 1, true),
        ] {
            let board = Board::default();
            let inbox = Inbox::new(rest, window, 0);
            board.open(1, Arc::clone(&inbox), None);
            inbox.lock().grant(granted);
            let [line, _] = data(1, 10);
            assert_eq!(board.deliver(line).is_ok(), ok, "{rest} {window} {granted}");
        }
    }

    #[test]
    fn answers_to_nothing_are_faults() {
        let board = Board::default();
        board.open(1, Inbox::new(0, 0, 0), None);
        assert!(board.deliver(done(2)).is_err());
        assert!(
            board
                .deliver(Piece::Answer(Answer::Alive { id: 3 }))
                .is_err()
        );
        board.deliver(done(1)).unwrap();
        assert!(board.deliver(done(1)).is_err(), "it was answered twice");
    }

    #[test]
    fn a_cancelled_request_is_told_once_and_waited_for() {
        let board = Board::default();
        let inbox = Inbox::new(10, 10, 0);
        board.open(1, Arc::clone(&inbox), None);
        board.cancel(1);
        board.cancel(2);
        assert_eq!(board.take_cancelled(), [1]);
        assert!(board.take_cancelled().is_empty());
        for piece in data(1, 5) {
            board.deliver(piece).unwrap();
        }
        assert!(inbox.lock().take().is_none(), "bytes nobody wants are kept");
        assert!(!board.is_stuck(1));
        assert!(board.is_stuck(1));
        board.deliver(done(1)).unwrap();
        assert!(!board.is_stuck(1));
    }

    #[test]
    fn a_closed_board_breaks_what_is_asked_then_and_later() {
        let board = Board::default();
        let early = Inbox::new(0, 0, 0);
        board.open(1, Arc::clone(&early), None);
        board.close("it ended");
        board.close("something else");
        let late = Inbox::new(0, 0, 0);
        board.open(2, Arc::clone(&late), None);
        for inbox in [early, late] {
            assert!(matches!(inbox.lock().outcome, Some(Outcome::Broken)));
        }
        assert_eq!(board.fate().as_deref(), Some("it ended"));
    }
}
