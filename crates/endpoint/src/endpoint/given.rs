//! Data that one process gives to an endpoint, or to another's writer.

use std::ops::Range;

use bytes::Bytes;

use crate::{Checksum, file_spec::FileSpec};

/// Small file being sent, whole in memory.
#[derive(Debug)]
pub struct Parcel {
    /// Destination path.
    pub path: Vec<u8>,
    /// Attributes to keep.
    pub spec: FileSpec,
    /// Bytes, in order.
    pub data: Vec<Bytes>,
    /// Checksum of the bytes.
    pub sum: Checksum,
}

/// Segment of a file of another process's writer, which [`Writer::lend`](super::Writer::lend) lets others write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LentSegment {
    /// Token from the writer. Never a secret.
    pub token: String,
    /// Index of the segment.
    pub index: u64,
    /// Range of its bytes.
    pub range: Range<u64>,
}
