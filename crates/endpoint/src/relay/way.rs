//! The ways to a relay: straight, or through gateways.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_plan::ways::Ways as Order;
use posthaste_types::Bytes as Amount;
use tokio::{net::TcpStream, time::Instant};

use super::RelayClient;
use crate::{
    Error, ErrorKind, Locus, Result,
    gateway::{Hop, Host, Target, Way, connect_through},
};

/// Ways to one relay, and how they do.
pub(super) struct Ways {
    all: Vec<Way>,
    order: Mutex<Order>,
    since: Instant,
}

impl Ways {
    pub(super) fn new(all: Vec<Way>) -> Self {
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

    /// The gateways of a way.
    pub(super) fn hops(&self, way: usize) -> &[Hop] {
        self.all.get(way).map_or(&[], |way| way.hops.as_slice())
    }

    /// Their names, in their order.
    pub(super) fn names(&self) -> Vec<String> {
        self.all.iter().map(|way| way.name.clone()).collect()
    }

    /// Wants this one before all others from now on.
    pub(super) fn want(&self, way: usize) {
        self.order().want(way);
    }

    /// The one that the next connection would take.
    pub(super) fn first(&self) -> Option<usize> {
        self.order().first(self.now())
    }

    /// Those to try, one after the other.
    pub(super) fn to_try(&self) -> Vec<usize> {
        self.order().order(self.now())
    }

    /// Whether the next connection would take this one.
    pub(super) fn is_first(&self, way: usize) -> bool {
        self.first() == Some(way)
    }

    pub(super) fn failed(&self, way: usize) {
        self.order().failed(way, self.now());
    }

    pub(super) fn served(&self, way: usize) {
        self.order().served(way, self.now());
    }
}

impl RelayClient {
    /// The names of the ways, in their order.
    #[must_use]
    pub fn ways(&self) -> Vec<String> {
        self.pool.ways.names()
    }

    /// Wants this way, by its place, before all others: the next connection takes it if it opens.
    pub fn take_way(&self, way: usize) {
        self.pool.ways.want(way);
    }

    /// The place of the way that the next connection would take.
    #[must_use]
    pub fn way(&self) -> Option<usize> {
        self.pool.ways.first()
    }

    /// Bytes that have arrived at the relay's machine so far, from all clones; none while they go through
    /// gateways, of which nobody can see from here what they have passed on.
    #[must_use]
    pub fn arrived(&self) -> Option<Amount> {
        let is_straight = self.pool.ways.hops(self.way()?).is_empty();
        is_straight.then(|| Amount::new(self.pool.traffic.arrived.count()))
    }
}

/// Connects to `host` through gateways. Also tells how long that took: no less than one time over the whole way and back.
pub(super) async fn connect(hops: &[Hop], host: &str, port: u16) -> Result<(TcpStream, Duration)> {
    let unreachable = |cause: Error| {
        // What a gateway refuses says nothing about the relay.
        let kind = match cause.is_temporary() {
            true => cause.kind(),
            false => ErrorKind::Unreachable,
        };
        Error::new(kind, "reach through gateways", format!("{host}:{port}"))
            .at(Locus::Network)
            .cause(cause)
    };
    let Some(read) = Host::read(host) else {
        return Err(
            Error::new(ErrorKind::Invalid, "use the depot", host.to_owned())
                .cause("no gateway can lead to a host of this name"),
        );
    };
    let target = Target { host: read, port };
    let started = Instant::now();
    let (stream, early) = connect_through(hops, &target).await.map_err(unreachable)?;
    if !early.is_empty() {
        return Err(Error::new(
            ErrorKind::Unreachable,
            "reach through gateways",
            target.to_string(),
        )
        .at(Locus::Network)
        .cause("it speaks before it is asked"));
    }
    Ok((stream, started.elapsed()))
}
