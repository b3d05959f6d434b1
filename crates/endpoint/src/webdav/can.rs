//! Capabilities of WebDAV.

use crate::{Capabilities, trial::SECOND_NS, web::WHOLE_BYTES_MAX};

/// Capabilities, at servers that support ranges and keep times.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    byte_names: true,
    lists: true,
    ranges: true,
    writes: true,
    removes: true,
    mtime_step_ns: Some(SECOND_NS),
    mtimes_listed: true,
    server_copy: true,
    segment_size_min: WHOLE_BYTES_MAX,
    requests_ahead_max: 8,
    segments_held: false,
    ..Capabilities::least("webdav")
};
