//! Support that tests share.

pub mod accounts;
pub mod ask;
pub mod chaos;
pub mod files;
pub mod processes;
pub mod profiles;
pub mod sources;
