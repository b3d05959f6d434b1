//! The hands: moves bytes between endpoints: copy, encode, pull.

pub mod copy;
pub mod code;
pub mod dataset;
pub mod stripe;
