//! Hands that move bytes between endpoints: copies, encoding and pulls.

extern crate alloc;

mod agenda;
pub mod copy;
pub mod dataset;
pub mod draft;
pub mod envelope;
pub mod parked;
pub mod pull;
pub mod scan;
pub mod sealed;
pub mod stripe;

pub use posthaste_coding as code;
