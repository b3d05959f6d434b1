//! The journal, in a file and in PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod backup;
mod damage;
mod fts;
mod journal;
mod lease;
mod migration;
mod support;
