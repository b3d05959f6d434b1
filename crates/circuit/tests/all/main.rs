//! Clients of networks that sell bandwidth, against their stand-ins.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod nsi;
mod oscars;
mod support;
