//! Records who requested a change, what was decided about requests, and what was removed for them.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use posthaste_core::contract::{Event, Happening, Input};
use posthaste_endpoint::Error;
use posthaste_types::{RequestId, Timestamp};
use serde_json::{Value, json};

use crate::{
    credentials::shown,
    driver::Centre,
    render::{moment, reason},
};

/// File that records who requested changes, and what was decided and removed. It is opened for each
/// line, so a file that was moved away gets no more lines.
#[derive(Debug)]
pub(crate) struct Audit(PathBuf);

impl Audit {
    /// Checks that it can be written.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn open(path: &Path) -> posthaste_endpoint::Result<Self> {
        let audit = Self(path.to_owned());
        audit.note("")?;
        Ok(audit)
    }

    /// Writes one or several lines. Blocking.
    pub(crate) fn note(&self, line: &str) -> posthaste_endpoint::Result<()> {
        let mut options = OpenOptions::new();
        let options = options.create(true).append(true).mode(0o600);
        options
            .open(&self.0)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|cause| Error::io("note who asked in", self.0.display().to_string(), cause))
    }
}

/// Returns the lines of a step for the record: one for each decision about a request and each
/// removal. Blocking.
pub(crate) fn noted(
    centre: &Centre,
    at: Timestamp,
    (inputs, events): (&[Input], &[Event]),
) -> String {
    let removed = inputs.iter().filter_map(|input| removed(centre, at, input));
    let decided = events.iter().filter_map(|event| decided(centre, event));
    let lines = removed.chain(decided).map(|said| format!("{said}\n"));
    lines.collect()
}

/// Returns the owner and source of a request.
fn whose(centre: &Centre, request: RequestId) -> (Option<String>, Option<String>) {
    let Ok(record) = centre.store.request(request) else {
        return (None, None);
    };
    let owner = record.wishes.owner.clone();
    let source = shown(&String::from_utf8_lossy(&record.source));
    (Some(owner).filter(|owner| !owner.is_empty()), Some(source))
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "nothing else was removed at a depot"
)]
fn removed(centre: &Centre, at: Timestamp, input: &Input) -> Option<Value> {
    match *input {
        Input::Forgotten {
            request,
            depot,
            done: true,
        } => Some(json!({
            "at": moment(at),
            "event": "fragments-removed",
            "request": request.to_string(),
            "owner": whose(centre, request).0,
            "depot": centre.depots.name(depot),
        })),
        _ => None,
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the others decide nothing about a request, and remove nothing"
)]
fn decided(centre: &Centre, event: &Event) -> Option<Value> {
    let request = event.request?;
    match event.happening {
        Happening::Admitted
        | Happening::Refused
        | Happening::Cancelled
        | Happening::Failed
        | Happening::Released
        | Happening::ReleaseFailed
        | Happening::Purged => {}
        _ => return None,
    }
    let (owner, source) = whose(centre, request);
    Some(json!({
        "at": moment(event.at),
        "event": event.happening.name(),
        "request": request.to_string(),
        "owner": owner,
        "source": source,
        "reason": reason(centre, &event.reason, event.at),
    }))
}
