//! Bodies that wait until a server accepts them (`Expect: 100-continue`, RFC 9110, section 10.1.1).
//!
//! The doors of grid storage (dCache, XRootD, EOS, Pelican) answer a write with the address of
//! another host. A body that waits here until then is sent once, and to that host alone.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

use super::Sent;

/// Longest wait before a body is sent unasked. A door asks its pools meanwhile; a server that does
/// not know the question costs this wait once.
const THOUGHT_MAX: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// No answer yet.
    Waiting,
    /// Body wanted by the server.
    Wanted,
    /// The server did not answer in time, and gets the body.
    Unheard,
    /// The server answered without the body.
    Answered,
}

#[derive(Debug)]
struct State {
    body: Option<Sent>,
    step: Step,
    waker: Option<Waker>,
}

/// A gate that holds a body back.
#[derive(Debug, Clone)]
pub(crate) struct Gate(Arc<Mutex<State>>);

impl Gate {
    /// Holds `body` back.
    pub(super) fn hold(body: Sent) -> Self {
        Self(Arc::new(Mutex::new(State {
            body: Some(body),
            step: Step::Waiting,
            waker: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the body: the server wants it.
    pub(super) fn open(&self) {
        let mut state = self.state();
        if state.step == Step::Waiting {
            state.step = Step::Wanted;
        }
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Notes that the server has answered. Its connection ends soon if it did not want the body:
    /// its reasons can be read before.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if state.step == Step::Waiting {
            state.step = Step::Answered;
        }
    }

    /// Takes back a body that can be sent elsewhere, and ends the connection that waits for it.
    pub(super) fn take_back(&self) -> Option<Sent> {
        let mut state = self.state();
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        state.body.take()
    }

    /// Returns whether the server said that it wants the body.
    pub(super) fn was_wanted(&self) -> bool {
        self.state().step == Step::Wanted
    }

    /// Returns whether the server let the time pass.
    pub(super) fn was_unheard(&self) -> bool {
        self.state().step == Step::Unheard
    }

    /// Returns whether there is still something to send.
    pub(super) fn holds(&self) -> bool {
        self.state().body.is_some()
    }
}

/// Side of a gate on which a connection waits.
pub(super) struct Waiting {
    gate: Gate,
    /// Timer from when the connection could send.
    thought: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    pub(super) fn before(gate: &Gate) -> Self {
        Self {
            gate: gate.clone(),
            thought: None,
        }
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the body when it may go; nothing if it is to go elsewhere.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Sent>> {
        let thought = self
            .thought
            .get_or_insert_with(|| Box::pin(sleep(THOUGHT_MAX)));
        let is_late = thought.as_mut().poll(context).is_ready();
        let mut state = self.gate.state();
        match state.step {
            Step::Waiting if is_late => state.step = Step::Unheard,
            Step::Answered if is_late => return Poll::Ready(None),
            Step::Waiting | Step::Answered if state.body.is_some() => {
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            Step::Waiting | Step::Answered | Step::Wanted | Step::Unheard => {}
        }
        // Pieces stay for another host that is named too late, or for another connection.
        let again = state.body.as_ref().and_then(Sent::again);
        Poll::Ready(again.or_else(|| state.body.take()))
    }
}
