//! Code that several of these tests use.

#[macro_use]
pub mod refusing;
