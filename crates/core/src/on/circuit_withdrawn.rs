use posthaste_types::CircuitId;

use crate::Mind;

impl Mind {
    /// Nothing more can be reserved on a circuit; what is reserved stays until its owner says otherwise.
    pub(crate) fn on_circuit_withdrawn(&mut self, id: CircuitId) {
        self.circuits.offered.remove(&id);
    }
}
