//! Slurm's queue: JSON in every form since 21.08, and text where JSON is not available.
//!
//! Functions here take bytes and run nothing. The caller decides when to ask Slurm.

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

/// Reasons for which a pending job does not wait for processors. A job whose data Slurm is staging
/// in does wait for them: our data is ready by then.
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

/// Returns whether a waiting job is held. Another reason may hide the hold, but the priority of a
/// held job is always 0.
fn is_held(priority: Option<u64>) -> bool {
    priority == Some(0)
}

/// Returns whether a job has or had nodes, by its list of nodes: a job without any never began. Its
/// start time shows nothing, as a job cancelled while waiting gets that moment as its start.
fn has_begun(nodes: &str) -> bool {
    !matches!(
        nodes.trim(),
        "" | "(null)" | "n/a" | "N/A" | "None" | "None assigned"
    )
}

/// Fields that determine a job's state.
#[derive(Debug, Clone, Copy)]
struct Told<'a> {
    state: &'a str,
    /// Reason for waiting.
    reason: &'a str,
    /// `None` if Slurm does not report it.
    priority: Option<u64>,
    nodes: &'a str,
}

/// Returns the state of a job. Unknown states count as over, so nothing is forecast for them.
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

/// Returns whether a job waits for others. Slurm removes dependencies from the list once they are
/// fulfilled.
fn is_open(dependency: &str) -> bool {
    !dependency.is_empty() && dependency != "(null)"
}

#[cfg(test)]
mod tests;
