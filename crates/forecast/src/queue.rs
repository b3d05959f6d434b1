//! When a queued job will start: bounds from what others waited, the live queue simulated forward, and what
//! became of such forecasts before.

mod bound;
mod calibration;
mod history;
mod rolling;
mod score;

pub use bound::{Bounds, Shape, Waits};
pub use calibration::{Calibration, Data, Said};
pub use rolling::{DEPTH_MAX, Queued, Running, Site, Starts, Wake, starts};
pub use score::Score;
