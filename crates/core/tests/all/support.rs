//! What tests share.

pub mod arrivals;
pub mod desk;
pub mod inputs;
