//! Stage-ins: whether each is possible, and what comes next from where.

pub(crate) mod admission;
pub(crate) mod budget;
pub(crate) mod counter_offer;
pub(crate) mod fetch;
pub(crate) mod near;
