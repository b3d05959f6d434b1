//! Files left out of an otherwise complete export: each has its own reason and stays at its source.

use std::collections::{BTreeMap, HashSet};

use posthaste_core::contract::LeftOut;
use posthaste_endpoint::{Error, ErrorKind, Locus};
use posthaste_engine::copy::{Written, is_clash};
use posthaste_types::Bytes;

use super::listed::{Item, Listed};

/// Reasons kept per copy: the user of a copy with more sees the first.
const REASONS_MAX: usize = 10_000;

/// Other files named along with the first.
const OTHERS_MAX: usize = 10;

/// Files that a copy left out, by the subjects of their errors.
#[derive(Debug, Default)]
pub(super) struct Reasons {
    lines: BTreeMap<String, String>,
    /// Number of reasons beyond those kept.
    more: u64,
}

impl Reasons {
    pub(super) fn note(&mut self, subject: &str, line: String) {
        if self.lines.len() < REASONS_MAX {
            self.lines.insert(subject.to_owned(), line);
        } else if !self.lines.contains_key(subject) {
            self.more += 1;
        }
    }

    /// Returns the number of the other files and the first of their names, beside the one that this line
    /// is about.
    pub(super) fn others(&self, line: &str) -> Option<String> {
        let others = self.lines.iter().filter(|(_, said)| *said != line);
        let others: Vec<&str> = others.map(|(subject, _)| &**subject).collect();
        let count = others.len() as u64 + self.more;
        let named = others[..others.len().min(OTHERS_MAX)].join(", ");
        let rest = match count - others.len().min(OTHERS_MAX) as u64 {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        (count > 0).then(|| format!("so it is with {count} more: {named}{rest}"))
    }

    /// Returns the reason why a path is missing, from whichever end reported it.
    fn of(&self, path: &[u8], shown: &Shown<'_>) -> Option<(&String, &String)> {
        if self.lines.is_empty() {
            return None;
        }
        let subjects = [(shown.source)(path), (shown.destination)(path)];
        let mut known = subjects
            .iter()
            .filter_map(|subject| self.lines.get_key_value(subject));
        known.next()
    }
}

/// Returns whether an error concerns only this file, and lasts: the rest can go without it.
pub(super) fn is_of_one(error: &Error, is_of_depots: bool) -> bool {
    if error.is_temporary() || is_clash(error) {
        return false;
    }
    let is_lasting = matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::Unsupported | ErrorKind::Invalid
    );
    let is_of_source = matches!(
        error.kind(),
        ErrorKind::Changed | ErrorKind::NotFound | ErrorKind::Other
    );
    match error.locus() {
        // Depots may deliver later what they don't deliver now; an impossible name stays
        // impossible.
        Locus::Source if is_of_depots => is_lasting && error.operation() == "copy",
        Locus::Source => is_lasting || is_of_source,
        Locus::Destination | Locus::Network | Locus::Client => is_lasting,
    }
}

/// Spelling of paths at both ends.
pub(super) struct Shown<'a> {
    pub(super) source: &'a dyn Fn(&[u8]) -> String,
    pub(super) destination: &'a dyn Fn(&[u8]) -> String,
}

/// Returns the files that a finished copy left out, and their places in its list.
pub(super) fn find(
    listed: &Listed,
    written: &Written,
    shown: &Shown<'_>,
    reasons: &Reasons,
) -> (LeftOut, Vec<u64>) {
    let mut found = LeftOut::default();
    let (mut places, mut named) = (Vec::new(), Vec::new());
    let mut failed: HashSet<&[u8]> = HashSet::new();
    let mut told: HashSet<&str> = HashSet::new();
    for (place, (path, item)) in listed.in_order().enumerate() {
        let own = reasons.of(path, shown);
        let is_below = is_below(path, &failed);
        let is_missing = match item {
            Item::File(_) => !written.has(path),
            Item::Directory | Item::Other => own.is_some() || is_below,
        };
        if let Some((subject, line)) = own.filter(|_| is_missing)
            && told.insert(subject)
        {
            named.push(line.clone());
        }
        if !is_missing || path.is_empty() {
            continue;
        }
        places.push(place as u64);
        match item {
            Item::Directory => {
                failed.insert(path);
                found.files += u64::from(own.is_some());
                continue;
            }
            Item::File(size) => found.bytes += Bytes::new(size),
            Item::Other => {}
        }
        found.files += 1;
        if own.is_none() && !is_below {
            named.push(format!(
                "{}: it was not there any more when its turn came",
                (shown.source)(path)
            ));
        }
    }
    // Some are in no list, such as pipes at a remote source.
    for (subject, line) in &reasons.lines {
        if !told.contains(&**subject) {
            found.files += 1;
            named.push(line.clone());
        }
    }
    found.files += reasons.more;
    named.truncate(LeftOut::NAMED_MAX);
    found.named = named;
    (found, places)
}

/// Returns whether a path lies below one of these.
fn is_below(path: &[u8], above: &HashSet<&[u8]>) -> bool {
    if above.is_empty() {
        return false;
    }
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut folders = slashes.map(|(end, _)| &path[..end]);
    folders.any(|folder| above.contains(folder))
}
