//! Planning over time: what goes over which link in which slot
//! (`docs/algorithms/time-expanded-plan.md`).
//!
//! [`Supplies::early`](crate::Supplies::early) forecasts each finish if nothing changes. A
//! [`Problem`] gives the capacity of every link in each slot of a [`Grid`], the space of every
//! node, and each [`Demand`]. A [`Schedule`] answers it and can be checked against it. [`greedy`]
//! makes one in linear time; the solver of the floor above makes better ones. [`Calendar`] records
//! the free capacity.

mod calendar;
mod course;
mod cut;
mod effort;
mod greedy;
mod grid;
mod limits;
mod price;
mod problem;
mod rooms;
mod schedule;
mod trial;

pub use calendar::Calendar;
pub use course::{Course, Shortfall};
pub use cut::cut;
pub use effort::Effort;
pub use greedy::greedy;
pub use grid::Grid;
pub use price::{Money, Price};
pub use problem::{Demand, Link, Node, Problem, Window};
pub use rooms::Rooms;
pub use schedule::{Flaw, Flow, Schedule, Worth};
