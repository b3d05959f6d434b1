//! The mind: what a link will carry and when a job will start, as quantiles.
//!
//! A [`Series`] is one link in one direction. Each measurement scores a small battery of simple
//! predictors by the error each would just have made (postcasting), the best of them forecasts the
//! next measurement, and the ratios of measurement to forecast turn that one number into quantiles.
//! Before the first measurement a [`Prior`] speaks. A [`Path`] holds two of them, for transfers and
//! for probes, and lets what it knows age. All of that is integers, so that a forecast is the
//! same on every machine. [`queue`] says how long jobs wait.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod mapping;
mod path;
mod predictor;
mod probe;
pub mod queue;
mod series;

pub use path::{Measure, Path, Score};
pub use probe::{Finding, Probe};
pub use series::{Prior, Quantiles, Series};
