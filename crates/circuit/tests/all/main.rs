//! Clients of bandwidth providers, against stand-ins.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod nsi;
mod oscars;
mod support;
