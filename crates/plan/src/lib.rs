//! The mind: which depots, which shares, by when.
//!
//! One model lies underneath: each depot is a [`Curve`] of what it still carries over time, and each
//! request takes its share out of the [`Supplies`] in turn. Taken as early as possible in the order of
//! deadlines (preemptive EDF, optimal on one bottleneck) that forecasts when each is done; taken as
//! late as its deadline allows it is a promise, and what stays free is the [`Scene`] a newcomer finds.
//! Admission, offers and fan-out are questions asked of it.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod curve;
pub mod decay;
pub mod deliver;
pub mod distance;
mod fan_out;
mod fill;
pub mod fleet;
pub mod horizon;
pub mod lease;
mod offer;
pub mod patience;
pub mod push;
pub mod redundancy;
pub mod reserve;
pub mod room;
pub mod run;
pub mod scatter;
pub mod scavenger;
mod scene;
mod shut;
mod timetable;
pub mod tuner;
pub mod ways;
mod windows;

pub use curve::Curve;
pub use fan_out::{Change, Pace, choose, review};
pub use fill::{Lane, Load, Outcome, Supplies, Supply, Whole};
pub use offer::{Offer, offers};
pub use scene::{Proposal, Scene};
pub use shut::Shut;
pub use timetable::{Timetable, TimetableError};
pub use windows::{Windows, WindowsError};
