//! Tests of moving and keeping bytes, against real files and programs.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[macro_use]
mod support;

mod abandoned;
mod age;
mod scan_kill;
mod told_tree;
