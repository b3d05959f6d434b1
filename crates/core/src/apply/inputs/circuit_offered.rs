use posthaste_types::{CircuitId, Timestamp};

use crate::{
    contract::CircuitTerms,
    state::{Circuit, Circuits, State},
};

/// Registers a circuit with its terms, up to the number that is kept.
pub(crate) fn on_circuit_offered(state: &mut State, id: CircuitId, mut terms: CircuitTerms) {
    terms.depots.sort_unstable();
    terms.depots.dedup();
    let offered = &mut state.circuits.offered;
    if let Some(circuit) = offered.get_mut(&id) {
        circuit.terms = terms;
    } else if offered.len() < Circuits::OFFERED_MAX {
        let circuit = Circuit {
            terms,
            refusals: 0,
            not_before: Timestamp::default(),
            fits: None,
        };
        offered.insert(id, circuit);
    }
}
