//! `posthaste cp` as people run it: the real executable, real servers, real signals.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "copy/azure.rs"]
mod azure;
#[path = "copy/bad_input.rs"]
mod bad_input;
#[path = "copy/caps.rs"]
mod caps;
#[path = "copy/directions.rs"]
mod directions;
#[path = "copy/ftp.rs"]
mod ftp;
#[path = "copy/gateways.rs"]
mod gateways;
#[path = "copy/gcs.rs"]
mod gcs;
#[path = "copy/habits.rs"]
mod habits;
#[path = "copy/host.rs"]
mod host;
#[path = "copy/hostile.rs"]
mod hostile;
#[path = "copy/killed.rs"]
mod killed;
#[path = "copy/left_out.rs"]
mod left_out;
#[path = "copy/odd_files.rs"]
mod odd_files;
#[path = "copy/odd_hosts.rs"]
mod odd_hosts;
#[path = "copy/parking.rs"]
mod parking;
#[path = "copy/plugin.rs"]
mod plugin;
#[path = "support/processes.rs"]
mod processes;
#[path = "copy/relay.rs"]
mod relay;
#[path = "copy/roots.rs"]
mod roots;
#[path = "copy/s3.rs"]
mod s3;
#[path = "copy/stream.rs"]
mod stream;
#[path = "../../endpoint/tests/edges/table.rs"]
mod table;
#[path = "copy/trouble.rs"]
mod trouble;
#[path = "copy/two_writers.rs"]
mod two_writers;
#[path = "copy/web.rs"]
mod web;
#[path = "copy/world.rs"]
mod world;
