//! Parts that several of these tests share.

pub mod asking;
