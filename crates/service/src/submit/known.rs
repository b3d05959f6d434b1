//! Finds requests that were submitted before under the same id.

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;

use super::each_once;
use crate::{
    driver::Centre,
    tokens::{OF_OWNER, is_of_job},
};

/// Returns the request with this submission id.
///
/// # Errors
/// [`ErrorKind::Conflict`] if its content differs; the journal's.
pub(crate) fn known(centre: &Centre, new: &api::NewRequest) -> Result<Option<RequestRecord>> {
    let Some(found) = known_as(
        centre,
        new.submission_id.as_deref(),
        new.wishes.owner.as_ref(),
    )?
    else {
        return Ok(None);
    };
    let source = found.source.strip_suffix(b"/").unwrap_or(&found.source);
    let whole = new.source.trim_end_matches('/').as_bytes();
    let patterns = [&new.include, &new.exclude];
    let is_same = [&found.patterns.include, &found.patterns.exclude] == patterns;
    let is_in_it = |name: &String| [source, b"/", name.as_bytes()].concat() == whole;
    // Requests of jobs are named after their content.
    let is_jobs = found.submission.as_deref().is_some_and(is_of_job);
    let is_from_there = source == whole || found.only.iter().any(is_in_it);
    let goes_there = found.destination == each_once(&new.to).join(",");
    if is_jobs || is_from_there && goes_there && is_same {
        return Ok(Some(found));
    }
    Err(other_content(&found))
}

/// Returns the request with this submission id, of any kind. A request from before ids had owners
/// counts if it is the same owner's.
///
/// # Errors
/// The journal's.
pub(crate) fn known_as(
    centre: &Centre,
    submission: Option<&str>,
    owner: Option<&String>,
) -> Result<Option<RequestRecord>> {
    let Some(submission) = submission else {
        return Ok(None);
    };
    let find = |name: &str| centre.store.journal(|journal| journal.submission(name));
    match (find(submission)?, submission.split_once(OF_OWNER)) {
        (None, Some((_, plain))) => {
            Ok(find(plain)?.filter(|found| Some(&found.wishes.owner) == owner))
        }
        (found, _) => Ok(found),
    }
}

/// Returns the error for one id with two contents.
pub(crate) fn other_content(found: &RequestRecord) -> Error {
    Error::new(
        ErrorKind::Conflict,
        "submit",
        format!("request {}", found.id),
    )
    .cause("its submission id was given to it with another source or destination")
    .hint("give each request an id of its own")
}
