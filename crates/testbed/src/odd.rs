//! Servers and file systems that misbehave, each as some are known to: what comes of them is right or refused, never taken for what
//! it is not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

pub use server::{Answer, Asked, Server};
