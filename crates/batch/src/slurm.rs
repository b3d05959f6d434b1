//! What Slurm says of its queue: as JSON in every shape since 21.08, and as text where that is not to be had.
//!
//! Everything here takes bytes and runs nothing: who asks, and how often, is another's business.

mod document;
mod job_state;
mod json;
mod nodes;
mod number;
mod places;
mod text;

pub use document::complaint;
pub use job_state::{JobState, STATES_FORMAT, job_states};
pub use json::{history, job_states_json, queue};
pub use nodes::processors_json;
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

/// Whether a job that waits is held: its reason may be another that counts first, its priority is 0 whatever that is.
fn is_held(priority: Option<u64>) -> bool {
    priority == Some(0)
}

/// Whether a job has or had nodes, by their list: one that never had any never began. Its start says nothing, as one that is
/// cancelled while it waits starts at that moment.
fn has_begun(nodes: &str) -> bool {
    !matches!(
        nodes.trim(),
        "" | "(null)" | "n/a" | "N/A" | "None" | "None assigned"
    )
}

/// What tells where a job is.
#[derive(Debug, Clone, Copy)]
struct Told<'a> {
    state: &'a str,
    /// Why it waits.
    reason: &'a str,
    /// None where it is not told.
    priority: Option<u64>,
    nodes: &'a str,
}

/// Where a job is. States that are yet to be invented are over: nothing is forecast of them.
fn state(told: Told) -> State {
    let Told { state, reason, .. } = told;
    // `CANCELLED by 1000`, `CANCELLED+`
    let name = state.split([' ', '+']).next().unwrap_or(state);
    match name {
        "PENDING" | "PD" if is_held(told.priority) || HELD.contains(&reason) => State::Held,
        "PENDING" | "PD" => State::Waiting,
        "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => {
            State::Held
        }
        "RUNNING" | "R" | "SUSPENDED" | "S" | "COMPLETING" | "CG" | "CONFIGURING" | "CF"
        | "SIGNALING" | "STOPPED" => State::Running,
        _ if has_begun(told.nodes) => State::Over,
        _ => State::Cancelled,
    }
}

/// Whether a job waits for others by what Slurm says of its dependencies: those that are fulfilled are not there any more.
fn is_open(dependency: &str) -> bool {
    !dependency.is_empty() && dependency != "(null)"
}

#[cfg(test)]
mod tests;
