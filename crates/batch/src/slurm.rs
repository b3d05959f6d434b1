//! What Slurm says of its queue: as JSON in every shape since 21.08, and as text where that is not to be had.
//!
//! Everything here takes bytes and runs nothing: who asks, and how often, is another's business.

mod job_state;
mod json;
mod number;
mod text;

pub use job_state::{JobState, STATES_FORMAT, job_states};
pub use json::{history, queue};
pub use text::{HISTORY, PROCESSORS, QUEUE, history_text, processors, queue_records, queue_text};

use crate::queue::State;

/// Reasons for which a pending job is not waiting for room. One whose data is staged in waits for room as well: our data is
/// there when that is.
const HELD: [&str; 8] = [
    "BeginTime",
    "Dependency",
    "DependencyNeverSatisfied",
    "JobArrayTaskLimit",
    "JobHeldAdmin",
    "JobHeldUser",
    "Prolog",
    "ReservationDeleted",
];

/// Where a job is, by the name of its state and why it waits. States that are yet to be invented are over: nothing is
/// forecast of them.
fn state(name: &str, reason: &str, has_started: bool) -> State {
    // `CANCELLED by 1000`, `CANCELLED+`
    let name = name.split([' ', '+']).next().unwrap_or(name);
    match name {
        "PENDING" | "PD" if HELD.contains(&reason) => State::Held,
        "PENDING" | "PD" => State::Waiting,
        "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
            State::Held
        }
        "RUNNING" | "R" | "SUSPENDED" | "S" | "COMPLETING" | "CG" | "CONFIGURING" | "CF"
        | "SIGNALING" | "STOPPED" => State::Running,
        "CANCELLED" | "CA" | "DEADLINE" | "REVOKED" if !has_started => State::Cancelled,
        _ => State::Over,
    }
}

#[cfg(test)]
mod tests;
