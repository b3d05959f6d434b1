//! Checks that only existing routes are taken, and that at most one in the whole centre is on
//! trial.

use posthaste_core::contract::Happening;
use posthaste_types::DepotId;

use super::{Found, ensure};

pub(super) const NAME: &str = "ways that are there, one tried at a time";

/// State of route trials.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    /// Depot whose route is on trial.
    tried: Option<DepotId>,
}

impl Ways {
    /// Checks a command to take a route.
    pub(crate) fn on_take(&self, depot: DepotId, is_there: bool) -> Result<(), Found> {
        ensure(NAME, is_there, || {
            format!("a way to {depot} is taken that is not there")
        })
    }

    /// Checks an event of the mind about a depot.
    pub(crate) fn on_said(
        &mut self,
        depot: Option<DepotId>,
        happening: &Happening,
    ) -> Result<(), Found> {
        if let Happening::WayTaken { .. } = happening {
            self.tried.take_if(|tried| Some(*tried) == depot);
        }
        if let Happening::WayTried { .. } = happening {
            let before = std::mem::replace(&mut self.tried, depot);
            return ensure(NAME, before.is_none(), || {
                format!("ways to {before:?} and {depot:?} are tried at once")
            });
        }
        Ok(())
    }

    /// Ends the trial, because the next driver starts without one.
    pub(crate) fn on_crash(&mut self) {
        self.tried = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_trials_at_once_and_ways_that_are_not_there_are_caught() {
        let name = String::from("border");
        let (tried, taken) = (
            Happening::WayTried { name: name.clone() },
            Happening::WayTaken { name },
        );
        let (one, other) = (Some(DepotId::new(1)), Some(DepotId::new(2)));
        let mut ways = Ways::default();
        assert!(ways.on_take(DepotId::new(1), false).is_err());
        assert!(ways.on_said(one, &tried).is_ok());
        assert!(ways.on_said(other, &taken).is_ok());
        assert!(ways.on_said(other, &tried).is_err());
        ways.on_crash();
        assert!(ways.on_said(one, &tried).is_ok());
        assert!(ways.on_said(one, &taken).is_ok());
        assert!(ways.on_said(other, &tried).is_ok());
    }
}
