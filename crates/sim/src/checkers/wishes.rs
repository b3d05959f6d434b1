//! Checks that users' options are kept: forbidden depots, rate limits and budgets.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use posthaste_core::contract::{DepotPrices, DepotTerms, RequestSpec, SourcePrice, Wishes};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, RequestId, SourceId, Timestamp};

use super::{Found, ensure};

pub(crate) const NAME: &str = "wishes kept";

/// Time span over which a rate limit is checked, with one chunk of tolerance.
const SPAN: Duration = Duration::from_secs(10);

/// Transfers for a request with a rate limit.
#[derive(Debug)]
struct Limited {
    rate: ByteRate,
    chunk: Bytes,
    /// Sends within the last span.
    sent: VecDeque<(Timestamp, Bytes)>,
}

/// Time that depots keep data beyond its deadline by default.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 86400);

/// Budget of a request and the amount spent, in millionths of a dollar.
#[derive(Debug)]
struct Budget {
    most: u64,
    keep_until: Timestamp,
    spent: u64,
}

/// Limits of each request.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pinned: BTreeMap<RequestId, Vec<DepotId>>,
    forbidden: BTreeMap<RequestId, Vec<DepotId>>,
    limited: BTreeMap<RequestId, Limited>,
    budgets: BTreeMap<RequestId, Budget>,
    terms: BTreeMap<DepotId, DepotTerms>,
    prices: BTreeMap<DepotId, DepotPrices>,
    /// Cost of reading each stage-in from each source.
    reading: BTreeMap<(RequestId, SourceId), SourcePrice>,
}

impl Kept {
    pub(crate) fn on_asked(&mut self, request: RequestId, spec: &RequestSpec, wishes: &Wishes) {
        if let Some(rate) = wishes.rate_max {
            let limited = Limited {
                rate,
                chunk: spec.chunk_size,
                sent: VecDeque::new(),
            };
            self.limited.insert(request, limited);
        }
        if let Some(most) = wishes.budget_micro_usd {
            let keep_until = wishes.keep_until.unwrap_or(spec.deadline + KEEP_DEFAULT);
            let budget = Budget {
                most,
                keep_until,
                spent: 0,
            };
            self.budgets.insert(request, budget);
        }
        if !wishes.forbidden.is_empty() {
            self.forbidden.insert(request, wishes.forbidden.clone());
        }
    }

    /// Records the budget of a stage-in, and the prices of its sources.
    pub(crate) fn on_costs(
        &mut self,
        request: RequestId,
        budget: Option<u64>,
        prices: &[SourcePrice],
    ) {
        if let Some(most) = budget {
            // A repeated submission has the same budget.
            self.budgets.entry(request).or_insert(Budget {
                most,
                keep_until: Timestamp::default(),
                spent: 0,
            });
        }
        let prices = prices.iter().map(|price| ((request, price.source), *price));
        self.reading.extend(prices);
    }

    /// Checks the cost of reading a chunk of a single file from a source.
    pub(crate) fn on_read(
        &mut self,
        request: RequestId,
        source: SourceId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        let price = self.reading.get(&(request, source));
        let cost = price.map_or(0, |price| price.reading(bytes, (1, 1)).micro_usd());
        self.spend(request, cost)
    }

    /// Records the depots that must hold their share of a request.
    pub(crate) fn on_pinned(&mut self, request: RequestId, pinned: &[DepotId]) {
        self.pinned.insert(request, pinned.to_vec());
    }

    /// Checks a request reported safe. `lacks` gives the first chunk of which a pinned depot holds
    /// nothing.
    pub(crate) fn on_safe(
        &self,
        request: RequestId,
        lacks: impl Fn(DepotId) -> Option<ChunkIndex>,
    ) -> Result<(), Found> {
        let mut pinned = self.pinned.get(&request).into_iter().flatten();
        let lacking = pinned.find_map(|depot| Some((*depot, lacks(*depot)?)));
        ensure(NAME, lacking.is_none(), || {
            format!("{request} is safe, they say, and {lacking:?} lacks on a pinned depot")
        })
    }

    /// Records the terms of a depot.
    pub(crate) fn on_lent(&mut self, depot: DepotId, terms: &DepotTerms) {
        self.terms.insert(depot, terms.clone());
    }

    /// Records the prices of a depot beyond its terms.
    pub(crate) fn on_priced(&mut self, depot: DepotId, prices: &DepotPrices) {
        self.prices.insert(depot, prices.clone());
    }

    /// Checks a transfer out of a depot. With a budget it must be free for everybody.
    pub(crate) fn on_given(
        &mut self,
        request: RequestId,
        from: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        let prices = self.prices.get(&from);
        let cost = prices.map_or(0, |prices| prices.reading(bytes, None).micro_usd());
        self.spend(request, cost)
    }

    /// Adds a cost to the request's spending, and checks its budget.
    fn spend(&mut self, request: RequestId, cost: u64) -> Result<(), Found> {
        let Some(budget) = self.budgets.get_mut(&request) else {
            return Ok(());
        };
        budget.spent += cost;
        ensure(NAME, budget.spent <= budget.most, || {
            let (spent, most) = (budget.spent, budget.most);
            format!("{request} costs {spent} micro-dollars so far, and {most} is the most")
        })
    }

    /// Checks the cost of data that a depot stored and keeps for a request.
    pub(crate) fn on_stored(
        &mut self,
        now: Timestamp,
        request: RequestId,
        depot: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        let keeps = self
            .budgets
            .get(&request)
            .map(|budget| budget.keep_until.since(now));
        let byte_seconds =
            u128::from(bytes.get()) * u128::from(keeps.unwrap_or_default().as_secs());
        let cost = self
            .terms
            .get(&depot)
            .map_or(0, |terms| terms.keeping().keeping(byte_seconds).micro_usd());
        self.spend(request, cost)
    }

    pub(crate) fn on_send(
        &mut self,
        now: Timestamp,
        request: RequestId,
        depot: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        self.on_sent_on(request, depot, bytes)?;
        if let Some(limited) = self.limited.get_mut(&request) {
            limited.on_send(now, request, bytes)?;
        }
        let forbidden = self.forbidden.get(&request);
        let is_meant = forbidden.is_none_or(|forbidden| !forbidden.contains(&depot));
        ensure(NAME, is_meant, || {
            format!("{request} is sent to {depot}, where it may not be")
        })
    }
}

impl Kept {
    /// Checks the cost of bytes sent to a depot, from any sender.
    pub(crate) fn on_sent_on(
        &mut self,
        request: RequestId,
        depot: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
        self.spend(request, self.cost_of_sending(depot, bytes))
    }

    /// Refunds the cost of a send of which no byte left for the depot.
    pub(crate) fn on_recalled(&mut self, request: RequestId, depot: DepotId, bytes: Bytes) {
        let cost = self.cost_of_sending(depot, bytes);
        if let Some(budget) = self.budgets.get_mut(&request) {
            budget.spent = budget.spent.saturating_sub(cost);
        }
    }

    fn cost_of_sending(&self, depot: DepotId, bytes: Bytes) -> u64 {
        let terms = self.terms.get(&depot);
        let cost = terms.map_or(0, |terms| terms.sending().of(bytes).micro_usd());
        let prices = self.prices.get(&depot);
        cost + prices.map_or(0, |prices| prices.put().micro_usd())
    }
}

impl Limited {
    fn on_send(&mut self, now: Timestamp, request: RequestId, bytes: Bytes) -> Result<(), Found> {
        self.sent.push_back((now, bytes));
        while (self.sent.front()).is_some_and(|(at, _)| now.since(*at) >= SPAN) {
            self.sent.pop_front();
        }
        let sent: Bytes = self.sent.iter().map(|(_, bytes)| *bytes).sum();
        let most = self.rate.volume(SPAN) + self.chunk;
        ensure(NAME, sent <= most, || {
            format!(
                "{sent} are sent for {request} in {SPAN:?}, and {most} is the most at {}",
                self.rate
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_a_forbidden_depot_is_caught() {
        let mut kept = Kept::default();
        let wishes = Wishes {
            forbidden: vec![DepotId::new(2)],
            ..Wishes::default()
        };
        kept.on_asked(RequestId::new(1), &spec(), &wishes);
        let now = Timestamp::from_secs(1);
        let mut is_fine = |request, depot| {
            let (request, depot) = (RequestId::new(request), DepotId::new(depot));
            kept.on_send(now, request, depot, Bytes::new(1)).is_ok()
        };
        assert!(is_fine(1, 1) && is_fine(2, 2) && !is_fine(1, 2));
    }

    #[test]
    fn what_a_pinned_depot_lacks_is_caught() {
        let (request, other) = (RequestId::new(1), RequestId::new(2));
        let mut kept = Kept::default();
        kept.on_pinned(request, &[DepotId::new(1), DepotId::new(2)]);
        let lacks = |depot: DepotId| (depot == DepotId::new(2)).then(|| ChunkIndex::new(7));
        assert!(kept.on_safe(request, lacks).is_err());
        assert!(kept.on_safe(request, |_| None).is_ok() && kept.on_safe(other, lacks).is_ok());
    }

    #[test]
    fn what_costs_more_than_it_may_is_caught() {
        let wishes = Wishes {
            budget_micro_usd: Some(100),
            keep_until: Some(Timestamp::from_secs(730 * 3600)),
            ..Wishes::default()
        };
        let terms = DepotTerms {
            send_micro_usd: 1_000_000,
            keep_micro_usd: 2_000_000,
            ..DepotTerms::default()
        };
        let (request, depot, start) = (RequestId::new(1), DepotId::new(1), Timestamp::from_secs(0));
        let fresh = || {
            let mut kept = Kept::default();
            kept.on_lent(depot, &terms);
            kept.on_asked(request, &spec(), &wishes);
            kept
        };
        // Sending 10^9 bytes costs one dollar, and keeping them for the remaining month two.
        let bytes = Bytes::new(34_000);
        let mut kept = fresh();
        assert!(kept.on_send(start, request, depot, bytes).is_ok());
        assert!(kept.on_stored(start, request, depot, bytes).is_err());
        let mut kept = fresh();
        for left in (0..3).rev() {
            let is_fine = kept.on_send(start, request, depot, bytes).is_ok();
            assert_eq!(is_fine, left > 0);
        }
    }

    #[test]
    fn requests_and_what_leaves_count_too() {
        let wishes = Wishes {
            budget_micro_usd: Some(100),
            ..Wishes::default()
        };
        let prices = DepotPrices {
            put_micro_usd: 40_000,
            get_micro_usd: 25_000,
            ..DepotPrices::default()
        };
        let (request, depot, now) = (RequestId::new(1), DepotId::new(1), Timestamp::from_secs(0));
        let mut kept = Kept::default();
        kept.on_priced(depot, &prices);
        kept.on_asked(request, &spec(), &wishes);
        assert!(kept.on_send(now, request, depot, Bytes::new(1)).is_ok());
        assert!(kept.on_given(request, depot, Bytes::new(1)).is_ok());
        assert!(
            kept.on_send(now, request, depot, Bytes::new(1)).is_err(),
            "40 + 25 + 40"
        );
    }

    #[test]
    fn what_was_taken_back_before_it_left_costs_nothing() {
        let wishes = Wishes {
            budget_micro_usd: Some(100),
            ..Wishes::default()
        };
        let prices = DepotPrices {
            put_micro_usd: 60_000,
            ..DepotPrices::default()
        };
        let (request, depot, now) = (RequestId::new(1), DepotId::new(1), Timestamp::from_secs(0));
        let mut kept = Kept::default();
        kept.on_priced(depot, &prices);
        kept.on_asked(request, &spec(), &wishes);
        for _ in 0..3 {
            assert!(kept.on_send(now, request, depot, Bytes::new(1)).is_ok());
            kept.on_recalled(request, depot, Bytes::new(1));
        }
        assert!(kept.on_send(now, request, depot, Bytes::new(1)).is_ok());
        assert!(kept.on_send(now, request, depot, Bytes::new(1)).is_err());
    }

    fn spec() -> RequestSpec {
        RequestSpec {
            bytes: Bytes::new(1000),
            files: 1,
            chunk_size: Bytes::new(100),
            deadline: Timestamp::from_secs(100),
            code: "1+1".parse().unwrap(),
            via: Vec::new(),
            destinations: Vec::new(),
            release: posthaste_core::contract::ReleasePolicy::Never,
            best_effort: false,
        }
    }

    #[test]
    fn what_is_sent_faster_than_it_may_be_is_caught() {
        let mut kept = Kept::default();
        let wishes = Wishes {
            rate_max: Some(ByteRate::new(10)),
            ..Wishes::default()
        };
        let request = RequestId::new(1);
        kept.on_asked(request, &spec(), &wishes);
        let mut is_fine = |at_s, bytes| {
            let (at, depot) = (Timestamp::from_secs(at_s), DepotId::new(1));
            kept.on_send(at, request, depot, Bytes::new(bytes)).is_ok()
        };
        assert!(is_fine(1, 100) && is_fine(9, 100) && is_fine(11, 100));
        assert!(!is_fine(12, 1), "201 bytes from the ninth second on");
    }

    #[test]
    fn what_is_read_for_a_stage_in_counts_as_often_as_it_is() {
        let (request, source) = (RequestId::new(1), SourceId::new(1));
        let mut kept = Kept::default();
        let price = SourcePrice {
            source,
            get_micro_usd: 10_000,
            egress_micro_usd: 40_000_000,
        };
        kept.on_costs(request, Some(100), &[price]);
        for is_paid in [true, true, false] {
            let found = kept.on_read(request, source, Bytes::new(1_000));
            assert_eq!(found.is_ok(), is_paid);
        }
        let other = RequestId::new(2);
        kept.on_costs(other, None, &[price]);
        assert!(kept.on_read(other, source, Bytes::mebi(1024)).is_ok());
    }
}
