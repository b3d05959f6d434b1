//! When a queued job will start: bounds from what others waited, and the live queue simulated forward.

mod bound;
mod history;
mod rolling;

pub use bound::{Bounds, Shape, Waits};
pub use rolling::{Queued, Running, Site, Starts, Wake, starts};
