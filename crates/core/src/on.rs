//! One file for each kind of input.

mod deadline_moved;
mod delivered;
mod depot_added;
mod depot_down;
mod depot_inventory;
mod depot_levelled;
mod depot_removed;
mod depot_terms;
mod depot_up;
mod driver_started;
mod fragment_failed;
mod fragment_stored;
mod plan_solved;
mod probe_asked;
mod probed;
mod rate_limited;
mod request_cancelled;
mod request_submitted;
mod source_kept;
mod source_released;
mod throughput;
