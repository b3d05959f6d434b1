//! Starts of queued jobs: bounds from others' waits, a simulation of the live queue, and the
//! outcomes of earlier forecasts.

mod bound;
mod calibration;
mod history;
mod rolling;
mod score;

pub use bound::{Bounds, Shape, Waits};
pub use calibration::{Calibration, Data, Said};
pub use rolling::{DEPTH_MAX, Queued, Running, Site, Starts, Wake, starts};
pub use score::Score;
