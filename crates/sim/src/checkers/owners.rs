use std::collections::BTreeMap;

use posthaste_core::contract::{Command, Input, StageInNews};
use posthaste_types::{DepotId, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "depots of an owner hold nothing of others";

/// Owners of depots, and of requests that have one.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    depots: BTreeMap<DepotId, String>,
    requests: BTreeMap<RequestId, String>,
}

impl Owners {
    /// Records whose a depot or a request is.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else says whose something is"
    )]
    pub(crate) fn on_asked(&mut self, input: &Input) {
        match input {
            Input::DepotOwned { depot, owner } => {
                self.depots.insert(*depot, owner.clone());
            }
            Input::RequestAsked {
                request, wishes, ..
            }
            | Input::RequestAskedBy {
                request, wishes, ..
            }
            | Input::RequestPinned {
                request, wishes, ..
            } => {
                self.requests.insert(*request, wishes.owner.clone());
            }
            Input::StageInTold {
                request,
                news: StageInNews::IsFor { owner, .. },
            } => {
                self.requests.insert(*request, owner.clone());
            }
            _ => {}
        }
    }

    /// Returns whether a request may use a depot.
    pub(crate) fn may(&self, request: RequestId, depot: DepotId) -> bool {
        let owner = self.depots.get(&depot);
        owner.is_none_or(|owner| self.requests.get(&request) == Some(owner))
    }

    /// Checks where a command brings data, whoever sends it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else brings data to a depot"
    )]
    pub(crate) fn on_command(&self, command: &Command) -> Result<(), Found> {
        let (request, mut to) = match command {
            Command::Send { request, depot, .. } | Command::Prestage { request, depot, .. } => {
                (*request, vec![*depot])
            }
            Command::Forward { request, to, .. }
            | Command::Follow { request, to, .. }
            | Command::Gather { request, to, .. }
            | Command::Mend { request, to, .. } => (*request, vec![*to]),
            Command::Scatter {
                request, depot, to, ..
            } => {
                let others = to.iter().map(|(to, _)| *to);
                (*request, others.chain([*depot]).collect())
            }
            _ => return Ok(()),
        };
        to.retain(|depot| !self.may(request, *depot));
        ensure(NAME, to.is_empty(), || {
            format!("{request} is sent to {to:?}, which belongs to another owner")
        })
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::contract::Reason;
    use posthaste_types::{ChunkIndex, FragmentIndex};

    use super::*;

    #[test]
    fn what_goes_to_a_depot_of_somebody_else_is_caught_whoever_sends_it() {
        let [ash, oak] = [1, 2].map(DepotId::new);
        let [theirs, ours] = [1, 2].map(RequestId::new);
        let mut owners = Owners::default();
        owners.on_asked(&Input::DepotOwned {
            depot: ash,
            owner: "alice".into(),
        });
        for (request, owner) in [(theirs, "alice"), (ours, "bob")] {
            let (owner, project) = (owner.into(), String::new());
            let news = StageInNews::IsFor { owner, project };
            owners.on_asked(&Input::StageInTold { request, news });
        }
        let (chunk, fragment) = (ChunkIndex::new(0), FragmentIndex::new(0));
        let send = |request, depot| Command::Send {
            request,
            depot,
            chunk,
            fragment,
            reason: Reason::Asked,
        };
        assert!(owners.on_command(&send(theirs, ash)).is_ok());
        assert!(owners.on_command(&send(ours, oak)).is_ok());
        assert!(owners.on_command(&send(ours, ash)).is_err());
        let scatter = |to: DepotId| Command::Scatter {
            request: ours,
            depot: oak,
            chunk,
            fragment,
            to: vec![(to, FragmentIndex::new(1))],
            reason: Reason::Asked,
        };
        assert!(owners.on_command(&scatter(oak)).is_ok());
        assert!(owners.on_command(&scatter(ash)).is_err());
    }
}
