use alloc::string::String;
use posthaste_types::{Timestamp, record};

use crate::state::Link;
use crate::{
    Settings,
    contract::{DepotState, Fault},
};

record! {
    /// Endpoint from which data is fetched: its state, and the path from it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Source {
        pub(crate) name: String,
        pub(crate) state: DepotState,
        pub(crate) link: Link,
        /// Failed fetches since the last success.
        pub(crate) failures: u32,
        /// Losses since it last gave something.
        pub(crate) losses: u32,
        /// Time before which nothing is fetched.
        pub(crate) resume_at: Timestamp,
    }
}

impl Source {
    pub(crate) fn new(name: String, link: Link) -> Self {
        Self {
            name,
            state: DepotState::Unknown,
            link,
            failures: 0,
            losses: 0,
            resume_at: Timestamp::default(),
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.state == DepotState::Down
    }

    /// Returns whether it may be asked for something now.
    pub(crate) fn is_open(&self, now: Timestamp) -> bool {
        self.resume_at <= now
    }

    /// Returns whether it failed so often that it is given up.
    pub(crate) fn is_hopeless(&self, settings: &Settings) -> bool {
        self.losses >= settings.fruitless_max
    }

    /// Clears its failures.
    pub(crate) fn forgive(&mut self) {
        (self.failures, self.losses) = (0, 0);
        self.resume_at = Timestamp::default();
        if self.is_down() {
            self.state = DepotState::Unknown;
        }
    }

    /// Records that it gave something. Returns whether it had been lost.
    pub(crate) fn succeed(&mut self, now: Timestamp) -> bool {
        (self.failures, self.losses) = (0, 0);
        self.resume_at = Timestamp::default();
        self.link.progress_at = now;
        core::mem::replace(&mut self.state, DepotState::Up) == DepotState::Down
    }

    /// Records a failure: it rests for a while. Returns whether it counts as lost.
    pub(crate) fn fail(&mut self, now: Timestamp, fault: Fault, settings: &Settings) -> bool {
        self.failures += 1;
        let most = if fault == Fault::Unreachable {
            settings.unreachable_max
        } else {
            settings.failures_max
        };
        // A lost source gets one try at a time.
        if self.failures >= most || self.is_down() {
            self.lose(now, settings);
            return true;
        }
        let pause = settings.backoff * (1 << (self.failures - 1).min(16));
        self.resume_at = now + pause.min(settings.backoff_max);
        false
    }

    /// Marks it as lost, to be tried again after a time that doubles.
    pub(crate) fn lose(&mut self, now: Timestamp, settings: &Settings) {
        self.state = DepotState::Down;
        let pause = settings.hold * (1 << self.losses.min(16));
        self.resume_at = now + pause.min(settings.hold_max);
        self.losses = self.losses.saturating_add(1);
        self.failures = 0;
    }
}
