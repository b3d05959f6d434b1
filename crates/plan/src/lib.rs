//! The mind: which depots, which shares, by when.
//!
//! Everything is a pure function of a [`Scene`]: what each depot takes a second and has room for, and
//! what was promised already. [`flow`] is the one model underneath: requests in the order of their
//! deadlines (preemptive EDF is optimal on one bottleneck) each take all that their depots still
//! carry, until something runs out. Finish forecasts, admission, offers and fan-out are questions
//! asked of it.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod fan_out;
pub mod fleet;
mod flow;
pub mod horizon;
mod offer;
pub mod patience;
pub mod run;
mod scene;
mod timetable;
pub mod tuner;

pub use fan_out::{Change, Pace, choose, review};
pub use flow::{Lane, Load, Outcome, Supply, flow};
pub use offer::{Offer, offers};
pub use scene::{Fit, Promise, Proposal, Scene};
pub use timetable::{Timetable, TimetableError};
