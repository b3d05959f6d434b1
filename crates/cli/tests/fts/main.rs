//! FTS's interface: its own clients and Rucio's tool drive the service, with real stores and everything that goes wrong.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod access;
#[path = "../support/ask.rs"]
mod ask;
mod clients;
mod jobs;
#[path = "../support/processes.rs"]
mod processes;
mod world;
