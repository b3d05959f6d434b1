//! What several of these tests use.

pub mod places;
pub mod requests;
