use posthaste_types::DepotId;

use crate::{
    Mind,
    contract::{Fault, Happening, Outbox, Reason},
};

impl Mind {
    /// Removes a depot: what it holds no longer counts.
    pub(crate) fn on_depot_removed(&mut self, id: DepotId, out: &mut Outbox) {
        if !self.depots.contains_key(&id) {
            return;
        }
        self.tell(out, None, Some(id), Happening::DepotDown, Reason::Asked);
        self.bring_up_to_date();
        self.unpin(id, out);
        self.drop_depot(
            id,
            &Reason::DepotLost {
                fault: Fault::Unreachable,
            },
            out,
        );
        self.depots.remove(&id);
        self.crossings.forget(id);
        self.spaces.set_able(id, false);
    }
}
