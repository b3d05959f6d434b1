//! Code that tests share.

pub mod raw;
pub mod running;
pub mod scene;
pub mod striped;
