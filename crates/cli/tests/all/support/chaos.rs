//! Faults at any time, on hosts of their own.

pub mod hosts;
