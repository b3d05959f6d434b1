//! The mind: which depots, which shares, by when.
#![no_std]
extern crate alloc;
