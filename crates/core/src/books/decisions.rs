use alloc::vec::Vec;

use crate::contract::{Decision, Reason};

/// Remembers a decision with a request; the oldest beyond `most` are forgotten, but for the first: the
/// answer. Of what comes again and again only a quarter of `most` are kept, so that it doesn't push out
/// what decided the request's fate.
pub(crate) fn remember(decisions: &mut Vec<Decision>, decision: Decision, most: u32) {
    let most = most as usize;
    if is_routine(&decision.reason) {
        let routine = |decision: &Decision| is_routine(&decision.reason);
        let kept = decisions.iter().filter(|decision| routine(decision));
        if kept.count() >= most / 4
            && let Some(oldest) = decisions.iter().position(routine)
        {
            decisions.remove(oldest);
        }
    }
    if decisions.len() >= most {
        decisions.remove(usize::from(most > 1));
    }
    // Most requests have few, and there are many requests.
    if decisions.len() == decisions.capacity() {
        decisions.reserve_exact(decisions.len().max(1));
    }
    decisions.push(decision);
}

/// Whether a decision for this reason comes again and again.
fn is_routine(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Tuned { .. } | Reason::RateMoved { .. } | Reason::Retry { .. }
    )
}
