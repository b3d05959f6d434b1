//! The mind: books, dispatcher and deadlines behind one pure contract.
//!
//! A driver hands [`Mind::step`] what happened and carries out what comes back. The books hold what
//! is known (of requests, replicas, transfers, depots and links); one file under `on`
//! takes each kind of input; `arrange` keeps them in order, `dispatch` places fragments, `outlook`
//! forecasts, `review` and `course` change what is under way, `tuning` how much of it at once,
//! `planning` asks for plans over time, `reserving` for rate on circuits, `spaces` for space on depots, `probing` for what nobody measured, `ways` chooses among several to one depot, `movers` gives work to processes that move data, `way_out` knows whether the centre's own line is full,
//! `done` says how far a request is, byte by byte,
//! `memory` keeps what was decided and `story` tells it. Nothing here reads a clock, a file, a socket or a random
//! number.
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
