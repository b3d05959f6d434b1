use posthaste_types::{ChunkIndex, DepotId, RequestId};

use crate::{
    Mind,
    books::{FlightKey, is_of_giver},
    contract::{GiverEnd, Outbox, Reason},
};

impl Mind {
    /// How those did who sent fragments of a chunk to a destination: the way from each shows what it
    /// carries, and only who failed is left alone for a while.
    pub(crate) fn on_gather_told(
        &mut self,
        id: RequestId,
        to: DepotId,
        chunk: ChunkIndex,
        givers: &[GiverEnd],
        out: &mut Outbox,
    ) {
        let key = FlightKey {
            depot: to,
            request: id,
            chunk,
        };
        for giver in givers {
            let Some(share) = self.pushes.share_of(key, giver.depot) else {
                continue;
            };
            match giver.fault {
                None if giver.span.is_zero() => {}
                None => {
                    let beside = self.pushes.flights(giver.depot, to).max(1);
                    let taken = (share, giver.span, beside);
                    let (now, settings) = (self.now, &self.settings);
                    self.crossings
                        .observe(giver.depot, to, taken, now, settings);
                    self.pushes.succeed(giver.depot, to, now);
                }
                Some(fault) => {
                    self.pushes.blame(key);
                    let attempt = self.back_off(giver.depot, to) + 1;
                    let reason = Reason::Retry { fault, attempt };
                    if is_of_giver(fault) {
                        self.ask_giver(id, giver.depot, &reason, out);
                    }
                }
            }
        }
    }
}
