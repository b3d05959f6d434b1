use alloc::collections::BTreeMap;
use posthaste_types::Bytes;

/// Totals over all requests, at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of stage-outs by the name of their state.
    pub requests: BTreeMap<&'static str, u64>,
    /// Number of stage-ins by the name of their state.
    pub stage_ins: BTreeMap<&'static str, u64>,
    /// Active requests that are forecast to be late.
    pub at_risk: u64,
    /// Active requests whose deadline has passed.
    pub missed: u64,
    /// Bytes that are not safe yet, or not here yet.
    pub waiting: Bytes,
    /// Smallest slack, in microseconds, from a p90 finish to its deadline: negative if late. None
    /// if no active request has both.
    pub slack_micros: Option<i64>,
}
