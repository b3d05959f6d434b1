//! `posthaste cp` as people run it: the real executable, real servers, real signals.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "copy/bad_input.rs"]
mod bad_input;
#[path = "copy/directions.rs"]
mod directions;
#[path = "copy/killed.rs"]
mod killed;
#[path = "copy/world.rs"]
mod world;
