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

mod admission;
mod arrange;
mod arrival;
mod books;
mod concede;
pub mod contract;
mod course;
mod deliver;
mod dispatch;
mod distances;
mod domains;
mod done;
mod forget;
mod lighter;
mod memory;
mod mend;
mod mind;
pub mod movers;
mod on;
mod outlook;
mod planning;
mod pressing;
mod probing;
mod purse;
mod push;
mod redundancy;
mod reserving;
mod review;
mod settings;
mod spaces;
pub mod story;
mod transfers;
mod tuning;
mod views;
mod way_out;
mod ways;

pub use mind::Mind;
pub use settings::Settings;
