//! Pool of a few sessions with one server: each moves one file at a time, and servers allow a user
//! few.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{host::Host, session::Session};
use crate::{
    Error, ErrorKind, Result, clock,
    limits::{Gate, Pass},
};

/// Sessions if the profile sets none: servers often allow ten to an address.
pub(super) const SESSIONS_USUAL: usize = 8;

/// Most sessions, whatever the profile says.
pub(super) const SESSIONS_MAX: usize = 64;

/// Idle time after which a session is checked before use.
const ASKED_AFTER: Duration = Duration::from_secs(10);

/// Sessions with a server.
pub(super) struct Pool {
    host: Arc<Host>,
    gate: Arc<Gate>,
    idle: Mutex<Vec<Session>>,
    /// Sessions that are logged in, idle or not.
    open: AtomicUsize,
}

/// Session that returns to the pool if this is dropped between two commands.
pub(super) struct Lease {
    pool: Arc<Pool>,
    session: Option<Session>,
    _pass: Pass,
}

impl Pool {
    /// Returns a pool that has its first session.
    pub(super) fn new(host: Arc<Host>, first: Session, sessions_max: usize) -> Arc<Self> {
        Arc::new(Self {
            host,
            gate: Gate::new(sessions_max.clamp(1, SESSIONS_MAX)),
            idle: Mutex::new(vec![first]),
            open: AtomicUsize::new(1),
        })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases a session; waits for one if the server or the profile allows no more.
    pub(super) async fn lease(self: &Arc<Self>) -> Result<Lease> {
        loop {
            let pass = self.gate.pass().await;
            let session = match self.take_idle().await {
                Some(session) => session,
                None => match Session::open(Arc::clone(&self.host)).await {
                    Ok(session) => {
                        self.open.fetch_add(1, Relaxed);
                        session
                    }
                    // Those credentials were good before: this is one session too many.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unauthenticated)
                            && self.open.load(Relaxed) > 0 =>
                    {
                        self.gate.set(self.open.load(Relaxed).max(1));
                        drop(pass);
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            return Ok(Lease {
                pool: Arc::clone(self),
                session: Some(session),
                _pass: pass,
            });
        }
    }

    async fn take_idle(&self) -> Option<Session> {
        loop {
            let mut session = self.idle().pop()?;
            let idle = clock::now().saturating_duration_since(session.used);
            let lives = idle < ASKED_AFTER
                || session
                    .ask(b"NOOP")
                    .await
                    .is_ok_and(|reply| reply.is_done());
            if lives {
                return Some(session);
            }
            self.open.fetch_sub(1, Relaxed);
        }
    }
}

impl Lease {
    /// Returns the session.
    pub(super) fn session(&mut self) -> Result<&mut Session> {
        let gone = || Error::new(ErrorKind::Other, "use", "a session that has ended");
        self.session.as_mut().ok_or_else(gone)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.session.take() {
            Some(session) if session.is_clean() => self.pool.idle().push(session),
            Some(_) | None => {
                self.pool.open.fetch_sub(1, Relaxed);
            }
        }
    }
}
