//! All requests at a glance, for whoever watches the whole service: how many stand where, and which press most.
//!
//! That is two looks at every request, so it is taken once for all who ask, and rarely: of a hundred thousand each look takes some
//! 60 ms, during which nothing is decided.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use posthaste_core::contract::Tally;
use posthaste_types::{RequestId, Timestamp};

use super::Centre;
use crate::monotonic;

/// How old a glance may be at least before another one is taken.
const AGE_MIN: Duration = Duration::from_secs(1);
/// And how many times as old as it took to take it: deciding waits for one part in so many of the time at most.
const AGE_PER_COST: u32 = 50;

/// How all requests stood a short while ago.
pub(crate) struct Glance {
    /// When.
    pub(crate) as_of: Timestamp,
    pub(crate) tally: Tally,
    /// Those under way, the one with the least slack first.
    pub(crate) pressing: Vec<RequestId>,
}

/// A glance, until when it is good.
struct Kept {
    glance: Arc<Glance>,
    good_until: Instant,
}

/// The last glance that was taken.
#[derive(Default)]
pub(crate) struct Glances(Mutex<Option<Kept>>);

impl Glances {
    /// How all requests stand, or stood a short while ago. Who asks while it is being taken waits for it.
    pub(crate) fn take(&self, centre: &Centre) -> Arc<Glance> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = monotonic();
        if let Some(kept) = kept.as_ref().filter(|kept| begun < kept.good_until) {
            return Arc::clone(&kept.glance);
        }
        let as_of = centre.clock.now();
        // What waits is decided between the two.
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
