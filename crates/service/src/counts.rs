//! Counts events since the service started, for monitoring.

use posthaste_core::contract::Happening;
use prometheus_client::metrics::{counter::Counter, family::Family};

/// Labels of a metric: names and values.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// Counters since the service started: monitoring adds up counters that restarts reset to zero.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Counters by event name.
    pub(crate) events: Family<Labels, Counter>,
}

impl Counts {
    pub(crate) fn count(&self, happening: &Happening) {
        let labels = vec![("event", happening.name().to_owned())];
        self.events.get_or_create(&labels).inc();
    }
}
