//! **A stand-in** for OSCARS 1.2: not OSCARS, and no component of the product.
//!
//! OSCARS itself builds only against two private Maven repositories, so no test can start it. This
//! follows its source (esnet/oscars@7a40199b: `HoldController`, `ConnController`,
//! `ModifyController`, `PCEController`, `ConnService` and the classes of their arguments and
//! results) in routes, bodies, states, time-outs and in which errors have no words. It simulates
//! the network below it: a connection is up at its beginning, and over at its end. All connections
//! share one link of a given capacity.

mod books;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::stand_in::{Fault, StandIn};

/// A stand-in for OSCARS on a loopback port; gone when dropped.
#[derive(Debug)]
pub struct OscarsStandIn {
    server: StandIn<Books>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Held,
    Reserved,
    Archived,
}

#[derive(Debug, Clone)]
struct Connection {
    phase: Phase,
    begin: i64,
    end: i64,
    mbps: i64,
    expires: i64,
    description: String,
    modified: i64,
    failed: bool,
}

#[derive(Debug)]
struct Books {
    capacity_mbps: i64,
    token: Option<String>,
    /// Seconds by which its clock is ahead of ours.
    ahead_s: i64,
    /// True if errors carry their reason (`server.error.include-message=always`).
    talks: bool,
    connections: BTreeMap<String, Connection>,
    holds: u64,
}

impl OscarsStandIn {
    /// Starts it with a link of `capacity_mbps` between its two devices, for clients with `token`.
    ///
    /// # Errors
    /// Fails if there is no port.
    pub fn start(capacity_mbps: i64, token: Option<&str>) -> Result<Self> {
        let server = StandIn::start(Books {
            capacity_mbps,
            token: token.map(ToOwned::to_owned),
            ahead_s: 0,
            talks: false,
            connections: BTreeMap::new(),
            holds: 0,
        })?;
        Ok(Self { server })
    }

    /// Address of the service: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Makes the next question to a path that contains `text` meet `fault`.
    pub fn plan(&self, text: &str, fault: Fault) {
        self.server.plan(text, fault);
    }

    /// Returns the number of planned faults that were not met yet.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.server.planned()
    }

    /// Advances its clock.
    pub fn pass(&self, seconds: i64) {
        self.server.with(|books| books.ahead_s += seconds);
    }

    /// Restarts it: connections break, and holds are lost, as OSCARS keeps them in memory only.
    pub fn restart(&self) {
        self.server
            .with(|books| books.connections.retain(|_, one| one.phase != Phase::Held));
        self.server.break_all();
    }

    /// Sets whether errors carry their reason; by default, OSCARS omits it.
    pub fn talks(&self, talks: bool) {
        self.server.with(|books| books.talks = talks);
    }

    /// Fails everything that is up or to come, as if a device could not be configured.
    pub fn fail_all(&self) {
        self.server.with(|books| {
            books
                .connections
                .values_mut()
                .for_each(|one| one.failed = true)
        });
    }

    /// Returns the number of connections held or reserved.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.server.with(|books| {
            books.expire();
            let taken = |one: &&Connection| one.phase != Phase::Archived;
            books.connections.values().filter(taken).count()
        })
    }

    /// Returns the number of accepted holds.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.server.with(|books| books.holds)
    }
}
