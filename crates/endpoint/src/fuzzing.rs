//! Entries into the parsers of external input, for the fuzz targets only. Each accepts any bytes,
//! and panics if an invariant does not hold.

/// Parses a page of an Azure container's listing.
pub fn azure_listing(data: &[u8]) {
    crate::azure::try_listing(data);
}

/// Parses the lines of an FTP server: answers, features, ports and entries.
pub fn ftp_reply(data: &[u8]) {
    crate::ftp::try_lines(data);
}

/// Parses a page of Google Cloud Storage's listing.
pub fn gcs_listing(data: &[u8]) {
    crate::gcs::try_listing(data);
}

/// Parses a folder's page on a web server, in HTML or JSON.
pub fn html_index(data: &[u8]) {
    crate::site::try_index(data);
}

/// Parses the output of a host that runs posthaste; the first byte gives the sizes of its steps.
pub fn peer_wire(data: &[u8]) {
    crate::peer::try_frames(data);
}

/// Parses the output of a plug-in; the first byte gives the sizes of its steps.
pub fn plugin_output(data: &[u8]) {
    crate::plugin::try_output(data);
}

/// Parses an entry as a plug-in describes it.
pub fn plugin_entry(data: &[u8]) {
    crate::plugin::try_entry(data);
}

/// Parses a page of an S3 store's listing.
pub fn s3_listing(data: &[u8]) {
    crate::s3::try_listing(data);
}

/// Parses a packet of an SFTP server.
pub fn sftp_reply(data: &[u8]) {
    crate::sftp::try_reply(data);
}

/// Parses a WebDAV server's answer; the first byte gives the sizes of its steps.
pub fn webdav_listing(data: &[u8]) {
    crate::webdav::try_listing(data);
}
