//! Tests of the planners.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod horizon;
mod shared_link;
mod tuner;
