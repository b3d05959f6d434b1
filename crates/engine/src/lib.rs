//! The hands: moves bytes between endpoints: copy, encode, pull.

pub mod code;
pub mod copy;
pub mod dataset;
pub mod pull;
pub mod stripe;
