//! News about a stage-in.

use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Outbox, StageInNews},
    state::{Fetch, Purse, State},
};

/// Handles news of a stage-in.
pub(crate) fn on_stage_in_told(
    state: &mut State,
    id: RequestId,
    news: &StageInNews,
    out: &mut Outbox,
) {
    match *news {
        StageInNews::MayWait { ref near } => apply::stage_in::near::on_may_wait(state, id, near),
        StageInNews::Stored {
            source,
            chunk,
            depot,
        } => apply::stage_in::near::on_prestaged(state, id, Fetch { chunk, source }, depot, out),
        StageInNews::Failed {
            source,
            chunk,
            depot,
            fault,
        } => apply::stage_in::near::on_prestage_failed(
            state,
            id,
            Fetch { chunk, source },
            depot,
            fault,
        ),
        StageInNews::GoesOut { release } => {
            apply::stage_in::outward::on_goes_out(state, id, release)
        }
        StageInNews::GoesOn { of } => apply::stage_in::onward::on_goes_on(state, id, of),
        StageInNews::IsFor {
            ref owner,
            ref project,
        } => on_is_for(state, id, owner, project),
        StageInNews::Costs { budget, ref prices } => {
            let purse = Purse::new(budget, prices);
            state.arrivals.keep_purse(id, purse);
        }
        StageInNews::Refused { ref said } => {
            apply::stage_in::refusal::on_refused_there(state, id, said)
        }
        StageInNews::Unkept { modes, times } => {
            apply::stage_in::refusal::on_unkept_there(state, id, modes, times)
        }
        StageInNews::FromOne { ref said } => apply::stage_in::refusal::on_from_one(state, id, said),
        StageInNews::LeftOut { ref left_out } => {
            apply::stage_in::refusal::on_left_out_there(state, id, left_out)
        }
    }
}

/// Sets the owner and project of a stage-in.
fn on_is_for(state: &mut State, id: RequestId, owner: &str, project: &str) {
    let Some(arrival) = state.arrivals.requests.get_mut(&id) else {
        return;
    };
    arrival.owner = owner.into();
    arrival.project = project.into();
    arrival.turn = state.shares.turn(arrival.claim(), &state.settings);
}
