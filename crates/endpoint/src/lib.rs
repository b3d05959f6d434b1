//! Endpoints: one interface over local files, S3, SFTP, plug-ins and relays.

extern crate alloc;

mod access;
mod actor;
pub mod azure;
mod built_in;
pub mod capabilities;
mod checksum;
mod clock;
mod config;
mod cut;
mod dates;
mod descriptors;
mod dial;
mod endpoint;
mod error;
mod file_spec;
mod file_time;
mod ftp;
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
pub mod gcs;
pub mod kept;
mod ledger;
pub mod limits;
pub mod line;
mod lobby;
mod location;
mod objects;
mod outgoing;
mod pass;
pub mod peer;
pub mod plugin;
pub mod posix;
mod printer;
mod proxy;
mod reach;
mod relative;
pub mod relay;
pub mod s3;
mod sealed;
pub mod sftp;
pub mod site;
mod ssh;
mod steady_clock;
mod trial;
mod trickle;
mod unfinished;
mod unkept;
mod web;
pub mod webdav;
mod xml;

pub use access::{Access, Prices, is_slip, meant, nearest};
pub use actor::{Account, Accounts, Actor};
pub use built_in::{BUILT_IN, BuiltIn};
pub use capabilities::Capabilities;
pub use checksum::{Checksum, Compared, Crc32c, Crc32cSummer, StoredSum, StoredSummer, Summer};
pub use config::{Profile, Profiles, is_secret, own_profile, parse_profiles, profiles};
pub use descriptors::{descriptors_max, raise_descriptors};
pub use endpoint::{
    Boxed, ByteStream, Condition, Endpoint, Entry, FileSpec, FileTime, Kind, LentSegment, Listing,
    Parcel, Reader, Whole, Writer, base_name, join,
};
pub use error::{Error, ErrorKind, Locus, Result, Status};
pub use lobby::{Guest, Lobby};
pub use location::{Location, Protocol, Server, Store, shown_address};
pub use outgoing::{Counter, Outgoing};
pub use pass::{BodySum, Errand, Pass};
pub use reach::Reach;
pub use sealed::{SEALED, shown_sealed};
pub use steady_clock::{SteadyClock, Step};
pub use trial::{is_same_directory, is_same_place, measure_reads, measure_writes};
pub use unfinished::{
    UNFINISHED, draft_name, is_mark, is_unfinished, leaving_name, loss_name, mark_name, new_word,
    pull_name, trial_name,
};
pub use unkept::Unkept;
pub use web::{
    bearer_token,
    connector::{WebConnector, web_connector},
    deepest, encode,
    tls::{trusted_roots, web_tls, web_trust},
};
