//! Checks that the hosts of a stage-out are known.

use posthaste_api as api;
use posthaste_endpoint::Result;

use super::submit::is_far;
use crate::{driver::Centre, inbound::look::refuse_unknown_host};

/// Checks that its source and destination hosts are known, before anything else is examined.
///
/// # Errors
/// [`ErrorKind::NotFound`] for a name that no profile and no host has.
pub(super) fn refuse_unknown_hosts(
    centre: &Centre,
    new: &api::NewRequest,
    address: &str,
) -> Result<()> {
    let owner = new.wishes.owner.as_deref().unwrap_or_default();
    let behalf = centre.store.actors.owner(owner)?;
    let far = is_far(&new.source).then_some(&*new.source);
    let looked = |address| refuse_unknown_host(address, new.profile.as_ref(), &behalf);
    far.into_iter().chain([address]).try_for_each(looked)
}
