//! Servers and file systems that misbehave, each as some real ones do: results are right or an
//! error, never wrong.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod files;
mod front;
mod ftp;
mod server;
mod sftp;

pub use files::{Call, Deed, Files, Habits, Refuses};
pub use front::{Spoils, front};
pub use ftp::{FtpHabit, FtpServer};
pub use server::{Answer, Asked, Server};
pub use sftp::{SftpSpoils, sftp_server};
