//! Capabilities of endpoints, as data: callers branch on them and never on the protocol.

pub mod rows;

/// Capabilities of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Scheme of its addresses, `file` for local paths.
    pub scheme: &'static str,
    /// True if names may be any bytes but `/` and NUL; otherwise they must be UTF-8.
    pub byte_names: bool,
    /// True if names must be printable ASCII.
    pub ascii_names: bool,
    /// True if directories can be listed.
    pub lists: bool,
    /// True if listings of whole trees leave marks to continue from ([`crate::Listing::mark`]).
    pub listing_marks: bool,
    /// True if reading can start in the middle of a file; otherwise a file is one stream from its
    /// start.
    pub ranges: bool,
    /// True if files can be written.
    pub writes: bool,
    /// True if files can be removed.
    pub removes: bool,
    /// True if segments of one file may be written at once and in any order; otherwise they are
    /// written in sequence.
    pub segments_in_any_order: bool,
    /// True if a large file that a killed copy left unfinished can be continued.
    pub resumes: bool,
    /// True if a large file can be begun before its length is known.
    pub open_ended: bool,
    /// Smallest step in which given mtimes are kept, in nanoseconds; `None` if they are not kept
    /// and a file's mtime is the time at which it was stored.
    pub mtime_step_ns: Option<u32>,
    /// First and last second since 1970 that a kept mtime can have: others become the nearest of
    /// them.
    pub mtime_secs: [i64; 2],
    /// True if a listing includes mtimes; otherwise each file needs a request.
    pub mtimes_listed: bool,
    /// True if permission bits are kept.
    pub modes: bool,
    /// True if symbolic links are kept.
    pub links: bool,
    /// True if directories are objects of their own and must be made before their content;
    /// otherwise they are prefixes of keys.
    pub directories: bool,
    /// True if directories have modes and mtimes that can be set.
    pub directory_attributes: bool,
    /// True if the server can copy among its own files.
    pub server_copy: bool,
    /// True if a write can be conditional: it fails if the file exists already or has changed.
    pub conditional_writes: bool,
    /// Checksums that the store computes itself, keeps and reports: `crc64nvme`, `crc32c`, `md5`.
    pub checksums: &'static [&'static str],
    /// Largest size of a file that travels in one piece; larger ones travel in segments.
    pub segment_size_min: u64,
    /// Fewest bytes of a larger file in one request.
    pub piece_bytes_min: u64,
    /// Most files at once that such servers expect from one client.
    pub files_at_once_max: u16,
    /// Largest file, if there is a limit, in bytes.
    pub file_bytes_max: Option<u64>,
    /// Most bytes of small files in one request; 0 if each takes a request of its own.
    pub bundle_bytes_max: u64,
    /// Most small files in flight at once in each lane: pipelined on its connection if the protocol
    /// can, else as further requests.
    pub requests_ahead_max: u16,
    /// True if a segment being written is kept whole in memory until the store has it.
    pub segments_held: bool,
}

impl Capabilities {
    /// Returns the capabilities of an endpoint that can only be read from the start; others are
    /// added by name.
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

    /// Returns whether the store refuses bytes that do not match the CRC-64/NVME sent with them,
    /// and reports it when they are read.
    #[must_use]
    pub fn stores_checksum(&self) -> bool {
        self.checksums.contains(&"crc64nvme")
    }
}
