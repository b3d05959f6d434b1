//! The hands: one shape over local files, S3, SFTP and relays.

mod access;
mod checksum;
mod clock;
mod config;
mod endpoint;
mod error;
mod ledger;
mod location;
pub mod posix;
pub mod relay;
pub mod s3;
pub mod sftp;

pub use access::Access;
pub use checksum::{Checksum, Summer};
pub use endpoint::{
    Boxed, ByteStream, Capabilities, Endpoint, Entry, FileSpec, FileTime, Kind, Listing, Reader,
    Whole, Writer, base_name, is_unfinished, join,
};
pub use error::{Error, ErrorKind, Locus, Result, Status};
pub use location::Location;
