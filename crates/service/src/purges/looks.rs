//! Examines the files to be staged out: at submission, and repeatedly until they are gone from
//! here. So a read, a write or another rule moves the deadline. A purge time from the user replaces
//! all rules.

use std::{
    collections::BTreeMap, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc,
    time::Duration,
};

use posthaste_core::contract::{Input, RequestState};
use posthaste_endpoint::{ErrorKind, Result};
use posthaste_engine::dataset::{FileKind, FileList};
use posthaste_journal::RequestRecord;
use posthaste_types::{RequestId, Timestamp};
use tokio::{sync::MutexGuard, task::block_in_place};

use super::{Foreseen, Seen, Stamp};
use crate::{driver::Centre, outbound::goes_out};

/// Interval of checks for a changed policy, or files to be examined again.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Age after which files are examined again, since each must be looked at.
const AGAIN_AFTER: Duration = Duration::from_secs(3600);
/// Interval for safe requests, which are no longer urgent and may stay long.
const SAFE_AGAIN_AFTER: Duration = Duration::from_secs(86_400);
/// Least movement of a purge that counts: file systems never fill evenly.
const MOVED_MIN: Duration = Duration::from_secs(60);

/// Returns a scanned request with the purge time of its source: the user's, or else by the rules.
/// Examines every file if there are rules. Blocking.
///
/// # Errors
/// The journal's.
pub(crate) fn bound(centre: &Centre, record: RequestRecord) -> Result<RequestRecord> {
    let Some((stamp, foreseen)) = foreseen(centre, &record, None) else {
        return Ok(record);
    };
    let purge_at = foreseen.at;
    if !goes_out(&record) {
        remember(centre, record.id, stamp, (Some(foreseen), None));
    } else if let Some(at) = purge_at {
        // The source is not examined again: it stays as if its user had set the time.
        let store = &centre.store;
        store.journal(|journal| journal.keep_purge(record.id, at))?;
    }
    Ok(RequestRecord { purge_at, ..record })
}

/// Returns the same for a rehearsed request, with these files if they were listed: nothing is
/// recorded.
pub(crate) fn rehearsed(
    centre: &Centre,
    record: RequestRecord,
    files: Option<&FileList>,
) -> RequestRecord {
    match foreseen(centre, &record, files) {
        Some((_, Foreseen { at, .. })) => RequestRecord {
            purge_at: at,
            ..record
        },
        None => record,
    }
}

/// Records the user's purge time of a request's source for good: no rule applies from now on. The
/// caller reports it to the mind before the returned guard is dropped.
///
/// # Errors
/// The journal's.
pub(crate) async fn said(
    centre: &Centre,
    request: RequestId,
    at: Timestamp,
) -> Result<MutexGuard<'_, ()>> {
    let turn = centre.purges.telling.lock().await;
    let store = &centre.store;
    block_in_place(|| store.journal(|journal| journal.keep_purge(request, at)))?;
    Ok(turn)
}

/// Looks repeatedly until the service ends; at nothing if there are no rules.
///
/// # Errors
/// [`ErrorKind::Cancelled`] if the service is ending.
pub(crate) async fn look_on(centre: Arc<Centre>) -> Result<()> {
    let mut said = String::new();
    loop {
        match look(&centre).await {
            Ok(()) => said.clear(),
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            // A policy that is being written is invalid for a moment: the forecast stands.
            Err(error) => {
                let line = error.to_string();
                if line != said {
                    tracing::warn!("{line}");
                    said = line;
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Examines all requests that are due, and reports changes.
async fn look(centre: &Centre) -> Result<()> {
    let Some((stamp, ..)) = block_in_place(|| centre.purges.policy())? else {
        return Ok(());
    };
    let live: BTreeMap<RequestId, Duration> = {
        let mind = centre.mind();
        let live = mind.requests().filter_map(|view| match view.state {
            RequestState::Moving => Some((view.request, AGAIN_AFTER)),
            RequestState::Safe => Some((view.request, SAFE_AGAIN_AFTER)),
            RequestState::Refused
            | RequestState::Released
            | RequestState::Cancelled
            | RequestState::Failed
            | RequestState::Delivered => None,
        });
        live.collect()
    };
    let is_live = |request: &RequestId, _: &mut Seen| live.contains_key(request);
    centre.purges.seen().retain(is_live);
    for (request, after) in live {
        let news = block_in_place(|| news(centre, request, (stamp, after)))?;
        if let Some((foreseen, told)) = news {
            tell(centre, request, (foreseen, told)).await?;
        }
    }
    Ok(())
}

/// Returns the forecast of a request and the rule reported before, if there may be news.
///
/// # Errors
/// The journal's.
fn news(
    centre: &Centre,
    request: RequestId,
    (stamp, after): (Stamp, Duration),
) -> Result<Option<(Foreseen, Option<String>)>> {
    let known = {
        let seen = centre.purges.seen();
        let known = seen.get(&request).map(|seen| {
            let age = crate::monotonic().duration_since(seen.at);
            let is_fresh = seen.stamp == stamp && age < after;
            (is_fresh, seen.foreseen.clone(), seen.told.clone())
        });
        known.unwrap_or_default()
    };
    let (before, told) = match known {
        (true, foreseen, told) => {
            let untold = foreseen.filter(|foreseen| told.as_ref() != Some(&foreseen.rule));
            return Ok(untold.map(|foreseen| (foreseen, told)));
        }
        (false, before, told) => (before, told),
    };
    let record = centre.store.request(request)?;
    let now = foreseen(centre, &record, None).map(|(_, foreseen)| foreseen);
    let now = now.or(before).filter(|_| goes_by_rules(&record));
    remember(centre, request, stamp, (now.clone(), told.clone()));
    Ok(now.map(|now| (now, told)))
}

/// Reports the forecast if time or reason is new.
///
/// # Errors
/// The journal's, and [`ErrorKind::Cancelled`] when the service is ending.
async fn tell(
    centre: &Centre,
    request: RequestId,
    (foreseen, told): (Foreseen, Option<String>),
) -> Result<()> {
    let _turn = centre.purges.telling.lock().await;
    // Its user may have set a time meanwhile.
    let record = block_in_place(|| centre.store.request(request))?;
    let known = centre.mind().request(request).map(|view| view.purge_at);
    let (true, Some(known)) = (goes_by_rules(&record), known) else {
        return Ok(());
    };
    if let Some(Foreseen { at, rule }) = moved(told.as_deref(), known, &foreseen) {
        let purge_at = at;
        let input = Input::PurgeForeseen {
            request,
            purge_at,
            rule,
        };
        centre.tell(input).await?;
    }
    if let Some(seen) = centre.purges.seen().get_mut(&request) {
        seen.told = Some(foreseen.rule);
    }
    Ok(())
}

/// Stores the forecast of a request and the reported rule.
fn remember(
    centre: &Centre,
    request: RequestId,
    stamp: Stamp,
    (foreseen, told): (Option<Foreseen>, Option<String>),
) {
    let at = crate::monotonic();
    let seen = Seen {
        stamp,
        at,
        foreseen,
        told,
    };
    centre.purges.seen().insert(request, seen);
}

/// Returns whether rules set the purge time of a request's source: it lies on this machine, and its
/// user set none.
fn goes_by_rules(record: &RequestRecord) -> bool {
    let leaves = record.stage_in.is_none() || goes_out(record);
    leaves && record.purge_at.is_none() && record.source.starts_with(b"/")
}

/// Returns the forecast of a request, with these files or the listed ones, and its rules. None if
/// its user set it, if there are no rules, or if its files can't be examined: the request continues
/// all the same.
fn foreseen(
    centre: &Centre,
    record: &RequestRecord,
    files: Option<&FileList>,
) -> Option<(Stamp, Foreseen)> {
    if !goes_by_rules(record) || !centre.purges.are_any() {
        return None;
    }
    let look = || {
        let only = match (record.named, files) {
            (None, _) => record.only.iter().map(|name| name.clone().into()).collect(),
            (Some(_), Some(files)) => paths(files),
            (Some(_), None) => paths(&centre.store.list(record.id)?),
        };
        // No named file is left: an empty list would mean the whole directory.
        if record.named.is_some() && only.is_empty() {
            return Ok(None);
        }
        let source = Path::new(OsStr::from_bytes(&record.source));
        let actor = centre.store.actors.of(record)?;
        let now = centre.clock.now();
        centre.purges.foresee((source, &only), &actor, now)
    };
    look().unwrap_or_else(|error| {
        tracing::warn!(request = %record.id, "{error}");
        None
    })
}

/// Returns the paths of all files in a list, without directories and links.
fn paths(list: &FileList) -> Vec<Vec<u8>> {
    let files = list.files.iter();
    let files = files.filter(|file| file.kind == FileKind::Regular);
    files.map(|file| file.path.clone()).collect()
}

/// Returns the forecast to report: none if neither time nor reason changed.
fn moved(told: Option<&str>, purge_at: Option<Timestamp>, now: &Foreseen) -> Option<Foreseen> {
    let at = match (purge_at, now.at) {
        // The purge has not moved.
        (Some(known), Some(at)) if known.max(at).since(known.min(at)) < MOVED_MIN => Some(known),
        (_, at) => at,
    };
    let is_told = told == Some(&now.rule) && at == purge_at;
    (!is_told).then(|| Foreseen {
        at,
        rule: now.rule.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told() {
        let at = |secs: u64| Some(Timestamp::from_secs(secs));
        let foreseen = |at, rule: &str| Foreseen {
            at,
            rule: rule.into(),
        };
        let now = foreseen(at(1000), "old");
        let told = Some("old");
        // At first the rule is new, though the time is known.
        assert_eq!(moved(None, at(1000), &now), Some(now.clone()));
        assert_eq!(moved(told, at(1000), &now), None);
        let shifted = foreseen(at(1030), "old");
        assert_eq!(
            moved(told, at(1000), &shifted),
            None,
            "by less than a minute"
        );
        let later = foreseen(at(2000), "old");
        assert_eq!(moved(told, at(1000), &later), Some(later.clone()));
        let other = foreseen(at(1000), "other");
        assert_eq!(moved(told, at(1000), &other), Some(other.clone()));
        let never = foreseen(None, "none");
        assert_eq!(moved(told, at(1000), &never), Some(never.clone()));
    }
}
