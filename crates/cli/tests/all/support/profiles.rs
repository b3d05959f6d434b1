//! Profiles of jobs' sources.

use std::path::Path;

use posthaste_testbed::{S3Server, SshServer};

/// Writes `archive`, a bucket at so many bytes a second, and `tape`, the folder `far` behind SSH.
pub fn of_sources(folder: &Path, s3: &S3Server, ssh: &SshServer, rate: &str) -> String {
    let options: Vec<String> = ssh
        .options()
        .iter()
        .map(|option| format!("{option:?}"))
        .collect();
    format!(
        "[archive]\nurl = \"s3://{}\"\nendpoint = \"{}\"\naccess_key_id = \"{}\"\n\
         secret_access_key = \"{}\"\nrate_max = \"{rate}\"\n\n[tape]\nurl = \"{}\"\nssh_options = [{}]\n",
        S3Server::BUCKET,
        s3.endpoint(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY,
        ssh.address(folder.join("far").to_str().unwrap()),
        options.join(", "),
    )
}
