//! Meaning of a user's wishes for a request at present.

use alloc::vec::Vec;
use core::time::Duration;
use posthaste_types::{Bytes, DepotId, Timestamp};

use crate::state::request::Request;
use crate::{
    Settings,
    contract::{Encode, LentTerms, Reason, ReleasePolicy, Repair, Survive},
};

/// Default time for which depots keep data beyond its deadline.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86400);

impl Request {
    /// Sets the deadline: the user's, or the purge of the source if that comes first.
    pub(crate) fn bind(&mut self, wished: Timestamp, purge_at: Option<Timestamp>) {
        (self.wished_deadline, self.uncommon.purge_at) = (wished, purge_at);
        self.spec.deadline = purge_at.map_or(wished, |purge_at| wished.min(purge_at));
    }

    /// Returns its deliver-by, as long as some of it may still be on its way there.
    pub(crate) fn deliver_by(&self) -> Option<Timestamp> {
        self.wishes.deliver_by.filter(|_| self.delivery.is_some())
    }

    /// Returns its deliver-by, if it was promised and can still be kept.
    pub(crate) fn promised_by(&self) -> Option<Timestamp> {
        let may_be_kept = !self.due.is_leftover && !self.due.missed;
        self.deliver_by().filter(|_| may_be_kept)
    }

    /// Returns whether cheap depots come before fast ones.
    pub(crate) fn is_thrifty(&self) -> bool {
        self.wishes.survive != Survive::AsCoded || self.wishes.budget_micro_usd.is_some()
    }

    /// Ignores one destination, as if it had not been named.
    pub(crate) fn do_without(&mut self, lane: usize) {
        self.destinations &= !(1 << lane);
        if self.lead == Some(lane) {
            self.lead = self.destinations().next();
        }
    }

    /// Returns when its sends must be complete: its deadline, or earlier if its destinations must
    /// have it in time.
    pub(crate) fn aim(&self) -> Timestamp {
        let deadline = self.spec.deadline;
        self.due.safe_by.map_or(deadline, |by| by.min(deadline))
    }

    /// Returns which of the two binds, if there are two.
    pub(crate) fn binding(&self) -> Option<Reason> {
        let (deadline, purge_at) = (self.wished_deadline, self.uncommon.purge_at?);
        Some(if purge_at < deadline {
            Reason::PurgeFirst { purge_at, deadline }
        } else {
            Reason::DeadlineFirst { deadline, purge_at }
        })
    }

    /// Returns whether lost fragments may stay lost for a while: as long as the source stays, they
    /// can be sent again at any time.
    pub(crate) fn is_lazy(&self) -> bool {
        let stays = self.spec.release == ReleasePolicy::Never && self.uncommon.purge_at.is_none();
        self.wishes.repair == Repair::Lazy && stays && self.spec.code.parity() > 2
    }

    /// Returns how long depots keep fragments sent now.
    pub(crate) fn keeps(&self, now: Timestamp) -> Duration {
        self.kept_until().since(now)
    }

    /// Until when depots keep what is sent them.
    pub(crate) fn kept_until(&self) -> Timestamp {
        let until = self.wishes.keep_until;
        until.unwrap_or(self.spec.deadline + KEEP_DEFAULT)
    }

    /// Returns whether depots keep it no longer: they refuse what expired. A time before it was
    /// submitted only prices it.
    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        let until = self.kept_until();
        self.submitted < until && until <= now
    }

    /// Returns the terms on which the depot of a lane is lent for it alone; none if the terms for
    /// all apply.
    pub(crate) fn lent(&self, lane: usize) -> Option<&LentTerms> {
        let depot = self.lanes.get(lane)?.depot;
        self.uncommon.lent.iter().find(|lent| lent.depot == depot)
    }

    /// Returns whether nothing may be sent over the lane: it would break a wish, or cost too much,
    /// or its depot is drained.
    pub(crate) fn is_barred(&self, lane: usize) -> bool {
        self.is_unwanted(lane) || self.uncommon.drained >> lane & 1 == 1
    }

    /// Returns the newcomer without these depots, as if its user had forbidden them.
    pub(crate) fn without(self, depots: Vec<DepotId>, now: Timestamp) -> Self {
        let mut wishes = (*self.wishes).clone();
        wishes.forbidden.extend(depots);
        let (wished, purge_at) = (self.wished_deadline, self.uncommon.purge_at);
        let pinned = self.uncommon.pinned.clone();
        let mut without = Self::new(self.spec, self.method, wishes, pinned, now);
        without.bind(wished, purge_at);
        without
    }

    /// Sends nothing more over a lane.
    pub(crate) fn bar(&mut self, lane: usize) {
        self.uncommon.barred |= 1 << lane;
        self.lanes[lane].is_active = false;
        self.replica.unpark();
    }

    /// Returns whether nothing may be sent over the lane, drained depots apart.
    pub(crate) fn is_unwanted(&self, lane: usize) -> bool {
        (self.uncommon.barred | self.uncommon.dear) >> lane & 1 == 1
    }

    /// Returns what is left of its budget; any amount if it has none.
    pub(crate) fn money_left(&self) -> u64 {
        let budget = self.wishes.budget_micro_usd;
        budget.map_or(u64::MAX, |budget| {
            budget.saturating_sub(self.spent_micro_usd)
        })
    }

    /// Returns a chunk's size beyond the largest piece of it that is sent at a time.
    pub(crate) fn spare(&self, settings: &Settings) -> Bytes {
        if settings.encode != Encode::Centre {
            // The next to start may be a chunk.
            return Bytes::ZERO;
        }
        let chunk = self.spec.chunk_size;
        match self.lead() {
            Some(_) => Bytes::ZERO,
            None => chunk - self.spec.code.fragment_size(chunk),
        }
    }
}
