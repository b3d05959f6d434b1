//! A gateway: forwards streams, so that each segment of a long path has a TCP of its own.
//!
//! One connection over the whole path finds its rate slowly and loses it with each lost packet, both in
//! proportion to the round trip. Two connections that meet at a gateway each have a part of the round trip, and each the
//! congestion control and buffers that its segment needs (`overlay-2010`, section III). Ordinary programs come in by SOCKS5
//! or HTTP CONNECT, or at a port that leads to one place; gateways reach each other by HTTP CONNECT.
//!
//! ```text
//! client ──► greeting ──► rules: may it? ──► table: which way? ──► dial (next gateway | target)
//!                                                                          │
//!                                   carry: socket ► pipe ► socket, both ways, until both have ended
//! ```
//!
//! What passes is never looked at and never copied into this process (`splice`), and only as much is taken in as the
//! other side takes: a slow reader holds back its sender. Nobody gets through without a token made from the
//! gateway's secret, and nobody gets anywhere that its operator does not allow.
//!
//! Where a table says so, several connections carry one stream over the segment to the next gateway: `braid`,
//! [its protocol](../../../docs/reference/gateway-protocol.md).
//!
//! A gateway also reserves rates on its machine's ways out, for its own streams and for any other packets that pass
//! the machine: `reserve`, [the algorithm](../../../docs/algorithms/reservations.md).

mod braid;
mod carry;
mod clock;
mod dial;
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod greeting;
mod limits;
mod reserve;
mod route;
mod tally;

use std::{net::SocketAddr, path::PathBuf};

use posthaste_endpoint::gateway::Target;

pub use gate::Gateway;
pub use greeting::LocalDoor;
pub use reserve::Reserve;
pub use route::Table;
pub use tally::Counts;

/// A port that leads to one place, for programs that know no proxies.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Where it listens. Whoever can connect there gets through: there is nobody to ask for a token.
    pub listen: SocketAddr,
    /// Where it leads.
    pub target: Target,
}

/// How a gateway is set up.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Where its secret is; made when missing.
    pub dir: PathBuf,
    /// Where SOCKS5 and HTTP CONNECT come in, on one port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Ports that lead to one place each.
    pub forwards: Vec<Forward>,
    /// Where it leads to, and by which way.
    pub table: Table,
    /// Streams carried at once. Each takes two descriptors, and four more and up to 512 KiB while it is busy.
    pub streams_max: usize,
    /// Devices on whose way out rates are reserved; takes CAP_NET_ADMIN.
    pub reserve: Vec<Reserve>,
}
