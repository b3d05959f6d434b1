//! Requests about files named in a separate list.

use std::sync::Arc;

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_engine::dataset::Bounds;
use posthaste_journal::RequestRecord;

use super::{REHEARSED, check, decided, scans::listed_of};
use crate::{driver::Centre, outbound};

/// Checks a request about files that are named in a separate list.
///
/// # Errors
/// Errors of [`accept`], and [`ErrorKind::Invalid`] if it can't have such a list.
pub(crate) fn check_named(centre: &Centre, new: &api::NewRequest) -> Result<RequestRecord> {
    let refused = |why: &str, hint: &str| {
        let error = Error::new(ErrorKind::Invalid, "submit", &new.source);
        Err(error.cause(why.to_owned()).hint(hint))
    };
    if outbound::submit::straight(centre, new).is_some() {
        return refused(
            "files can be named in a list only of what goes through depots",
            "name depots with --via, or offload a directory that holds them alone",
        );
    }
    if !new.only.is_empty() {
        return refused("files are named in two ways", "leave `only` out");
    }
    let record = check(centre, new)?;
    if !record.only.is_empty() {
        return refused("it is a file", "name the directory that the paths begin at");
    }
    Ok(record)
}

/// Returns the decision that a request about the files in the kept list would get.
///
/// # Errors
/// Errors of [`rehearse`](super::rehearse).
pub(crate) async fn rehearse_named(
    centre: &Arc<Centre>,
    new: &api::NewRequest,
    record: &RequestRecord,
) -> Result<api::Request> {
    let leave = centre.scans.rehearse(&record.wishes.owner).await;
    let record = RequestRecord {
        id: REHEARSED,
        ..record.clone()
    };
    let list = tokio::task::block_in_place(|| {
        drop(centre.quotas.reserve(centre, &record)?);
        listed_of(centre, &record, Bounds::default().sharing(&leave.lent))
    })?;
    let onward = outbound::onward::rehearsed(centre, new, &record, &list).await?;
    decided(centre, record, &list, onward)
}
