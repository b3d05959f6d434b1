//! What few requests have.

use posthaste_core::contract::Windows;
use posthaste_types::{ByteRate, RequestId, Timestamp, record};

use super::RequestRecord;
use crate::{
    database::{Row, Trouble},
    from_sql,
};

record! {
    /// On which terms a depot is lent for one request alone.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LentFor {
        /// The name of the depot.
        pub depot: String,
        /// When something may be sent there, by the centre's clock.
        pub windows: Windows,
        /// Nothing is while its machine has as much to do as this, in thousandths of a core's for each core, or more.
        pub load_max_permille: Option<u32>,
    }
}

record! {
    /// What a stage-in has beyond what every request has.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct StageIn {
        /// The addresses of its sources, each of which holds all of it.
        pub sources: Vec<String>,
        /// The profile with whose credentials they are read.
        pub profile: Option<String>,
        /// Since when it is welcome.
        pub not_before: Option<Timestamp>,
        /// Most that may be read for it.
        pub rate_max: Option<ByteRate>,
    }
}

record! {
    /// Which files below its source are meant, as rclone's patterns.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Patterns {
        /// Those that match one of these; all where there are none.
        pub include: Vec<String>,
        /// And none that match one of these.
        pub exclude: Vec<String>,
    }
}

impl Patterns {
    /// Whether all files are meant.
    pub fn is_all(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }
}

record! {
    /// A single file that goes to an address: the address is its own.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct OneFile {
        /// Whether it takes the place of a file that is there.
        pub replaces: bool,
        /// The profile with whose credentials it is written; those of the environment where none is named.
        pub profile: Option<String>,
        /// Whether what is there in the end is read back and compared with what was sent.
        pub verify: bool,
        /// What is to be there in the end, like `adler32:0123abcd`, or its size in bytes, or both with a space between.
        pub checksum: Option<String>,
    }
}

impl RequestRecord {
    /// Whether some files of its directory are meant, not all that lies below it.
    pub fn is_of_some(&self) -> bool {
        !self.only.is_empty() || self.named.is_some() || !self.patterns.is_all()
    }

    /// The names of where it goes.
    pub fn destinations(&self) -> impl Iterator<Item = &str> {
        self.destination.split(',').filter(|name| !name.is_empty())
    }

    /// The names of all depots that may hold something of it: those on its way, then destinations.
    pub fn holders(&self) -> impl Iterator<Item = &str> {
        let pinned = self.pinned.iter().filter(|name| !self.via.contains(name));
        let via = self.via.iter().chain(pinned).map(String::as_str);
        via.chain(self.destinations())
    }
}

pub(super) fn id_of(row: &Row) -> Result<RequestId, Trouble> {
    Ok(RequestId::new(from_sql(row.get("id")?)))
}
