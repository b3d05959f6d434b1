use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{
    Settings,
    contract::{DepotTerms, RequestSpec},
};
use posthaste_types::{Bytes, DepotId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "probes stay rare and within budget";

/// Path from a depot, or from the centre if none is given, to a depot.
pub(crate) type Path = (Option<DepotId>, DepotId);

/// Checker of probes: one at a time, on paths without a recent measurement, for a small share of
/// the bytes sent, and never outside a depot's hours.
#[derive(Debug)]
pub(crate) struct Probes {
    permille: u64,
    rest: Duration,
    under_way: Option<(Path, Bytes)>,
    /// Bytes of all probes for requests so far, including the budget of the running one.
    spent: Bytes,
    planned: Bytes,
    heard: BTreeMap<Path, Timestamp>,
    terms: BTreeMap<DepotId, DepotTerms>,
    /// Cost of probes for requests so far, and of sending the requests' data.
    paid: u64,
    priced: u64,
    probes: u64,
}

impl Probes {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            permille: u64::from(settings.probe_permille),
            rest: settings.probe_after,
            under_way: None,
            spent: Bytes::ZERO,
            planned: Bytes::ZERO,
            heard: BTreeMap::new(),
            terms: BTreeMap::new(),
            paid: 0,
            priced: 0,
            probes: 0,
        }
    }

    pub(crate) fn on_submitted(&mut self, spec: &RequestSpec) {
        let (total, data) = (spec.code.total(), spec.code.data().max(1));
        let dearest = (spec.via.iter().chain(&spec.destinations)).map(|&depot| {
            let fragments = spec.bytes.times(u64::from(total)).get() / u64::from(data);
            self.price(depot, Bytes::new(fragments))
        });
        self.priced += dearest.max().unwrap_or(0);
        self.planned += Bytes::new(spec.bytes.times(u64::from(total)).get() / u64::from(data));
    }

    /// Records a stage-in of this size that may wait at these depots.
    pub(crate) fn on_near(&mut self, bytes: Bytes, depots: impl Iterator<Item = DepotId>) {
        let dearest = depots.map(|depot| self.price(depot, bytes)).max();
        self.priced += dearest.unwrap_or(0);
        self.planned += bytes;
    }

    /// Records the terms of a depot.
    pub(crate) fn on_lent(&mut self, depot: DepotId, terms: &DepotTerms) {
        self.terms.insert(depot, terms.clone());
    }

    fn price(&self, depot: DepotId, bytes: Bytes) -> u64 {
        let terms = self.terms.get(&depot);
        terms.map_or(0, |terms| terms.sending().of(bytes).micro_usd())
    }

    /// Records that a measurement of the path was reported to the mind.
    pub(crate) fn on_measured(&mut self, now: Timestamp, depot: DepotId) {
        self.heard.insert((None, depot), now);
    }

    pub(crate) fn on_command(
        &mut self,
        now: Timestamp,
        path: Path,
        budget: Bytes,
        is_asked: bool,
    ) -> Result<(), Found> {
        self.probes += 1;
        let (from, depot) = path;
        let before = self.under_way.replace((path, budget));
        ensure(NAME, before.is_none(), || {
            format!("a probe of {depot} begins beside {before:?}")
        })?;
        for end in from.into_iter().chain([depot]) {
            let terms = self.terms.get(&end);
            let is_open = terms.is_none_or(|terms| terms.windows.is_open(now));
            ensure(NAME, is_open, || {
                format!("{end} has part in a probe outside its hours")
            })?;
        }
        if is_asked {
            return Ok(());
        }
        self.paid += self.price(depot, budget);
        // Each price is rounded up to a millionth of a dollar.
        let most = self.priced * self.permille / 1000 + self.probes;
        ensure(NAME, self.paid <= most, || {
            format!(
                "probes cost {} micro-dollars, and {most} is the most",
                self.paid
            )
        })?;
        self.spent += budget;
        let most = Bytes::new(self.planned.times(self.permille).get() / 1000);
        ensure(NAME, self.spent <= most, || {
            format!("{} for probes, and {most} is the most", self.spent)
        })?;
        let heard = self.heard.get(&path);
        let is_stale = heard.is_none_or(|at| now.since(*at) >= self.rest);
        ensure(NAME, is_stale, || {
            format!("{depot} is probed, and was measured at {heard:?}")
        })
    }

    /// Records the reported end of a probe, and checks its bytes.
    pub(crate) fn on_probed(
        &mut self,
        now: Timestamp,
        path: Path,
        sent: Bytes,
    ) -> Result<(), Found> {
        let depot = path.1;
        self.heard.insert(path, now);
        let Some((_, budget)) = self.under_way.take_if(|(of, _)| *of == path) else {
            return Ok(());
        };
        self.spent -= budget - sent;
        let saved = self
            .price(depot, budget)
            .saturating_sub(self.price(depot, sent));
        self.paid = self.paid.saturating_sub(saved);
        ensure(NAME, sent <= budget, || {
            format!("{sent} were sent to {depot}, and {budget} was the budget")
        })
    }

    /// Counts the budget of the running probe as spent, because the driver was killed.
    pub(crate) fn on_crash(&mut self) {
        self.under_way = None;
    }

    /// Returns the number of probes and the bytes they sent for requests.
    pub(crate) fn sum(&self) -> (u64, Bytes) {
        (self.probes, self.spent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_at_once_too_soon_and_too_much_are_caught() {
        let spec = RequestSpec {
            bytes: Bytes::mebi(1000),
            files: 1,
            chunk_size: Bytes::mebi(1),
            deadline: Timestamp::from_secs(1),
            code: "1+1".parse().unwrap(),
            via: Vec::new(),
            destinations: Vec::new(),
            release: posthaste_core::contract::ReleasePolicy::Never,
            best_effort: false,
        };
        let fresh = || {
            let mut probes = Probes::new(&Settings::default());
            probes.on_submitted(&spec);
            probes
        };
        let (one, now) = (DepotId::new(1), Timestamp::from_secs(1000));
        let (one, other, between) = (
            (None, one),
            (None, DepotId::new(2)),
            (Some(one), DepotId::new(2)),
        );
        let budget = Bytes::mebi(10);
        let mut probes = fresh();
        assert!(probes.on_command(now, one, budget, false).is_ok());
        assert!(probes.on_command(now, other, budget, false).is_err(), "two");
        assert!(probes.on_command(now, between, budget, false).is_err());
        let mut probes = fresh();
        assert!(probes.on_command(now, one, Bytes::mebi(21), false).is_err());
        let mut probes = fresh();
        assert!(probes.on_command(now, one, budget, false).is_ok());
        assert!(probes.on_probed(now, one, Bytes::mebi(11)).is_err());
        let mut probes = fresh();
        probes.on_measured(now, one.1);
        let soon = now + Duration::from_secs(299);
        assert!(probes.on_command(soon, one, budget, false).is_err());
        let mut probes = fresh();
        probes.on_measured(now, one.1);
        assert!(probes.on_command(soon, one, budget, true).is_ok(), "asked");
    }
}
