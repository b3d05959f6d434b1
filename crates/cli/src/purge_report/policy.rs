//! The rules of the purge, from where they lie, and the lists that it announced its files in.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use posthaste_batch::{
    purge::{self, Candidates, Language, Listed, POLICY_BYTES_MAX, Pattern, Policy},
    script::Complaint,
};
use posthaste_endpoint::{Error, ErrorKind};

use super::tell;
use crate::{config, failure::Failure};

/// Lists of one rule, and paths of one list: 8 bytes each are kept.
const LISTS_MAX: usize = 1000;
const LISTED_MAX: usize = 20_000_000;

/// The rules, and the file they are from.
pub(super) struct Rules {
    pub policy: Policy,
    pub language: Language,
    /// The file, for people.
    pub shown: String,
}

impl Rules {
    /// Reads the file that is named, else the user's own.
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
        let policy = purge::read(&text, language, &number_of)
            .map_err(|complaints| complain(&shown, &complaints))?;
        Ok(Self {
            policy,
            language,
            shown,
        })
    }

    /// What was announced of what lies below a path.
    pub fn listed(&self, root: &[u8]) -> Result<Vec<Listed>, Failure> {
        let mut listed = Vec::new();
        for (place, rule) in self.policy.rules.iter().enumerate() {
            let Some(candidates) = &rule.candidates else {
                continue;
            };
            let files = lists(candidates).map_err(|why| {
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
                listed.push(read_list(&file, place, candidates.notice_s, root)?);
            }
        }
        Ok(listed)
    }
}

/// All but the last are said here: that one ends the command.
fn complain(shown: &str, complaints: &[Complaint]) -> Failure {
    let mut lines: Vec<String> = complaints
        .iter()
        .map(|one| format!("{shown}: {one}"))
        .collect();
    let last = lines.pop().unwrap_or_default();
    lines.iter().for_each(|line| tell(line));
    Failure::usage(last)
}

/// The number of a user of this machine.
fn number_of(name: &str) -> Option<u32> {
    if name.starts_with('-') || name.contains(char::is_control) {
        return None;
    }
    let asked = Command::new("getent")
        .args(["passwd", name])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let line = String::from_utf8(asked.stdout).ok()?;
    line.split(':').nth(2)?.parse().ok()
}

/// The files that a pattern names: it may have wildcards in its last name.
fn lists(candidates: &Candidates) -> Result<Vec<PathBuf>, String> {
    let path = Path::new(&candidates.files);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it names no file".to_owned());
    };
    let pattern = Pattern::free(&name.to_string_lossy())?;
    let entries = fs::read_dir(folder).map_err(|cause| cause.to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|cause| cause.to_string())?;
        if pattern.is_about(entry.file_name().as_bytes()) {
            found.push(entry.path());
        }
        if found.len() > LISTS_MAX {
            return Err(format!("there are more than {LISTS_MAX}"));
        }
    }
    found.sort();
    Ok(found)
}

/// A list: a path a line, from the root.
fn read_list(file: &Path, rule: usize, notice_s: i64, root: &[u8]) -> Result<Listed, Failure> {
    let shown = file.display().to_string();
    let failed = |cause: io::Error| Error::io("read the list", shown.clone(), cause);
    let opened = File::open(file).map_err(failed)?;
    let written_s = opened.metadata().map_err(failed)?.mtime();
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for line in BufReader::new(opened).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = line.trim_ascii();
        if line.starts_with(root) && paths.len() < LISTED_MAX {
            paths.push(line.to_vec());
        }
    }
    let at_s = written_s.saturating_add(notice_s);
    Ok(Listed::new(rule, at_s, paths.iter().map(Vec::as_slice)))
}
