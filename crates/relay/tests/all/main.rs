//! Tests of a relay on a real port.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod behind_gateway;
mod bucket;
mod files;
mod finish_ahead;
mod follow;
mod forward;
mod gather;
mod outlet;
mod probe;
mod pull;
mod pull_onto;
mod relay;
mod reserved;
mod scatter;
mod space;
mod support;
