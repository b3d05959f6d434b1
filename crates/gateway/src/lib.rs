//! Gateway that forwards streams, so that each segment of a long path has a TCP connection of its
//! own.
//!
//! A single connection over the whole path finds its rate slowly and loses it with each lost
//! packet, both in proportion to the round trip. Two connections that meet at a gateway each have a
//! share of the round trip. Each has the congestion control and buffers that its segment needs
//! (`overlay-2010`, section III). Ordinary programs connect by SOCKS5 or HTTP CONNECT, or to a port
//! that leads to one target. Gateways connect to each other by HTTP CONNECT.
//!
//! ```text
//! client ──► greeting ──► rules: may it? ──► table: which way? ──► dial (next gateway | target)
//!                                                                          │
//!                                   carry: socket ► pipe ► socket, both ways, until both have ended
//! ```
//!
//! The gateway never inspects the bytes nor copies them into its process (`splice`). It reads only
//! as much as the other side accepts, so a slow reader holds back its sender. Clients of SOCKS5 and
//! HTTP CONNECT need a token made from the gateway's secret, and reach only targets that the
//! operator allows.
//!
//! If a table says so, several connections carry one stream over the segment to the next gateway:
//! `braid`, [its protocol](../../../docs/reference/gateway-protocol.md).
//!
//! A gateway also reserves rates on its machine's egress links, for its own streams and for any
//! other packets that pass the machine: `reserve`, [the
//! algorithm](../../../docs/algorithms/reservations.md).

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

/// Port that leads to one target, for programs without proxy support.
#[derive(Debug, Clone)]
pub struct Forward {
    /// Address on which it listens. Any client that can connect there gets through, as none can be
    /// asked for a token.
    pub listen: SocketAddr,
    /// Target of the port.
    pub target: Target,
}

/// Options of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Folder of the secret; the gateway creates the secret if it is missing.
    pub dir: PathBuf,
    /// Address of the port for SOCKS5 and HTTP CONNECT; port 0 chooses a free one.
    pub listen: SocketAddr,
    /// Ports that lead to one target each.
    pub forwards: Vec<Forward>,
    /// Allowed targets, and the routes to them.
    pub table: Table,
    /// Most streams carried at once. Each takes two descriptors, and four more and up to 512 KiB
    /// while it is busy.
    pub streams_max: usize,
    /// Devices on which egress rates are reserved; needs CAP_NET_ADMIN.
    pub reserve: Vec<Reserve>,
}
