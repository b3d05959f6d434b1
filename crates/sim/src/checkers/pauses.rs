use std::collections::BTreeSet;

use posthaste_core::contract::{Command, Event, Happening};
use posthaste_types::RequestId;

use super::{Found, ensure};

pub(super) const NAME: &str = "nothing of a paused request is begun";

/// Checker that nothing moves for a paused request.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    paused: BTreeSet<RequestId>,
}

impl Pauses {
    /// Records an event of the mind.
    pub(crate) fn on_event(&mut self, event: &Event) {
        let Some(request) = event.request else { return };
        if event.happening == Happening::Paused {
            self.paused.insert(request);
        }
        let is_over = matches!(
            event.happening,
            Happening::Resumed | Happening::Delivered | Happening::Cancelled | Happening::Failed
        );
        if is_over {
            self.paused.remove(&request);
        }
    }

    /// Checks a command of the mind. Repair of data whose source is gone continues during a pause,
    /// because no other copy exists.
    pub(crate) fn on_command(&self, command: &Command) -> Result<(), Found> {
        let begun = match command {
            Command::Send { request, .. }
            | Command::Forward { request, .. }
            | Command::Follow { request, .. }
            | Command::Gather { request, .. }
            | Command::Scatter { request, .. }
            | Command::Fetch { request, .. }
            | Command::Prestage { request, .. }
            | Command::Release { request, .. }
            | Command::ReserveSpace { request, .. } => Some(request),
            Command::Mend { .. }
            | Command::Reserve { .. }
            | Command::Abandon { .. }
            | Command::Recall { .. }
            | Command::Inventory { .. }
            | Command::Forget { .. }
            | Command::Quit { .. }
            | Command::Survey { .. }
            | Command::Settle { .. }
            | Command::Probe { .. }
            | Command::ProbeCrossing { .. }
            | Command::Solve { .. }
            | Command::Rearrange { .. }
            | Command::GiveBack { .. }
            | Command::ReleaseSpace { .. }
            | Command::LeaveOut { .. }
            | Command::Renew { .. }
            | Command::Take { .. } => None,
        };
        let wrong = begun.filter(|request| self.paused.contains(request));
        ensure(NAME, wrong.is_none(), || {
            format!("{command:?} while paused")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::contract::Reason;
    use posthaste_types::{ChunkIndex, DepotId, FragmentIndex, Timestamp};

    #[test]
    fn what_is_sent_while_paused_is_caught() {
        let (request, reason) = (RequestId::new(1), Reason::Asked);
        let mut pauses = Pauses::default();
        let event = |happening| Event {
            at: Timestamp::from_secs(1),
            request: Some(request),
            depot: None,
            happening,
            reason: Reason::Asked,
        };
        let send = Command::Send {
            request,
            depot: DepotId::new(1),
            chunk: ChunkIndex::new(0),
            fragment: FragmentIndex::new(0),
            reason,
        };
        assert!(pauses.on_command(&send).is_ok());
        pauses.on_event(&event(Happening::Paused));
        assert!(pauses.on_command(&send).is_err());
        pauses.on_event(&event(Happening::Resumed));
        assert!(pauses.on_command(&send).is_ok());
    }
}
