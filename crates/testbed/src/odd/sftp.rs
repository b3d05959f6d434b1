//! OpenSSH behind a filter that spoils the answers of its SFTP server.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use tempfile::TempDir;

use crate::{Place, SshServer, install};

const FILTER: &str = include_str!("sftp.py");
/// Debian's path of the server.
const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// Ways to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SftpSpoils {
    /// A shell's start file prints something first, without an end of line.
    Starts,
    /// Omits sizes of files.
    Sizes,
    /// Reports files shorter than they are.
    Short,
    /// Fails on closing a file, as at a reached quota.
    Closes,
    /// Writes nothing and reports a failure without a reason, as at a used-up quota.
    Quota,
    /// Sets neither permission bits nor times.
    Attributes,
    /// Returns more bytes than requested.
    Reads,
    /// Accepts written bytes and discards them.
    Writes,
    /// Does the first rename, and ends the connection before its answer.
    Renames,
    /// Reports renames as done, and does none.
    OnlySaysRenamed,
    /// Reports renames as done, and loses the renamed file.
    KeepsOld,
}

impl SftpSpoils {
    fn name(self) -> &'static str {
        match self {
            Self::Starts => "starts",
            Self::Sizes => "sizes",
            Self::Short => "short",
            Self::Closes => "closes",
            Self::Quota => "quota",
            Self::Attributes => "attributes",
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Renames => "renames",
            Self::OnlySaysRenamed => "only-says",
            Self::KeepsOld => "keeps-old",
        }
    }
}

/// Starts a server with this fault. The folder holds its files.
///
/// # Panics
/// Panics if it can't start.
#[must_use]
pub fn sftp_server(spoils: SftpSpoils) -> (SshServer, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("sftp.py"), FILTER).unwrap();
    let python = install::find_python().unwrap();
    let line = if spoils == SftpSpoils::Starts {
        format!("printf 'Welcome to node 7> '; exec {SERVER}")
    } else {
        format!(
            "exec {} {} {SERVER} {} {}",
            python.display(),
            file("sftp.py"),
            spoils.name(),
            file("done")
        )
    };
    fs::write(file("serve"), format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(file("serve"), Permissions::from_mode(0o755)).unwrap();
    let server = SshServer::start_serving(&Place::default(), &file("serve")).unwrap();
    (server, folder)
}
