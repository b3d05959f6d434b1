//! OpenSSH behind something that spoils what its server of SFTP says.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use tempfile::TempDir;

use crate::{Place, SshServer, install};

const FILTER: &str = include_str!("sftp.py");
/// Where Debian has it.
const SERVER: &str = "/usr/lib/openssh/sftp-server";

/// How it misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SftpSpoils {
    /// A shell's start file prints something first, with no end of line.
    Starts,
    /// Nobody says how long a file is.
    Sizes,
    /// Files are said to be shorter than they are.
    Short,
    /// Closing a file fails, as where a quota is reached.
    Closes,
    /// Nothing is written, and that it failed is all that is said, as where a quota is used up.
    Quota,
    /// Neither permission bits nor times can be set.
    Attributes,
    /// More comes than was asked for.
    Reads,
    /// What is written is taken, and goes nowhere.
    Writes,
    /// The first rename is done, and the connection ends before its answer.
    Renames,
    /// Renames are said to be done, and are not.
    OnlySaysRenamed,
    /// So are those that lose what was to be renamed.
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

/// Starts a server that misbehaves so. The folder holds what it needs.
///
/// # Panics
/// When it can't start.
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
