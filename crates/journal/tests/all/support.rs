//! Fixtures that several of these tests share.

pub mod places;
pub mod requests;
