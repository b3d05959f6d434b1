//! **A stand-in** for OSCARS 1.2: not OSCARS, and no part of the product.
//!
//! OSCARS itself builds only against two private Maven repositories, so no test can start it. This follows its
//! source (esnet/oscars@7a40199b: `HoldController`, `ConnController`, `ModifyController`, `PCEController`, `ConnService` and
//! the classes they take and give) in routes, bodies, states, time-outs and in which errors have no words; what comes
//! from the network below (the building of circuits) it plays: a connection is up at its beginning, and over at its end.
//! All connections share one link of a given capacity.

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
    /// Errors tell their reason (`server.error.include-message=always`).
    talks: bool,
    connections: BTreeMap<String, Connection>,
    holds: u64,
}

impl OscarsStandIn {
    /// Starts it with a link of `capacity_mbps` between its two devices, for whoever shows `token`.
    ///
    /// # Errors
    /// When there is no port.
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

    /// Where it answers: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The next question to a path with `text` in it meets `fault`.
    pub fn plan(&self, text: &str, fault: Fault) {
        self.server.plan(text, fault);
    }

    /// Faults that were not met yet.
    #[must_use]
    pub fn planned(&self) -> usize {
        self.server.planned()
    }

    /// Time passes for it.
    pub fn pass(&self, seconds: i64) {
        self.server.with(|books| books.ahead_s += seconds);
    }

    /// Starts it again: connections break, and what is held is lost, as it is only in memory there.
    pub fn restart(&self) {
        self.server
            .with(|books| books.connections.retain(|_, one| one.phase != Phase::Held));
        self.server.break_all();
    }

    /// Whether errors tell their reason; as it comes, OSCARS keeps it to itself.
    pub fn talks(&self, talks: bool) {
        self.server.with(|books| books.talks = talks);
    }

    /// All that is up or to come fails, as when a device can't be configured.
    pub fn fail_all(&self) {
        self.server.with(|books| {
            books
                .connections
                .values_mut()
                .for_each(|one| one.failed = true)
        });
    }

    /// Connections that are held or reserved.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.server.with(|books| {
            books.expire();
            let taken = |one: &&Connection| one.phase != Phase::Archived;
            books.connections.values().filter(taken).count()
        })
    }

    /// Holds that were asked for and taken.
    #[must_use]
    pub fn holds(&self) -> u64 {
        self.server.with(|books| books.holds)
    }
}
