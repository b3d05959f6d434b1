//! Functions that several of these tests use.

pub mod playing;
