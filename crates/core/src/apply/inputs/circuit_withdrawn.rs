use posthaste_types::CircuitId;

use crate::state::State;

/// Withdraws a circuit; reservations on it stay until its owner says otherwise.
pub(crate) fn on_circuit_withdrawn(state: &mut State, id: CircuitId) {
    state.circuits.offered.remove(&id);
}
