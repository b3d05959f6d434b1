//! Says what is there and why: views and stories.

pub(crate) mod by_slack;
pub(crate) mod circuits;
pub(crate) mod distances;
pub(crate) mod history;
pub(crate) mod progress;
pub(crate) mod stage_ins;
pub mod story;
pub(crate) mod transfers;
pub(crate) mod views;
