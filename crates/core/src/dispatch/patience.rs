//! How patient one is with a depot to which sends failed.

use crate::{Settings, contract::Fault};

/// How long to leave a depot alone after `failures` sends in a row failed.
pub(crate) fn backoff(settings: &Settings, failures: u32) -> core::time::Duration {
    let factor = 1u32 << failures.saturating_sub(1).min(16);
    settings
        .backoff
        .saturating_mul(factor)
        .min(settings.backoff_max)
}

/// Whether trying the depot again soon makes no sense.
pub(crate) fn is_lasting(fault: Fault) -> bool {
    fault == Fault::Unauthenticated
}
