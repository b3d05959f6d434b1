//! Requests for presigned URLs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Object to store; sent before the upload, and again once the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassBody {
    /// Size in bytes.
    pub size: u64,
    /// Its BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// Time until which the dataset is wanted, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Its CRC-64/NVME, as [`crate::Checksum::to_base64`] writes it.
    pub crc64nvme: String,
    /// Its MD5 in base64, if the relay asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// True if the store has it now.
    #[serde(default)]
    pub is_sent: bool,
}

/// Answer of the relay. The address is a secret, so none of it is ever shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassAnswer {
    /// Stored, and counted.
    Stored,
    /// The request must be repeated with the MD5.
    NeedsMd5,
    /// Presigned URL for the upload.
    Send {
        /// Target of the PUT.
        url: String,
        /// Headers that the PUT needs.
        headers: BTreeMap<String, String>,
    },
}
