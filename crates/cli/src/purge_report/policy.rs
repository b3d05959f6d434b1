//! Rules of the purge, from their file, and the lists in which it announced its candidates.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use posthaste_batch::{
    purge::{self, Language, Listed, POLICY_BYTES_MAX, Policy, site},
    script::Complaint,
};
use posthaste_endpoint::{Error, ErrorKind};

use super::tell;
use crate::{config, failure::Failure};

/// Rules, and their file.
pub(super) struct Rules {
    pub policy: Policy,
    pub language: Language,
    /// File name for people.
    pub shown: String,
}

impl Rules {
    /// Reads the named file, else the user's own.
    pub fn read(named: Option<&Path>, about: &str) -> Result<Self, Failure> {
        let own = config::config_directory().join("purge.toml");
        let file = named.unwrap_or(&own);
        let shown = file.display().to_string();
        let failed = |cause: io::Error| Error::io("read the purge policy", shown.clone(), cause);
        let opened = match File::open(file) {
            Err(cause) if named.is_none() && cause.kind() == io::ErrorKind::NotFound => {
                return Err(Failure::usage(format!(
                    "no policy says what the purge removes from {about} (write `rule = [{{ clock = \"atime\", days = 90 }}]` \
                     with your site's numbers to {shown}, or name a file with --policy)"
                )));
            }
            opened => opened.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        let limited = opened.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes);
        limited.map_err(failed)?;
        if bytes.len() as u64 > POLICY_BYTES_MAX {
            let error = Error::new(ErrorKind::Invalid, "read the purge policy", shown);
            return Err(error.cause("it is larger than 4 MiB").into());
        }
        // Comments of sites are written in any encoding.
        let text = String::from_utf8_lossy(&bytes);
        let language = Language::of(&text);
        let policy = purge::read(&text, language, &site::number_of)
            .map_err(|complaints| complain(&shown, &complaints))?;
        Ok(Self {
            policy,
            language,
            shown,
        })
    }

    /// Lists the announced candidates below a path.
    pub fn listed(&self, root: &[u8]) -> Result<Vec<Listed>, Failure> {
        let mut listed = Vec::new();
        for (place, rule) in self.policy.rules.iter().enumerate() {
            let Some(candidates) = &rule.candidates else {
                continue;
            };
            let files = site::lists(candidates).map_err(|why| {
                Failure::usage(format!(
                    "{}: line {}: can't look for lists at {}: {why}",
                    self.shown, rule.line, candidates.files
                ))
            })?;
            if files.is_empty() {
                tell(&format!(
                    "there is no list at {} (rule `{}`)",
                    candidates.files, rule.name
                ));
            }
            for file in files {
                let read = site::read_list(&file, place, candidates.notice_s, root);
                let failed = |cause| Error::io("read the list", file.display().to_string(), cause);
                listed.push(read.map_err(failed)?);
            }
        }
        Ok(listed)
    }
}

/// Reports all complaints but the last, which becomes the command's failure.
fn complain(shown: &str, complaints: &[Complaint]) -> Failure {
    let mut lines: Vec<String> = complaints
        .iter()
        .map(|one| format!("{shown}: {one}"))
        .collect();
    let last = lines.pop().unwrap_or_default();
    lines.iter().for_each(|line| tell(line));
    Failure::usage(last)
}
