//! Routes to a place, and their state: direct, or through gateways.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_plan::ways::Ways as Order;
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use super::{
    dial::{Hop, Way, connect_reserved},
    reserved::Reserved,
    target::{Host, Target},
};
use crate::{Error, ErrorKind, Locus, Result};

/// Timeout for opening each segment of a way; any usable segment opens within it, even on the far
/// side of the world.
const SEGMENT_TIMEOUT: Duration = Duration::from_secs(3);

/// Routes to one place, and their state.
#[derive(Debug)]
pub(crate) struct Ways {
    all: Vec<Way>,
    order: Mutex<Order>,
    since: Instant,
}

impl Ways {
    pub(crate) fn new(all: Vec<Way>) -> Self {
        Self {
            order: Mutex::new(Order::new(all.len())),
            all,
            since: Instant::now(),
        }
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// Returns the gateways of a way.
    pub(crate) fn hops(&self, way: usize) -> &[Hop] {
        self.all.get(way).map_or(&[], |way| way.hops.as_slice())
    }

    /// Returns the names of the ways, in their order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|way| way.name.clone()).collect()
    }

    /// Prefers this route from now on.
    pub(crate) fn want(&self, way: usize) {
        self.order().want(way);
    }

    /// Returns whether any way goes through gateways.
    pub(crate) fn has_gateways(&self) -> bool {
        self.all.iter().any(|way| !way.hops.is_empty())
    }

    /// Returns the way that the next connection would use.
    pub(crate) fn first(&self) -> Option<usize> {
        self.order().first(self.now())
    }

    /// Returns the ways to try, one after the other.
    pub(crate) fn to_try(&self) -> Vec<usize> {
        self.order().order(self.now())
    }

    /// Returns whether the next connection would use this way.
    pub(crate) fn is_first(&self, way: usize) -> bool {
        self.first() == Some(way)
    }

    pub(crate) fn failed(&self, way: usize) {
        self.order().failed(way, self.now());
    }

    pub(crate) fn served(&self, way: usize) {
        self.order().served(way, self.now());
    }
}

/// Connects to `host` through gateways, as one of a reservation's streams there. Also returns the
/// time that took: no less than one round trip over the whole way.
pub(crate) async fn connect_by(
    hops: &[Hop],
    host: &str,
    port: u16,
    reservation: Option<&Reserved>,
) -> Result<(TcpStream, Duration)> {
    let unreachable = |cause: Error| {
        // A gateway's refusal says nothing about the place.
        let kind = match cause.is_temporary() {
            true => cause.kind(),
            false => ErrorKind::Unreachable,
        };
        Error::new(kind, "reach through gateways", format!("{host}:{port}"))
            .at(Locus::Network)
            .cause(cause)
    };
    let Some(read) = Host::read(host) else {
        return Err(Error::new(
            ErrorKind::Invalid,
            "reach through gateways",
            host.to_owned(),
        )
        .cause("no gateway can lead to a host of this name"));
    };
    let target = Target { host: read, port };
    let started = Instant::now();
    // Each gateway asks the next.
    let limit = SEGMENT_TIMEOUT * u32::try_from(hops.len() + 1).unwrap_or(u32::MAX);
    let late = || Error::new(ErrorKind::TimedOut, "connect to", target.to_string());
    let connected = timeout(limit, connect_reserved(hops, &target, reservation)).await;
    let connected = connected.unwrap_or_else(|_| Err(late().cause("no answer")));
    let (stream, early) = connected.map_err(unreachable)?;
    if !early.is_empty() {
        let error = Error::new(ErrorKind::Unreachable, "read from", target.to_string());
        return Err(unreachable(error.cause("it speaks before it is asked")));
    }
    Ok((stream, started.elapsed()))
}
