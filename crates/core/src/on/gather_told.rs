use posthaste_types::{ChunkIndex, DepotId, RequestId};

use crate::{
    Mind,
    books::{FlightKey, is_of_giver},
    contract::{GiverEnd, Outbox, Reason},
};

impl Mind {
    /// Handles how the senders of a chunk's fragments to a destination did: each path shows its
    /// rate, and only a sender that failed rests.
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
