use posthaste_core::contract::Happening;

use crate::store::Remains;

/// Returns what remains of a request, if this event is its end.
pub(super) fn remains_of(happening: &Happening) -> Option<Remains> {
    match happening {
        Happening::Released | Happening::Purged => Some(Remains::Envelope),
        // A destination may lose it.
        Happening::Delivered => Some(Remains::Source),
        Happening::Refused
        | Happening::Cancelled
        | Happening::Failed
        | Happening::Arrived { .. } => Some(Remains::Nothing),
        Happening::Admitted
        | Happening::AtRisk { .. }
        | Happening::OnTime { .. }
        | Happening::Missed
        | Happening::DepotActivated
        | Happening::DepotRetired
        | Happening::DepotDown
        | Happening::DepotUp
        | Happening::DepotDraining
        | Happening::DepotEmptied
        | Happening::DepotUndrained
        | Happening::ForecastMoved
        | Happening::Repairing { .. }
        | Happening::Safe { .. }
        | Happening::Unsafe { .. }
        | Happening::ReleaseFailed
        | Happening::Rerouted
        | Happening::Pushing
        | Happening::Pushed
        | Happening::Delivering
        | Happening::Crowded
        | Happening::Unpinned
        | Happening::Paused
        | Happening::Resumed
        | Happening::DeliveryAtRisk { .. }
        | Happening::DeliveryOnTime { .. }
        | Happening::DeliveryMissed
        | Happening::Fetching
        | Happening::Prestaging
        | Happening::SourceLeft { .. }
        | Happening::SourceBack { .. }
        | Happening::CodeChosen { .. }
        | Happening::LeftOut { .. }
        | Happening::Reservation { .. }
        | Happening::WayTried { .. }
        | Happening::WayTaken { .. }
        | Happening::Thinned { .. } => None,
    }
}
