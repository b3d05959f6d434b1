//! Patience with a depot to which sends failed.

use crate::{Settings, contract::Fault};

/// Returns how long a depot rests after `failures` consecutive failed sends.
pub(crate) fn backoff(settings: &Settings, failures: u32) -> core::time::Duration {
    let factor = 1u32 << failures.saturating_sub(1).min(16);
    settings
        .backoff
        .saturating_mul(factor)
        .min(settings.backoff_max)
}

/// Returns whether trying the depot again soon makes no sense.
pub(crate) fn is_lasting(fault: Fault) -> bool {
    fault == Fault::Unauthenticated
}
