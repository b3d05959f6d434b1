//! Plug-ins: the reference ones pass the suite, and misbehaving ones are told apart and survived.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "plugin/misbehaviour.rs"]
mod misbehaviour;
#[path = "plugin/reference.rs"]
mod reference;
