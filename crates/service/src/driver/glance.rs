//! Overview of all requests: how many are in each state, and the most urgent ones.
//!
//! Each look scans every request twice, so all callers share one, and it is rare: of a hundred
//! thousand requests each scan takes some 60 ms, during which nothing is decided.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_core::contract::Tally;
use posthaste_types::{RequestId, Timestamp};

use super::Centre;
use crate::monotonic;

/// Least age of an overview before another one is made.
const AGE_MIN: Duration = Duration::from_secs(1);
/// Least age in multiples of the time an overview takes: decisions wait for this fraction of the
/// time at most.
const AGE_PER_COST: u32 = 50;

/// Recent overview of all requests.
pub(crate) struct Glance {
    /// Time of the overview.
    pub(crate) as_of: Timestamp,
    pub(crate) tally: Tally,
    /// Requests under way, by least slack.
    pub(crate) pressing: Vec<RequestId>,
}

/// Overview with its expiry.
struct Kept {
    glance: Arc<Glance>,
    good_until: Instant,
}

/// Last overview.
#[derive(Default)]
pub(crate) struct Glances(Mutex<Option<Kept>>);

impl Glances {
    /// Returns the current or a recent overview of all requests. Callers that ask while one is
    /// being made wait for it.
    pub(crate) fn take(&self, centre: &Centre) -> Arc<Glance> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = monotonic();
        if let Some(kept) = kept.as_ref().filter(|kept| begun < kept.good_until) {
            return Arc::clone(&kept.glance);
        }
        let as_of = centre.clock.now();
        // Waiting inputs are decided between the two scans.
        let tally = centre.mind().tally();
        let pressing = centre.mind().pressing();
        let glance = Arc::new(Glance {
            as_of,
            tally,
            pressing,
        });
        let ended = monotonic();
        let cost = ended.duration_since(begun);
        *kept = Some(Kept {
            glance: Arc::clone(&glance),
            good_until: ended + AGE_MIN.max(cost * AGE_PER_COST),
        });
        glance
    }
}
