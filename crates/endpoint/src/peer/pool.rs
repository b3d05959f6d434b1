//! Connections to one peer: opened ahead in parallel, watched for progress, kept for reuse.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use posthaste_plan::fleet;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{
    body::{Body, Sending},
    connection::{Connection, Target, open, watch},
};
use crate::{Error, ErrorKind, Result, line::Fleet};

/// Interval at which the pool estimates the worth of a path that has not answered yet.
const RIPEN_EVERY: Duration = Duration::from_millis(2);

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// Connections being opened.
    opening: usize,
    /// True while more are opened the longer the first answer takes.
    is_ripening: bool,
    /// Open connections, idle or in use.
    open: usize,
    /// Requests that wait for one, in order of arrival.
    waiting: VecDeque<oneshot::Sender<Result<Connection>>>,
}

/// All connections to one peer.
pub(super) struct Pool {
    target: Arc<Target>,
    state: Mutex<State>,
    connections_max: AtomicUsize,
    fleet: Arc<Fleet>,
    /// Round trip time in microseconds, as measured on the first connection; 0 before.
    rtt_us: AtomicU64,
    openers: Mutex<JoinSet<()>>,
    runtime: Handle,
    this: Weak<Pool>,
}

/// Right to use one connection.
pub(super) struct Lease {
    connection: Option<Connection>,
    /// True if an earlier request used it: the peer may have closed it since.
    pub(super) reused: bool,
    /// Pool to which it returns; none for a share in a channel.
    pool: Option<Arc<Pool>>,
    shown: Arc<str>,
}

impl Pool {
    /// Creates a pool for `target`; none is open yet.
    pub(super) fn new(target: Target) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            target: Arc::new(target),
            state: Mutex::default(),
            connections_max: AtomicUsize::new(fleet::CONNECTIONS_MIN),
            fleet: Arc::default(),
            rtt_us: AtomicU64::new(0),
            openers: Mutex::default(),
            runtime: Handle::current(),
            this: this.clone(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the address, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.target.shown
    }

    /// Returns the round trip time; zero before the first connection.
    pub(super) fn rtt(&self) -> Duration {
        Duration::from_micros(self.rtt_us.load(Relaxed))
    }

    /// Returns the gateways that the next connection would use, as people write them.
    pub(super) fn through(&self) -> Option<String> {
        let way = self.target.ways.first()?;
        let is_led = !self.target.ways.hops(way).is_empty();
        let name = || self.target.ways.names().into_iter().nth(way);
        is_led.then(name).flatten()
    }

    /// Returns whether a connection may serve the next request. A connection by a route that is no
    /// longer preferred, or was only a fallback, may not.
    fn is_kept(&self, connection: &Connection) -> bool {
        connection.is_usable() && self.target.ways.is_first(connection.way)
    }

    /// Returns the number of connections that suits the path.
    pub(super) fn connections(&self) -> usize {
        self.connections_max.load(Relaxed)
    }

    /// Opens connections in the background until there are `wanted`, within the limit.
    pub(super) fn warm_up(&self, wanted: usize) {
        let mut state = self.state();
        let wanted = wanted.min(self.connections());
        while state.open + state.opening < wanted {
            self.start_opening(&mut state);
        }
    }

    /// Takes an idle connection if `reuse`, opens one if more are allowed, or waits.
    pub(super) async fn lease(self: &Arc<Self>, reuse: bool) -> Result<Lease> {
        let waiting = {
            let mut state = self.state();
            while let Some(connection) = state.idle.pop() {
                if (reuse || !connection.used) && self.is_kept(&connection) {
                    return Ok(self.lent(connection));
                }
                state.open -= 1;
            }
            let (sender, waiting) = oneshot::channel();
            state.waiting.push_back(sender);
            self.serve_waiting(&mut state);
            waiting
        };
        let connection = waiting.await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Cancelled, "connect to", self.shown()))
        })?;
        Ok(self.lent(connection))
    }

    fn lent(self: &Arc<Self>, connection: Connection) -> Lease {
        Lease {
            reused: connection.used,
            connection: Some(connection),
            pool: Some(Arc::clone(self)),
            shown: Arc::clone(&self.target.shown),
        }
    }

    /// Opens as many as are needed and allowed.
    fn serve_waiting(&self, state: &mut State) {
        state.waiting.retain(|sender| !sender.is_closed());
        while state.opening < state.waiting.len() && state.open + state.opening < self.connections()
        {
            self.start_opening(state);
        }
    }

    fn start_opening(&self, state: &mut State) {
        state.opening += 1;
        let (target, pool) = (Arc::clone(&self.target), self.this.clone());
        let fleet = Arc::clone(&self.fleet);
        let mut openers = self.openers.lock().unwrap_or_else(PoisonError::into_inner);
        while openers.try_join_next().is_some() {}
        if self.rtt().is_zero() && !state.is_ripening {
            state.is_ripening = true;
            openers.spawn_on(ripen(self.this.clone()), &self.runtime);
        }
        openers.spawn_on(
            async move {
                let opened = open(&target, fleet, |rtt| {
                    if let Some(pool) = pool.upgrade() {
                        pool.learn(rtt);
                    }
                })
                .await;
                if let Some(pool) = pool.upgrade() {
                    pool.on_opened(opened);
                }
            },
            &self.runtime,
        );
    }

    fn on_opened(&self, opened: Result<Connection>) {
        let mut state = self.state();
        state.opening -= 1;
        match opened {
            Ok(opened) => {
                state.open += 1;
                self.hand_on(&mut state, opened);
            }
            // Others that are open or opening suffice; otherwise the first waiting request gets the
            // error.
            Err(error) => {
                if state.open == 0
                    && state.opening < state.waiting.len()
                    && let Some(sender) = state.waiting.pop_front()
                {
                    let _ = sender.send(Err(error));
                }
            }
        }
    }

    /// Sets the number of connections by the first round trip time, and opens them.
    fn learn(&self, rtt: Duration) {
        let rtt_us = u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX).max(1);
        if self
            .rtt_us
            .compare_exchange(0, rtt_us, Relaxed, Relaxed)
            .is_ok()
        {
            self.allow_for(rtt);
        }
    }

    /// Opens as many as suit a path of at least this length.
    fn allow_for(&self, rtt: Duration) {
        self.connections_max
            .fetch_max(fleet::connections(rtt), Relaxed);
        self.warm_up(self.connections());
    }

    /// Returns whether the first answer is still pending.
    fn awaits_first(&self) -> bool {
        let mut state = self.state();
        state.is_ripening = self.rtt().is_zero() && state.opening > 0;
        state.is_ripening
    }

    /// Gives a connection to a waiting request, or keeps it.
    fn hand_on(&self, state: &mut State, connection: Connection) {
        let mut connection = connection;
        while let Some(sender) = state.waiting.pop_front() {
            match sender.send(Ok(connection)) {
                Ok(()) => return,
                Err(Ok(back)) => connection = back,
                Err(Err(_)) => return,
            }
        }
        state.idle.push(connection);
    }
}

/// Opens further connections while the first has no answer: the path is at least as long as the
/// wait, which justifies as many. They are ready half a round trip sooner.
async fn ripen(pool: Weak<Pool>) {
    let began = Instant::now();
    loop {
        sleep(RIPEN_EVERY).await;
        match pool.upgrade() {
            Some(pool) if pool.awaits_first() => {
                let waited = began.elapsed();
                pool.allow_for(waited);
            }
            Some(_) | None => return,
        }
    }
}

impl Lease {
    /// Creates a share in a channel.
    pub(super) fn of_channel(connection: Connection, shown: Arc<str>) -> Self {
        Self {
            connection: Some(connection),
            reused: true,
            pool: None,
            shown,
        }
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Body>,
        sending: Option<&Sending>,
        operation: &'static str,
    ) -> Result<Result<Response<Incoming>, Option<hyper::Error>>> {
        let Some(connection) = &mut self.connection else {
            return Ok(Err(None));
        };
        let activity = Arc::clone(&connection.activity);
        // A body sent while it is read belongs to a large file.
        connection.is_bulk.store(sending.is_some(), Relaxed);
        let exchange = connection.send(request);
        let answered = watch(&activity, &self.shown, sending, operation, exchange).await;
        let is_broken = match &answered {
            Ok(Ok(_)) => false,
            // The peer may have closed a kept connection meanwhile; an error of the source says
            // nothing about the route.
            Ok(Err(cause)) => !self.reused && !cause.is_user(),
            Err(_) => true,
        };
        if is_broken {
            self.broke();
        }
        Ok(answered?.map_err(Some))
    }

    /// Records that the connection broke in the middle of a request: its route is avoided for a
    /// while.
    pub(super) fn broke(&self) {
        if let (Some(connection), Some(pool)) = (&self.connection, &self.pool) {
            pool.target.ways.failed(connection.way);
        }
    }

    /// Runs a later step of this request for as long as bytes move.
    pub(super) async fn watch<T>(
        &self,
        operation: &'static str,
        step: impl Future<Output = T>,
    ) -> Result<T> {
        match &self.connection {
            Some(connection) => {
                let done = watch(&connection.activity, &self.shown, None, operation, step).await;
                if done.is_err() {
                    self.broke();
                }
                done
            }
            None => Ok(step.await),
        }
    }

    /// Keeps the connection for the next request, since this answer was read to its end.
    pub(super) fn give_back(mut self) {
        if let Some(mut connection) = self.connection.take() {
            connection.idle_since = Instant::now();
            connection.used = true;
            let Some(pool) = self.pool.take() else {
                return;
            };
            pool.target.ways.served(connection.way);
            let mut state = pool.state();
            if pool.is_kept(&connection) {
                pool.hand_on(&mut state, connection);
            } else {
                state.open -= 1;
                pool.serve_waiting(&mut state);
            }
        }
    }
}

impl Drop for Lease {
    /// A connection in the middle of an answer can't be reused.
    fn drop(&mut self) {
        if self.connection.take().is_some()
            && let Some(pool) = &self.pool
        {
            let mut state = pool.state();
            state.open -= 1;
            pool.serve_waiting(&mut state);
        }
    }
}
