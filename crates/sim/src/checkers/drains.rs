use std::collections::BTreeSet;

use posthaste_core::contract::{Command, Drain, RequestSpec};
use posthaste_types::DepotId;

use super::{Found, ensure};

pub(super) const NAME: &str = "nothing new to a drained depot";

/// Checker that a drained depot gets nothing new, except what is wanted there.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    drained: BTreeSet<DepotId>,
}

impl Drains {
    /// Records a drain reported to the mind.
    pub(crate) fn on_told(&mut self, depot: DepotId, drain: Drain) {
        if drain == Drain::Off {
            self.drained.remove(&depot);
        } else {
            self.drained.insert(depot);
        }
    }

    /// Returns whether the depot is drained, as far as the mind knows.
    pub(crate) fn is_drained(&self, depot: DepotId) -> bool {
        self.drained.contains(&depot)
    }

    /// Checks a chunk of a stage-in that is to wait at a depot.
    pub(crate) fn on_prestage(&self, depot: DepotId) -> Result<(), Found> {
        ensure(NAME, !self.is_drained(depot), || {
            format!("{depot} is drained, and stage-ins are to wait there")
        })
    }

    /// Checks a command of the mind for a request.
    pub(crate) fn on_command(&self, command: &Command, spec: &RequestSpec) -> Result<(), Found> {
        let is_wrong =
            |depot: &DepotId| self.drained.contains(depot) && !spec.destinations.contains(depot);
        let gets: Vec<DepotId> = match command {
            Command::Send { depot, .. } => vec![*depot],
            Command::Forward { to, .. }
            | Command::Follow { to, .. }
            | Command::Gather { to, .. }
            | Command::Mend { to, .. }
            | Command::ProbeCrossing { to, .. } => vec![*to],
            Command::Scatter { depot, to, .. } => {
                to.iter().map(|(to, _)| *to).chain([*depot]).collect()
            }
            Command::Abandon { .. }
            | Command::Recall { .. }
            | Command::Inventory { .. }
            | Command::Release { .. }
            | Command::Forget { .. }
            | Command::Probe { .. }
            | Command::Solve { .. }
            | Command::Fetch { .. }
            | Command::Prestage { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }
            | Command::Reserve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }
            | Command::ReserveSpace { .. }
            | Command::ReleaseSpace { .. }
            | Command::LeaveOut { .. }
            | Command::Renew { .. }
            | Command::Take { .. } => Vec::new(),
        };
        let wrong = gets.into_iter().find(|depot| is_wrong(depot));
        ensure(NAME, wrong.is_none(), || {
            let depot = wrong.unwrap_or_default();
            format!("{depot} is drained and gets something: {command:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::contract::{Reason, ReleasePolicy};
    use posthaste_types::{Bytes, ChunkIndex, FragmentIndex, RequestId, Timestamp};

    #[test]
    fn a_send_to_a_drained_depot_is_caught_unless_it_is_wanted_there() {
        let depot = DepotId::new(2);
        let send = Command::Send {
            request: RequestId::new(1),
            depot,
            chunk: ChunkIndex::new(0),
            fragment: FragmentIndex::new(0),
            reason: Reason::FinishesFirst,
        };
        let mut spec = RequestSpec {
            bytes: Bytes::new(1),
            files: 1,
            chunk_size: Bytes::new(1),
            deadline: Timestamp::default(),
            code: "2+1".parse().unwrap(),
            via: vec![depot],
            destinations: Vec::new(),
            release: ReleasePolicy::Never,
            best_effort: false,
        };
        let mut drains = Drains::default();
        assert!(drains.on_command(&send, &spec).is_ok());
        drains.on_told(depot, Drain::Keep);
        assert!(drains.on_command(&send, &spec).is_err());
        spec.destinations.push(depot);
        assert!(drains.on_command(&send, &spec).is_ok());
        drains.on_told(depot, Drain::Off);
        assert!(!drains.is_drained(depot));
    }
}
