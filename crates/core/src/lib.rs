//! The mind: books, dispatcher and deadlines behind one pure contract.
//!
//! A driver hands [`Mind::step`] its inputs and carries out the commands it returns. The books hold
//! what is known of requests, replicas, transfers, depots and links. One file under `on` takes each
//! kind of input. `arrange` keeps requests in order, `dispatch` places fragments, and `outlook`
//! forecasts. `review` and `course` change running requests, and `tuning` their number of flights.
//! `planning` asks for plans over time, `reserving` for rate on circuits, `spaces` for space on
//! depots, and `probing` for missing measurements. `ways` chooses among several ways to one depot,
//! and `movers` gives work to processes that move data. `way_out` knows whether the centre's uplink
//! is full, and `done` the progress of a request, byte by byte. `memory` keeps decisions, and
//! `story` narrates them. Nothing here reads a clock, a file, a socket or a random number.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod apply;
pub mod contract;
mod decide;
mod explain;
mod forecast;
mod machine;
pub mod movers;
mod settings;
mod state;

pub use explain::story;
pub use machine::Mind;
pub use settings::Settings;
