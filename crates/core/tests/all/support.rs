//! Shared parts of the tests.

pub mod arrivals;
pub mod desk;
pub mod inputs;

use posthaste_core::{Mind, contract::*};

/// Answers as a depot that lost nothing does when it is asked before a source is removed; nothing of any other command.
pub fn confirmed(mind: &Mind, command: &Command) -> Option<Input> {
    let Command::Inventory {
        request,
        depot,
        reason,
    } = command
    else {
        return None;
    };
    if matches!(reason, Reason::DepotBack | Reason::Restarted) {
        return None;
    }
    let mut holders = mind.holders(*request).into_iter();
    let (depot, held) = holders.find(|(at, _)| at == depot)?;
    Some(Input::DepotInventory {
        depot,
        request: *request,
        held,
    })
}
