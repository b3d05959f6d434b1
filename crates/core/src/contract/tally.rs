use alloc::collections::BTreeMap;
use posthaste_types::Bytes;

/// How all that is known stands, at a glance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Stage-outs in each state, by its name.
    pub requests: BTreeMap<&'static str, u64>,
    /// Stage-ins in each state, by its name.
    pub stage_ins: BTreeMap<&'static str, u64>,
    /// Those under way that are forecast to be late.
    pub at_risk: u64,
    /// Those under way whose deadline has passed.
    pub missed: u64,
    /// Bytes that are not safe yet, or not here yet.
    pub waiting: Bytes,
    /// Least time from a p90 finish to its deadline, in microseconds, negative where it is late; none when nothing is
    /// under way that has both.
    pub slack_micros: Option<i64>,
}
