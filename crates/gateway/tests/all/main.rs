//! Gateways on real sockets.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod braid;
mod gateway;
mod ipv6;
mod support;
