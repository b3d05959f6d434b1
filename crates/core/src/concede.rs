//! Late requests let others go first if that keeps more deadlines
//! (`docs/algorithms/greedy-planner.md`). The earliest deadline first is the best order only while
//! all can be kept. A large late request makes all behind it late as well.

use alloc::{string::String, vec::Vec};
use posthaste_types::{Bytes, RequestId};

use crate::{Mind, books::Request, contract::Reason, outlook::Belief};

/// Most late requests that are tried, the largest first: without one of these the others gain most.
const TRIED_MAX: usize = 8;

impl Mind {
    /// Reviews the order after a look at everything: one late request lets others go first, or one
    /// that did takes its turn again.
    pub(crate) fn review_order(&mut self) {
        if !self.may_reorder() {
            return;
        }
        let conceded =
            self.those(|request| request.uncommon.has_conceded && request.is_under_way());
        let least = self.settings.behind_ticks;
        let may_concede = |request: &Request| {
            !request.is_leftover
                && !request.is_paused()
                && request.at_risk
                && request.late_ticks >= least
        };
        let late = self.those(may_concede);
        if conceded.is_empty() && late.len() < 2 {
            return;
        }
        let kept = self.kept(Belief::P50, None, None);
        let regained = conceded.into_iter().find(|&id| {
            let request = self.requests.get(&id);
            let all = request.map(|request| self.kept(Belief::P50, Some((id, request)), None));
            all.is_some_and(|all| all.contains_key(&id) && all.len() > kept.len())
        });
        if let Some(id) = regained {
            self.take_turn_again(id);
            return;
        }
        let mut late: Vec<(Bytes, RequestId)> = late
            .into_iter()
            .filter(|id| !kept.contains_key(id))
            .filter_map(|id| Some((self.requests.get(&id)?.replica.unsafe_bytes(), id)))
            .collect();
        late.sort_unstable_by(|one, other| other.cmp(one));
        late.truncate(TRIED_MAX);
        let tried = late
            .into_iter()
            .map(|(_, id)| (self.kept(Belief::P50, None, Some(id)).len(), id));
        // Of equals the largest wins, which came first.
        let best = tried
            .filter(|(others, _)| *others > kept.len())
            .min_by_key(|&(others, _)| core::cmp::Reverse(others));
        if let Some((others, id)) = best {
            self.concede(id, others - kept.len());
        }
    }

    fn those(&self, are: impl Fn(&Request) -> bool) -> Vec<RequestId> {
        let all = self.index.after(None).map(|urgency| urgency.request);
        all.filter(|id| self.requests.get(id).is_some_and(&are))
            .collect()
    }

    fn concede(&mut self, id: RequestId, more: usize) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.go_last(self.shares.turn(request.wishes.claim(), &self.settings));
            request.uncommon.has_conceded = true;
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.remember(
            id,
            String::from("lets others go first"),
            Reason::Concedes { more },
        );
        self.bring_up_to_date();
    }

    fn take_turn_again(&mut self, id: RequestId) {
        if let Some(request) = self.requests.get_mut(&id) {
            request.take_turn();
        }
        self.remember(id, String::from("takes its turn again"), Reason::Regained);
        self.bring_up_to_date();
    }
}
