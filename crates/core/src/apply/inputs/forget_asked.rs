use posthaste_types::RequestId;

use crate::{
    apply,
    contract::{Outbox, Reason},
    state,
    state::State,
};

/// Lets depots drop a request that is complete elsewhere at a user's request, however long it
/// was to be kept. If somebody pulled it, no destination is waited for any more.
pub(crate) fn on_forget_asked(state: &mut State, id: RequestId, out: &mut Outbox) {
    if state::forget::may_forget(state, id) {
        apply::settle::end_delivered(state, id, Reason::Verified, out);
    }
    apply::forget::forget_delivered(state, id, Reason::Asked);
}
