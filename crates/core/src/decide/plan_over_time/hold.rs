//! Newcomers that turns would refuse: their answer waits for one plan, and no longer.

use crate::{
    decide, forecast,
    state::{Request, State},
};

/// Returns whether the newcomer would be on time without any others.
pub(crate) fn fits_alone(state: &State, request: &Request) -> bool {
    let nobody = forecast::completion::begin_sweep(state).into_promised();
    decide::admission::try_hopeful(state, request, &nobody).is_some()
}
