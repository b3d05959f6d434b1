//! The posthaste executable.
fn main() {}
