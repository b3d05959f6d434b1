//! Losses of a request: files, and attributes of files.

use posthaste_api as api;
use posthaste_core::contract::{Decision, Reason, RequestView};

/// Most omitted files that are shown.
pub(super) const LEFT_OUT_NAMED_MAX: usize = 100;

/// Returns the files that were left out of a request.
pub(super) fn left_out(view: &RequestView) -> Option<api::LeftOut> {
    let omissions = &view.omissions;
    let named = omissions.iter().take(LEFT_OUT_NAMED_MAX);
    let bytes = omissions.iter().map(|omission| omission.bytes.get());
    (!omissions.is_empty()).then(|| api::LeftOut {
        files: omissions.len() as u64,
        bytes: bytes.sum(),
        named: named.map(|omission| omission.what.clone()).collect(),
    })
}

/// Tells how many modes and times its destination does not keep, if any.
pub(super) fn tell_unkept(shown: &mut api::Request, decisions: &[Decision]) {
    let mut reasons = decisions.iter().rev().map(|decision| &decision.reason);
    let is_it = |reason: &&Reason| matches!(reason, Reason::NotKeptThere { .. });
    if let Some(reason @ Reason::NotKeptThere { modes, times }) = reasons.find(is_it) {
        (shown.modes_not_kept, shown.times_not_kept) = (*modes, *times);
        let id = &shown.id;
        (shown.warnings).push(format!("{reason} (`posthaste explain {id}` says when)"));
    }
}
