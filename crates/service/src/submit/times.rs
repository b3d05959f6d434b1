//! Times that a request names, and the expiry of its data at depots.

use std::time::Duration;

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result, relay::wire::KEPT_S_MAX};
use posthaste_types::Timestamp;

use crate::{depots::Viewer, driver::Centre, render};

/// Time for which depots keep a dataset after its deadline, unless the request sets one.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86400);
/// Limit after the deadline: lent space is lent for a time.
const KEEP_MAX: Duration = Duration::from_secs(10 * 366 * 86_400);
/// Limit from now on, whatever the deadline: a day less than relays keep anything by their own
/// clocks.
const KEPT_MAX: Duration = Duration::from_secs(KEPT_S_MAX - 86_400);

/// Returns when depots may remove a dataset that is wanted by `wanted`.
pub(super) fn expiry(
    new: &api::NewRequest,
    now: Timestamp,
    wanted: Timestamp,
) -> Result<Timestamp> {
    let keep = new.keep_s.map_or(KEEP_DEFAULT, Duration::from_secs);
    if keep > KEEP_MAX {
        return Err(Error::new(ErrorKind::Invalid, "submit", &new.source)
            .cause("depots keep nothing for longer than ten years")
            .hint("give a shorter --keep"));
    }
    Ok((wanted + keep).min(now + KEPT_MAX))
}

/// Returns when the source is to be purged, if given.
pub(crate) fn purge_at(new: &api::NewRequest, now: Timestamp) -> Result<Option<Timestamp>> {
    let at = new.purge_at.as_deref();
    let at = at
        .map(|at| render::parse_moment("the purge", at))
        .transpose()?;
    if at.is_some_and(|at| at <= now) {
        return Err(Error::new(ErrorKind::Invalid, "submit", &new.source)
            .cause("its purge lies in the past")
            .hint("leave it out, or give the moment of the next one"));
    }
    Ok(at)
}

/// Returns the deadline for safety, and that for delivery if given: at least one is given.
pub(super) fn deadlines(
    centre: &Centre,
    new: &api::NewRequest,
    now: Timestamp,
) -> Result<(Timestamp, Option<Timestamp>)> {
    let invalid = |why: String, hint: &str| {
        let error = Error::new(ErrorKind::Invalid, "submit", &new.source);
        error.cause(why).hint(hint)
    };
    let deliver_by = deliver_by(centre, new, now)?;
    let deadline = new.deadline.as_deref();
    let deadline = deadline.map(|at| render::parse_moment("the deadline", at));
    let Some(deadline) = deadline.transpose()?.or(deliver_by) else {
        return Err(invalid(
            "it has no deadline".into(),
            "say when it must be safe, or wanted at its destinations",
        ));
    };
    if deadline <= now {
        let why = format!("the deadline {} has passed", render::moment(deadline));
        return Err(invalid(why, "give a later one"));
    }
    Ok((deadline, deliver_by))
}

/// Returns the deliver-by time, if given: each destination must be a depot then.
fn deliver_by(centre: &Centre, new: &api::NewRequest, now: Timestamp) -> Result<Option<Timestamp>> {
    let Some(at) = &new.deliver_by else {
        return Ok(None);
    };
    let invalid = |why: String| Error::new(ErrorKind::Invalid, "submit", &new.source).cause(why);
    let at = render::parse_moment("when it is wanted at its destinations", at)?;
    if at <= now {
        let why = format!(
            "{}, when it is wanted at its destinations, has passed",
            render::moment(at)
        );
        return Err(invalid(why).hint("give a later moment"));
    }
    let whose = Viewer::new(new.wishes.owner.as_deref());
    let unknown = new
        .to
        .iter()
        .find(|name| centre.depots.named_for(whose, name).is_none());
    if let Some(unknown) = unknown {
        let why = format!("it can't be delivered by a moment to {unknown}, which runs no relay");
        return Err(invalid(why)
            .hint("`posthaste relay` there and `posthaste depot add` here make it a destination"));
    }
    Ok(Some(at))
}
