//! What an endpoint can do, as data: callers branch on it and never on the protocol.

pub mod rows;

/// What an endpoint can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The scheme of its addresses, `file` for local paths.
    pub scheme: &'static str,
    /// Names may be any bytes but `/` and NUL; otherwise they must be UTF-8.
    pub byte_names: bool,
    /// Names must be printable ASCII.
    pub ascii_names: bool,
    /// Directories can be listed.
    pub lists: bool,
    /// Listings of whole trees leave marks to go on from ([`crate::Listing::mark`]).
    pub listing_marks: bool,
    /// Reading can start in the middle of a file; otherwise a file is one stream from its start.
    pub ranges: bool,
    /// Files can be written.
    pub writes: bool,
    /// Files can be removed.
    pub removes: bool,
    /// Segments of one file may be written at once and in any order; otherwise one after the
    /// other.
    pub segments_in_any_order: bool,
    /// A large file that a killed copy left unfinished can be continued.
    pub resumes: bool,
    /// A large file can be begun before its length is known.
    pub open_ended: bool,
    /// The smallest step in which given mtimes are kept, in nanoseconds; `None` where they are not
    /// and a file's mtime is when it was stored.
    pub mtime_step_ns: Option<u32>,
    /// The first and the last second since 1970 that a kept mtime can have: others become the nearest of them.
    pub mtime_secs: [i64; 2],
    /// A listing already tells mtimes; otherwise each file has to be asked.
    pub mtimes_listed: bool,
    /// Permission bits are kept.
    pub modes: bool,
    /// Symbolic links are kept.
    pub links: bool,
    /// Directories are there by themselves and have to be made before what lies in them; otherwise
    /// they are what keys begin with.
    pub directories: bool,
    /// Directories have modes and mtimes that can be set.
    pub directory_attributes: bool,
    /// The server can copy among its own files.
    pub server_copy: bool,
    /// A write can be made to fail when the file is there already or has changed.
    pub conditional_writes: bool,
    /// Checksums the store computes itself, keeps and tells: `crc64nvme`, `crc32c`, `md5`.
    pub checksums: &'static [&'static str],
    /// Files up to this size travel in one piece; larger ones in segments.
    pub segment_size_min: u64,
    /// Fewest bytes of a larger file that one request carries.
    pub piece_bytes_min: u64,
    /// Files at once that such servers are used to from one client.
    pub files_at_once_max: u16,
    /// Largest file, where there is a limit, in bytes.
    pub file_bytes_max: Option<u64>,
    /// Bytes of small files that travel in one request; 0 where each takes a request of its own.
    pub bundle_bytes_max: u64,
    /// Small files that may be under way at once in each lane: pipelined on its connection where
    /// the protocol can, else as further requests.
    pub requests_ahead_max: u16,
    /// A segment being written is kept in memory whole until the store has it.
    pub segments_held: bool,
}

impl Capabilities {
    /// An endpoint of which nothing is known but that it can be read from the start: what others
    /// add is said by naming it.
    #[must_use]
    pub const fn least(scheme: &'static str) -> Self {
        Self {
            scheme,
            byte_names: false,
            ascii_names: false,
            lists: false,
            listing_marks: false,
            ranges: false,
            writes: false,
            removes: false,
            segments_in_any_order: false,
            resumes: false,
            open_ended: false,
            mtime_step_ns: None,
            mtime_secs: [i64::MIN, i64::MAX],
            mtimes_listed: false,
            modes: false,
            links: false,
            directories: true,
            directory_attributes: false,
            server_copy: false,
            conditional_writes: false,
            checksums: &[],
            segment_size_min: 8 << 20,
            piece_bytes_min: 8 << 20,
            files_at_once_max: 64,
            file_bytes_max: None,
            bundle_bytes_max: 0,
            requests_ahead_max: 1,
            segments_held: true,
        }
    }

    /// Whether the store refuses bytes that don't have the CRC-64/NVME they are sent with, and
    /// tells it when they are read.
    #[must_use]
    pub fn stores_checksum(&self) -> bool {
        self.checksums.contains(&"crc64nvme")
    }
}
