//! **A stand-in** for a provider of NSI-CS 2.1: not one, and nothing of the product.
//!
//! Real providers belong to networks. This follows the published interface (OGF GFD.237 and the
//! 2013/12 schemas and WSDL): namespaces, order of elements, SOAP actions, protocol version,
//! correlation, the three state machines of each reservation (RSM, PSM, LSM), versions of criteria
//! and error numbers. Every operation is done later than it is acknowledged: one query sees each
//! step in progress, and completes it. It answers to no `replyTo`. It simulates the network below
//! it: data flows from the start to the end of what is provisioned. All reservations share one link
//! of a given capacity. An STP with one VLAN carries one of them at a time, one with a range or
//! none any number.

mod books;
mod message;
mod show;

use std::collections::BTreeMap;

use anyhow::Result;

use crate::stand_in::{Fault, StandIn};

/// A stand-in for an NSI provider on a loopback port; gone when dropped.
#[derive(Debug)]
pub struct NsiStandIn {
    server: StandIn<Books>,
}

/// Deviations of real providers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NsiHabits {
    /// Does not know `queryResultSync`, forgets rejected reservations, and requires the whole
    /// service also in a change: OSCARS.
    pub forgets: bool,
    /// Shows criteria also before they are committed: OpenNSA.
    pub shows_held: bool,
    /// Never completes anything.
    pub stalls: bool,
    /// Rejects each commit.
    pub spoils_commits: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reserving {
    Start,
    Checking,
    Failed,
    Aborting,
    Held,
    Committing,
    Timeout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    Released,
    Provisioning,
    Provisioned,
    Releasing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Living {
    Created,
    Failed,
    PassedEndTime,
    Terminating,
    Terminated,
}

#[derive(Debug, Clone)]
struct Criteria {
    version: i64,
    begin: i64,
    end: i64,
    mbps: i64,
    stps: [String; 2],
    /// True if it was asked for with all of its service.
    whole: bool,
}

#[derive(Debug, Clone)]
struct Connection {
    global: Option<String>,
    description: Option<String>,
    requester: String,
    reserving: Reserving,
    provisioning: Activation,
    living: Living,
    committed: Option<Criteria>,
    /// Criteria of the reserve in progress.
    pending: Option<Criteria>,
    expires: i64,
    /// Correlation of the operation in progress.
    asked: String,
    /// Correlations and messages.
    results: Vec<(String, String)>,
}

#[derive(Debug)]
struct Books {
    capacity_mbps: i64,
    token: Option<String>,
    habits: NsiHabits,
    /// Seconds by which its clock is ahead of ours.
    ahead_s: i64,
    connections: BTreeMap<String, Connection>,
    /// Operations by their correlation, with their answers.
    heard: BTreeMap<String, (String, String)>,
    reserves: u64,
}

impl NsiStandIn {
    /// The provider's name.
    pub const PROVIDER: &str = "urn:ogf:network:provider.example:2026:nsa";
    /// The one requester that it accepts.
    pub const REQUESTER: &str = "urn:ogf:network:centre.example:2026:nsa:posthaste";
    /// Prefix of its STPs.
    pub const NETWORK: &str = "urn:ogf:network:provider.example:2026:";

    /// Starts it with a link of `capacity_mbps`, for clients with `token`.
    ///
    /// # Errors
    /// Fails if there is no port.
    pub fn start(capacity_mbps: i64, token: Option<&str>) -> Result<Self> {
        let server = StandIn::start(Books {
            capacity_mbps,
            token: token.map(ToOwned::to_owned),
            habits: NsiHabits::default(),
            ahead_s: 0,
            connections: BTreeMap::new(),
            heard: BTreeMap::new(),
            reserves: 0,
        })?;
        Ok(Self { server })
    }

    /// Address of the service: `http://127.0.0.1:PORT/services/provider`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("http://{}/services/provider", self.server.address())
    }

    /// Makes the next question of an operation meet `fault`.
    pub fn plan(&self, operation: &str, fault: Fault) {
        self.server.plan(&format!("service/{operation}"), fault);
    }

    /// Drops all planned faults.
    pub fn forget_plan(&self) {
        self.server.forget_plan();
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

    /// Sets its habits from now on.
    pub fn behave(&self, habits: NsiHabits) {
        self.server.with(|books| books.habits = habits);
    }

    /// Holds each reservation once more under another name, as if it had received each reserve
    /// twice.
    pub fn hear_twice(&self) {
        self.server.with(|books| {
            let held = |one: &&Connection| one.reserving == Reserving::Held;
            let twins: Vec<Connection> = books.connections.values().filter(held).cloned().collect();
            for twin in twins {
                books.reserves += 1;
                let name = format!("c-{:04}", books.reserves);
                books.connections.insert(name, twin);
            }
        });
    }

    /// Ends everything that is not over by force.
    pub fn fail_all(&self) {
        self.server.with(|books| {
            let created = |one: &&mut Connection| one.living == Living::Created;
            let all = books.connections.values_mut().filter(created);
            all.for_each(|one| one.living = Living::Failed);
        });
    }

    /// Returns the number of reservations that keep capacity from others.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.server.with(|books| {
            books.expire();
            let all = books.connections.values();
            all.filter(|one| !one.takes().is_empty()).count()
        })
    }

    /// Returns the number of reservations neither terminated nor forgotten.
    #[must_use]
    pub fn left(&self) -> usize {
        self.server.with(|books| {
            let gone =
                |one: &&Connection| !matches!(one.living, Living::Terminating | Living::Terminated);
            books.connections.values().filter(gone).count()
        })
    }

    /// Returns the number of first questions for a reservation.
    #[must_use]
    pub fn reserves(&self) -> u64 {
        self.server.with(|books| books.reserves)
    }
}
