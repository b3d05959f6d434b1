//! The kinds of far ends.

use super::{load::Load, tool::Way};

/// A kind of far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A folder on the same disk.
    Local,
    /// An S3 server.
    S3,
    /// A Google Cloud Storage server.
    Gcs,
    /// An Azure Blob server.
    Azure,
    /// An SFTP server.
    Sftp,
    /// A host reached over SSH, with its own tools at the other end.
    Host,
    /// A posthaste relay that runs already.
    Relay,
    /// A web server, which is read only.
    Http,
    /// A WebDAV server.
    WebDav,
    /// An FTP server.
    Ftp,
    /// A GridFTP server, which posthaste reaches through its plug-in.
    GridFtp,
}

impl Place {
    pub const ALL: [Self; 11] = [
        Self::Local,
        Self::S3,
        Self::Gcs,
        Self::Azure,
        Self::Sftp,
        Self::Host,
        Self::Relay,
        Self::Http,
        Self::WebDav,
        Self::Ftp,
        Self::GridFtp,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
            Self::Sftp => "sftp",
            Self::Host => "host",
            Self::Relay => "relay",
            Self::Http => "http",
            Self::WebDav => "webdav",
            Self::Ftp => "ftp",
            Self::GridFtp => "gridftp",
        }
    }

    /// Returns whether this load is measured there: servers that take seconds for hundreds of files
    /// get few.
    pub fn takes(self, load: Load) -> bool {
        let is_quick = matches!(self, Self::Local | Self::S3 | Self::Host | Self::Relay);
        match load {
            Load::Large | Load::Mixed => true,
            Load::Small => is_quick,
            Load::Few => !is_quick,
        }
    }

    /// Returns the directions of bytes there.
    pub fn ways(self) -> &'static [Way] {
        match self {
            Self::Local => &[Way::To],
            Self::Http => &[Way::From],
            Self::S3
            | Self::Gcs
            | Self::Azure
            | Self::Sftp
            | Self::Host
            | Self::Relay
            | Self::WebDav
            | Self::Ftp
            | Self::GridFtp => &[Way::To, Way::From],
        }
    }

    /// Returns its name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Local => "a local path",
            Self::S3 => "S3 (versitygw)",
            Self::Gcs => "Google Cloud Storage (fake-gcs-server)",
            Self::Azure => "Azure Blob Storage (Azurite)",
            Self::Sftp => "SFTP (OpenSSH)",
            Self::Host => "another host, over SSH",
            Self::Relay => "a posthaste relay",
            Self::Http => "HTTP (nginx)",
            Self::WebDav => "WebDAV (nginx)",
            Self::Ftp => "FTP (ProFTPD)",
            Self::GridFtp => "GridFTP (globus-gridftp-server)",
        }
    }
}
