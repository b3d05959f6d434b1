//! Forwards of fragments that still arrive. The driver reports such a forward after the send it
//! follows, and drops it with that send.

use std::time::Duration;

use posthaste_core::contract::Fault;
use posthaste_types::{DepotId, RequestId};

use super::{Run, sends::Send};
use crate::checkers::End;

/// Delay of the report about a forward after the end of the send it follows.
pub(super) const SOON: Duration = Duration::from_millis(1);

/// Forward of a fragment that still arrives.
#[derive(Debug, Clone)]
pub(super) struct Following {
    /// Send that it follows.
    pub(super) leader: Send,
    /// Result of the forward, if it ended before the send it follows.
    pub(super) ended: Option<Option<Fault>>,
}

impl Run<'_> {
    /// Forwards a fragment that is on its way to a depot, or that it already holds.
    pub(super) fn follow(&mut self, from: DepotId, send: Send) {
        let leader = (from, send.1, send.2, send.3);
        if self.checkers.conservation.is_flying(&leader) {
            let ended = None;
            let following = Following { leader, ended };
            self.forwards.following.insert(send, following);
        }
        self.send_on(from, send, true);
    }

    /// Drops forwards to a depot, including those whose report is pending.
    pub(super) fn drop_follows(&mut self, request: RequestId, to: DepotId) {
        self.forget_follows(|send| send.1 == request && send.0 == to);
    }

    /// Cuts off forwards that followed a send from the centre, because the driver died.
    pub(super) fn crash_follows(&mut self) {
        self.forget_follows(|_| true);
    }

    fn forget_follows(&mut self, is_gone: impl Fn(&Send) -> bool) {
        let all = self.forwards.following.iter();
        let all = all.filter(|(send, _)| is_gone(send));
        let all: Vec<(Send, Following)> = all
            .map(|(send, following)| (*send, following.clone()))
            .collect();
        for (send, following) in all {
            self.forwards.following.remove(&send);
            self.take_back(following.leader.0, send, following.ended);
            self.end_send(send, End::Dropped);
        }
    }
}
