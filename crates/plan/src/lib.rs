//! The planning part of the mind: which depots, which shares, by when.
//!
//! A single model is underneath: each depot is a [`Curve`] of its remaining rate over time, and
//! each request takes its share of the [`Supplies`] in turn. Taken as early as possible in order of
//! deadlines (preemptive EDF, optimal on one bottleneck), the shares forecast when each request is
//! done. Taken as late as its deadline allows, a share is a promise, and the rest is the [`Scene`]
//! of a newcomer. Admission, offers and fan-out are questions about it.
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
