//! `posthaste cp` as people run it: the real executable, real servers, real signals.

mod azure;
mod bad_input;
mod caps;
mod directions;
mod ftp;
mod gateways;
mod gcs;
mod habits;
mod host;
mod hostile;
mod killed;
mod left_out;
mod odd_files;
mod odd_hosts;
mod parking;
mod plugin;
mod relay;
mod roots;
mod s3;
mod stream;
#[path = "../../../endpoint/tests/all/edges/table.rs"]
mod table;
mod trouble;
mod two_writers;
mod versions;
mod web;
mod world;
