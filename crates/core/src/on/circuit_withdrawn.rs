use posthaste_types::CircuitId;

use crate::Mind;

impl Mind {
    /// Withdraws a circuit; reservations on it stay until its owner says otherwise.
    pub(crate) fn on_circuit_withdrawn(&mut self, id: CircuitId) {
        self.circuits.offered.remove(&id);
    }
}
