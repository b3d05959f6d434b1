//! Whether a request waits because a user said so.

use super::{Arrival, Request};
use crate::contract::Pause;

impl Request {
    /// Who lets it wait, and since when; none once it is over.
    pub(crate) fn pause(&self) -> Option<&Pause> {
        self.uncommon.paused.as_ref().filter(|_| !self.is_final())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause().is_some()
    }

    /// Whether it moves and nobody lets it wait.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_moving() && !self.is_paused()
    }

    /// The name of its state: paused is what would move if nobody let it wait.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.is_moving() && self.is_paused() {
            true => Pause::STATE,
            false => self.state.name(),
        }
    }
}

impl Arrival {
    /// Who lets it wait, and since when; none once it is over.
    pub(crate) fn pause(&self) -> Option<&Pause> {
        self.paused.as_ref().filter(|_| self.state.is_live())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause().is_some()
    }

    /// The name of its state: paused is what would go on if nobody let it wait.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.is_paused() {
            true => Pause::STATE,
            false => self.state.name(),
        }
    }
}
