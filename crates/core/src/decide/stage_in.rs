//! TODO

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod counter_offer;
pub(crate) mod fetch;
pub(crate) mod near;
