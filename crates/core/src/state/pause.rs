//! Pauses of requests by a user.

use crate::contract::Pause;
use crate::state::{Arrival, Request};

impl Request {
    /// Returns who paused it, and when; none once it is over.
    pub(crate) fn pause(&self) -> Option<&Pause> {
        self.uncommon.paused.as_ref().filter(|_| !self.is_final())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause().is_some()
    }

    /// Returns whether it moves and is not paused.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_moving() && !self.is_paused()
    }

    /// Returns the name of its state: paused, if it would otherwise move.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.is_moving() && self.is_paused() {
            true => Pause::STATE,
            false => self.state.name(),
        }
    }
}

impl Arrival {
    /// Returns who paused it, and when; none once it is over.
    pub(crate) fn pause(&self) -> Option<&Pause> {
        self.paused.as_ref().filter(|_| self.state.is_live())
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.pause().is_some()
    }

    /// Returns the name of its state: paused, if it would otherwise go on.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.is_paused() {
            true => Pause::STATE,
            false => self.state.name(),
        }
    }
}
