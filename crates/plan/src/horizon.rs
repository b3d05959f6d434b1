//! Planning over time: what goes over which link in which slot (`docs/algorithms/time-expanded-plan.md`).
//!
//! Where [`Supplies::early`](crate::Supplies::early) asks who is done when if nothing changes, a [`Problem`] says what every
//! link carries in each slot of a [`Grid`], what every node has room for, and what each [`Demand`]
//! wants. A [`Schedule`] answers it and can be checked against it. [`greedy`] makes one in linear
//! time; the solver of the floor above makes better ones. [`Calendar`] is the book of what is free.

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
