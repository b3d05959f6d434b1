//! FTS's interface: its own clients and Rucio's tool drive the service, with real stores and
//! everything that goes wrong.

mod access;
mod clients;
mod jobs;
mod world;
