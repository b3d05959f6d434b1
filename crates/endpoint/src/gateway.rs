//! The client side of gateways, which forward streams: who wants one shows a token and says where to go.
//!
//! A gateway is known by its address and its secret, from which a token is made for each stream ([`mint`]). What
//! passes has the protection it brings along: TLS to a relay stays between its two ends.

mod dial;
mod known;
mod pattern;
mod reserved;
mod target;
mod token;
mod ways;

pub use dial::{
    HOPS_MAX, Hop, Segment, Way, ask, connect, connect_reserved, connect_through, read_head,
    resolve, tune,
};
pub use known::Gateways;
pub use pattern::{Pattern, is_of_this_machine};
pub use reserved::{Reserved, is_reservation};
pub use target::{Host, Target, split_port};
pub use token::{Refusal, TOKEN_LIFETIME_S, is_for_all, mint, verify};
pub(crate) use ways::{Ways, connect_by};
