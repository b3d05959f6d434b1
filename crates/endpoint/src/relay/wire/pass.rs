//! How those who send ask to be let through to a store.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is to be stored; asked before it is sent, and again once the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassBody {
    /// Its bytes.
    pub size: u64,
    /// Its BLAKE3, 64 hexadecimal digits.
    pub digest: String,
    /// Until when the dataset is wanted, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    /// Its CRC-64/NVME, as [`crate::Checksum::to_base64`] writes it.
    pub crc64nvme: String,
    /// Its MD5 in base64, where the relay asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub md5: Option<String>,
    /// Whether the store has it now.
    #[serde(default)]
    pub is_sent: bool,
}

/// What a relay says to that. The address is a secret, so none of it is ever shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassAnswer {
    /// It is stored, and counts.
    Stored,
    /// It is to be asked again with the MD5.
    NeedsMd5,
    /// It is to be sent there.
    Send {
        /// Where to, with a PUT.
        url: String,
        /// The headers that the PUT needs.
        headers: BTreeMap<String, String>,
    },
}
