use posthaste_api as api;
use posthaste_core::contract::Pause;

use super::moment;

/// Who lets a request wait.
pub(super) fn pause(pause: &Pause) -> api::Pause {
    api::Pause {
        by: pause.by.clone(),
        since: moment(pause.since),
    }
}
