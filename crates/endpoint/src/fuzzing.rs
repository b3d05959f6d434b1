//! Entries to the parsers of outside input, for the fuzz targets alone. Each accepts any bytes, and
//! panics when an invariant fails.

/// Reads a page of an Azure container's listing.
pub fn azure_listing(data: &[u8]) {
    crate::azure::try_listing(data);
}

/// Reads lines of an FTP server: answers, features, ports and entries.
pub fn ftp_reply(data: &[u8]) {
    crate::ftp::try_lines(data);
}

/// Reads a page of Google Cloud Storage's listing.
pub fn gcs_listing(data: &[u8]) {
    crate::gcs::try_listing(data);
}

/// Reads a folder's page on a web server, in HTML or JSON.
pub fn html_index(data: &[u8]) {
    crate::site::try_index(data);
}

/// Reads bytes from a host that runs posthaste; the first byte says in which steps they arrive.
pub fn peer_wire(data: &[u8]) {
    crate::peer::try_frames(data);
}

/// Reads the output of a plug-in; the first byte says in which steps it arrives.
pub fn plugin_output(data: &[u8]) {
    crate::plugin::try_output(data);
}

/// Reads an entry as a plug-in describes it.
pub fn plugin_entry(data: &[u8]) {
    crate::plugin::try_entry(data);
}

/// Reads a page of an S3 store's listing.
pub fn s3_listing(data: &[u8]) {
    crate::s3::try_listing(data);
}

/// Reads a packet of an SFTP server.
pub fn sftp_reply(data: &[u8]) {
    crate::sftp::try_reply(data);
}

/// Reads a WebDAV server's answer; the first byte says in which steps it arrives.
pub fn webdav_listing(data: &[u8]) {
    crate::webdav::try_listing(data);
}
