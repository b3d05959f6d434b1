//! Tests of endpoints, against real servers and unusual ones.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod azure;
mod conformance;
mod edges;
mod ftp;
mod gcs;
mod limits;
mod listing;
mod only_new;
mod outgoing;
mod plugin;
mod web;
