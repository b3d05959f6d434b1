use posthaste_api as api;
use posthaste_core::contract::Pause;

use super::moment;

/// Returns a pause and its owner.
pub(super) fn pause(pause: &Pause) -> api::Pause {
    api::Pause {
        by: pause.by.clone(),
        since: moment(pause.since),
    }
}
