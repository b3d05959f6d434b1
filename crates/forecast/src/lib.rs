//! The forecasting part of the mind: rates of links and starts of jobs, as quantiles.
//!
//! A [`Series`] is one link in one direction. Each measurement scores a small battery of simple
//! predictors by the error each would just have made (postcasting). The best of them forecasts the
//! next measurement, and the ratios of measurement to forecast turn that number into quantiles.
//! Before the first measurement a [`Prior`] is used.
//!
//! A [`Path`] has two series, for transfers and for probes, and lets their knowledge age.
//! Everything is integers, so that a forecast is the same on every machine. [`queue`] forecasts the
//! waits of jobs.
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
