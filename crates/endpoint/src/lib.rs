//! The hands: one shape over local files, S3, SFTP and relays.

mod error;

pub use error::{Error, ErrorKind, Locus, Result, Status};
