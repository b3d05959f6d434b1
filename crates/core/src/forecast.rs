//! Forecasts when what moves will be there.

pub(crate) mod completion;
pub(crate) mod delivery;
pub(crate) mod distances;
pub(crate) mod prices;
pub(crate) mod stage_in;
