//! The client side of gateways, which forward streams: a client shows a token and names the target.
//!
//! A gateway is known by its address and its secret, from which a token is made for each stream
//! ([`mint`]). Streams bring their own protection: TLS to a relay stays between its two ends.

mod braid;
mod dial;
mod known;
mod pattern;
mod reserved;
mod target;
mod token;
mod ways;

pub use braid::{Braid, BraidId, CONNECTIONS_HEADER, CONNECTIONS_MAX, NoBraid, join};
pub use dial::{
    HOPS_MAX, Hop, Opened, Passage, Segment, Way, ask, connect, connect_reserved, connect_through,
    read_head, resolve, tune,
};
pub use known::Gateways;
pub use pattern::{Pattern, is_of_this_machine, is_own};
pub use reserved::{Reserved, is_reservation};
pub use target::{Host, Target, split_port};
pub use token::{
    Refusal, TOKEN_LIFETIME_S, is_for_all, mint, mint_for_joining, verify, verify_for_joining,
};
pub(crate) use ways::{Ways, connect_by};
