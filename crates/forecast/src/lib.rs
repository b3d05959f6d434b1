//! The mind: what a link will carry, as quantiles.
#![no_std]
extern crate alloc;
