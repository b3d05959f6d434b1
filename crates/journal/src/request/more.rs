//! Facts that few requests have.

use posthaste_core::contract::Windows;
use posthaste_types::{ByteRate, RequestId, Timestamp, record};

use super::RequestRecord;
use crate::{
    database::{Row, Trouble},
    from_sql,
};

record! {
    /// Terms on which a depot is lent for one request alone.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LentFor {
        /// Name of the depot.
        pub depot: String,
        /// Hours at which data may be sent there, by the centre's clock.
        pub windows: Windows,
        /// Load of its machine from which nothing is sent there, in thousandths of a core for each
        /// core.
        pub load_max_permille: Option<u32>,
    }
}

record! {
    /// Additional facts of a stage-in.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StageIn {
        /// Addresses of its sources, each of which holds all of it.
        pub sources: Vec<String>,
        /// Profile with the credentials to read them.
        pub profile: Option<String>,
        /// Earliest arrival.
        pub not_before: Option<Timestamp>,
        /// Most bytes a second that may be read for it.
        pub rate_max: Option<ByteRate>,
    }
}

record! {
    /// Selection of the files below its source, as rclone's patterns.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Patterns {
        /// Patterns of files to include; empty for all.
        pub include: Vec<String>,
        /// Patterns of files to exclude.
        pub exclude: Vec<String>,
    }
}

impl Patterns {
    /// Returns whether all files are selected.
    pub fn is_all(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

record! {
    /// Options of a single file that goes to its own address.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct OneFile {
        /// Replace a file that is there.
        pub replaces: bool,
        /// Profile with the credentials to write it; those of the environment if none is named.
        pub profile: Option<String>,
        /// Read the destination back in the end and compare it with the bytes sent.
        pub verify: bool,
        /// Expected result, as `adler32:0123abcd`, or its size in bytes, or both with a space
        /// between.
        pub checksum: Option<String>,
    }
}

impl RequestRecord {
    /// Returns whether some files of its directory are selected, not everything below it.
    pub fn is_of_some(&self) -> bool {
        !self.only.is_empty() || self.named.is_some() || !self.patterns.is_all()
    }

    /// Iterates over the names of its destinations.
    pub fn destinations(&self) -> impl Iterator<Item = &str> {
        self.destination.split(',').filter(|name| !name.is_empty())
    }

    /// Iterates over the names of all depots that may hold something of it: those on its way, then
    /// destinations.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        let pinned = self.pinned.iter().filter(|name| !self.via.contains(name));
        let via = self.via.iter().chain(pinned).map(String::as_str);
        via.chain(self.destinations())
    }
}

pub(super) fn id_of(row: &Row) -> Result<RequestId, Trouble> {
    Ok(RequestId::new(from_sql(row.get("id")?)))
}
