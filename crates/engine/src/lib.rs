//! The hands: moves bytes between endpoints: copy, encode, pull.

pub mod copy;
