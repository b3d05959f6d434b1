//! The mind: books, dispatcher and deadlines behind one pure contract.
#![no_std]
extern crate alloc;

pub mod contract;
