//! Facts of a site beside the rules: its users, and the lists that announce files.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Candidates, Listed, Pattern, Policy};

/// Most lists of one rule, and most paths of one list, at 8 bytes each.
const LISTS_MAX: usize = 1000;
const LISTED_MAX: usize = 20_000_000;

/// Returns the number of a user of this machine.
#[must_use]
pub fn number_of(name: &str) -> Option<u32> {
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

/// Finds the files that a pattern names; its last name may have wildcards.
///
/// # Errors
/// The reason why they can't be searched for.
pub fn lists(candidates: &Candidates) -> Result<Vec<PathBuf>, String> {
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

/// Reads a list: one path a line, from the root.
///
/// # Errors
/// If it can't be read.
pub fn read_list(file: &Path, rule: usize, notice_s: i64, root: &[u8]) -> io::Result<Listed> {
    let opened = File::open(file)?;
    let written_s = opened.metadata()?.mtime();
    let mut paths: Vec<Vec<u8>> = Vec::new();
    for line in BufReader::new(opened).split(b'\n') {
        let line = line?;
        let line = line.trim_ascii();
        if line.starts_with(root) && paths.len() < LISTED_MAX {
            paths.push(line.to_vec());
        }
    }
    let at_s = written_s.saturating_add(notice_s);
    Ok(Listed::new(rule, at_s, paths.iter().map(Vec::as_slice)))
}

/// Reads all lists of files below a path; lists that can't be read are left out.
#[must_use]
pub fn listed(policy: &Policy, root: &[u8]) -> Vec<Listed> {
    let rules = policy.rules.iter().enumerate();
    let announced = rules.filter_map(|(place, rule)| Some((place, rule.candidates.as_ref()?)));
    announced
        .flat_map(|(place, candidates)| {
            let files = lists(candidates).unwrap_or_default();
            files
                .into_iter()
                .filter_map(move |file| read_list(&file, place, candidates.notice_s, root).ok())
        })
        .collect()
}
