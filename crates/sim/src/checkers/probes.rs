use std::{collections::BTreeMap, time::Duration};

use posthaste_core::{Settings, contract::RequestSpec};
use posthaste_types::{Bytes, DepotId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "probes stay rare and within budget";

/// One probe at a time, to paths that nothing measured lately, for a small share of what is sent.
#[derive(Debug)]
pub(crate) struct Probes {
    permille: u64,
    rest: Duration,
    under_way: Option<(DepotId, Bytes)>,
    /// Bytes sent for all requests so far, and what is set aside for the one under way.
    spent: Bytes,
    planned: Bytes,
    heard: BTreeMap<DepotId, Timestamp>,
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
            probes: 0,
        }
    }

    pub(crate) fn on_submitted(&mut self, spec: &RequestSpec) {
        let (total, data) = (spec.code.total(), spec.code.data().max(1));
        self.planned += Bytes::new(spec.bytes.times(u64::from(total)).get() / u64::from(data));
    }

    /// The mind was told a measurement of the path.
    pub(crate) fn on_measured(&mut self, now: Timestamp, depot: DepotId) {
        self.heard.insert(depot, now);
    }

    pub(crate) fn on_command(
        &mut self,
        now: Timestamp,
        depot: DepotId,
        budget: Bytes,
        is_asked: bool,
    ) -> Result<(), Found> {
        self.probes += 1;
        let before = self.under_way.replace((depot, budget));
        ensure(NAME, before.is_none(), || {
            format!("a probe of {depot} begins beside {before:?}")
        })?;
        if is_asked {
            return Ok(());
        }
        self.spent += budget;
        let most = Bytes::new(self.planned.times(self.permille).get() / 1000);
        ensure(NAME, self.spent <= most, || {
            format!("{} for probes, and {most} is the most", self.spent)
        })?;
        let heard = self.heard.get(&depot);
        let is_stale = heard.is_none_or(|at| now.since(*at) >= self.rest);
        ensure(NAME, is_stale, || {
            format!("{depot} is probed, and was measured at {heard:?}")
        })
    }

    /// The mind was told how a probe ended.
    pub(crate) fn on_probed(
        &mut self,
        now: Timestamp,
        depot: DepotId,
        sent: Bytes,
    ) -> Result<(), Found> {
        self.heard.insert(depot, now);
        let Some((_, budget)) = self.under_way.take_if(|(of, _)| *of == depot) else {
            return Ok(());
        };
        self.spent -= budget - sent;
        ensure(NAME, sent <= budget, || {
            format!("{sent} were sent to {depot}, and {budget} was the budget")
        })
    }

    /// The driver was killed: what its probe may have sent is spent.
    pub(crate) fn on_crash(&mut self) {
        self.under_way = None;
    }

    /// Probes so far, and what they sent for requests.
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
            destination: None,
            release: posthaste_core::contract::ReleasePolicy::Never,
            best_effort: false,
        };
        let fresh = || {
            let mut probes = Probes::new(&Settings::default());
            probes.on_submitted(&spec);
            probes
        };
        let (one, other, now) = (DepotId::new(1), DepotId::new(2), Timestamp::from_secs(1000));
        let budget = Bytes::mebi(10);
        let mut probes = fresh();
        assert!(probes.on_command(now, one, budget, false).is_ok());
        assert!(probes.on_command(now, other, budget, false).is_err(), "two");
        let mut probes = fresh();
        assert!(probes.on_command(now, one, Bytes::mebi(21), false).is_err());
        let mut probes = fresh();
        assert!(probes.on_command(now, one, budget, false).is_ok());
        assert!(probes.on_probed(now, one, Bytes::mebi(11)).is_err());
        let mut probes = fresh();
        probes.on_measured(now, one);
        let soon = now + Duration::from_secs(299);
        assert!(probes.on_command(soon, one, budget, false).is_err());
        let mut probes = fresh();
        probes.on_measured(now, one);
        assert!(probes.on_command(soon, one, budget, true).is_ok(), "asked");
    }
}
