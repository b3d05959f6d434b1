//! What its user's wishes mean for a request as it stands.

use core::time::Duration;
use posthaste_types::{Bytes, Timestamp};

use super::Request;
use crate::{
    Settings,
    contract::{Encode, LentTerms, Reason, ReleasePolicy, Repair, Survive},
};

/// How long depots keep data beyond its deadline where nobody said.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86400);

impl Request {
    /// The deadline is the user's, or the purge of the source where that comes first.
    pub(crate) fn bind(&mut self, wished: Timestamp, purge_at: Option<Timestamp>) {
        (self.wished_deadline, self.uncommon.purge_at) = (wished, purge_at);
        self.spec.deadline = purge_at.map_or(wished, |purge_at| wished.min(purge_at));
    }

    /// When it is wanted at its destinations, as long as some of it may be under way there.
    pub(crate) fn deliver_by(&self) -> Option<Timestamp> {
        self.wishes.deliver_by.filter(|_| self.delivery.is_some())
    }

    /// The same, where that was promised and can still be kept.
    pub(crate) fn promised_by(&self) -> Option<Timestamp> {
        let may_be_kept = !self.due.is_leftover && !self.due.missed;
        self.deliver_by().filter(|_| may_be_kept)
    }

    /// Whether cheap depots come before fast ones.
    pub(crate) fn is_thrifty(&self) -> bool {
        self.wishes.survive != Survive::AsCoded || self.wishes.budget_micro_usd.is_some()
    }

    /// As if one destination had not been named.
    pub(crate) fn do_without(&mut self, lane: usize) {
        self.destinations &= !(1 << lane);
        if self.lead == Some(lane) {
            self.lead = self.destinations().next();
        }
    }

    /// When its sends must be through: its deadline, or earlier where its destinations are to have it in time.
    pub(crate) fn aim(&self) -> Timestamp {
        let deadline = self.spec.deadline;
        self.due.safe_by.map_or(deadline, |by| by.min(deadline))
    }

    /// Which of the two binds, where there are two.
    pub(crate) fn binding(&self) -> Option<Reason> {
        let (deadline, purge_at) = (self.wished_deadline, self.uncommon.purge_at?);
        Some(if purge_at < deadline {
            Reason::PurgeFirst { purge_at, deadline }
        } else {
            Reason::DeadlineFirst { deadline, purge_at }
        })
    }

    /// Whether fragments that are lost may stay lost for a while: as long as the source stays, they can be
    /// made again at any time.
    pub(crate) fn is_lazy(&self) -> bool {
        let stays = self.spec.release == ReleasePolicy::Never && self.uncommon.purge_at.is_none();
        self.wishes.repair == Repair::Lazy && stays && self.spec.code.parity() > 2
    }

    /// How long depots keep what is sent them now.
    pub(crate) fn keeps(&self, now: Timestamp) -> Duration {
        self.kept_until().since(now)
    }

    /// Until when depots keep what is sent them.
    pub(crate) fn kept_until(&self) -> Timestamp {
        let until = self.wishes.keep_until;
        until.unwrap_or(self.spec.deadline + KEEP_DEFAULT)
    }

    /// On which terms the depot of a lane is lent for it alone; none where on those for all.
    pub(crate) fn lent(&self, lane: usize) -> Option<&LentTerms> {
        let depot = self.lanes.get(lane)?.depot;
        self.uncommon.lent.iter().find(|lent| lent.depot == depot)
    }

    /// Whether nothing may be sent over the lane: it would break what was wished, or cost too much, or
    /// its depot is to be switched off.
    pub(crate) fn is_barred(&self, lane: usize) -> bool {
        self.is_unwanted(lane) || self.uncommon.drained >> lane & 1 == 1
    }

    /// The same, but that its depot may be drained.
    pub(crate) fn is_unwanted(&self, lane: usize) -> bool {
        (self.uncommon.barred | self.uncommon.dear) >> lane & 1 == 1
    }

    /// What is left of its budget; any amount where it has none.
    pub(crate) fn money_left(&self) -> u64 {
        let budget = self.wishes.budget_micro_usd;
        budget.map_or(u64::MAX, |budget| {
            budget.saturating_sub(self.spent_micro_usd)
        })
    }

    /// What a chunk has beyond the largest piece of it that is sent at a time.
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
