use std::collections::BTreeMap;

use posthaste_core::contract::{Input, LentTerms};
use posthaste_types::{DepotId, RequestId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str =
    "what is lent used only below its load, and within hours for one request";

/// Terms of depots lent for single requests, and the load that depots report.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    terms: BTreeMap<RequestId, Vec<LentTerms>>,
    loads: BTreeMap<DepotId, u32>,
    /// Load limits below which depots are lent to all requests.
    most: BTreeMap<DepotId, u32>,
}

impl Lent {
    /// Records reports of users and depots.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else is about what is lent"
    )]
    pub(crate) fn on_asked(&mut self, input: &Input) {
        match input {
            Input::LentTold { request, terms } => {
                self.terms.insert(*request, terms.clone());
            }
            Input::LoadTold {
                depot,
                load_permille: Some(load),
            } => {
                self.loads.insert(*depot, *load);
            }
            Input::LoadBounded {
                depot,
                load_max_permille: Some(most),
            } => {
                self.most.insert(*depot, *most);
            }
            _ => {}
        }
    }

    /// Checks a transfer for a request to a depot, from any sender.
    pub(crate) fn on_send(
        &self,
        at: Timestamp,
        request: RequestId,
        depot: DepotId,
    ) -> Result<(), Found> {
        let load = self.loads.get(&depot).copied();
        let loaded = load.zip(self.most.get(&depot).copied());
        ensure(NAME, loaded.is_none_or(|(load, most)| load < most), || {
            format!("{request} is sent to {depot}, whose load is {load:?}")
        })?;
        let terms = self.terms.get(&request).into_iter().flatten();
        for lent in terms.filter(|lent| lent.depot == depot) {
            ensure(NAME, lent.windows.is_open(at), || {
                format!("{request} is sent to {depot} outside {}", lent.windows)
            })?;
            let loaded = load.zip(lent.load_max_permille);
            ensure(NAME, loaded.is_none_or(|(load, most)| load < most), || {
                format!("{request} is sent to {depot}, whose load is {load:?}")
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_outside_hours_or_above_the_load_is_caught() {
        let (request, depot) = (RequestId::new(1), DepotId::new(2));
        let hour = |hour: u64| Timestamp::from_secs(hour * 3600);
        let mut lent = Lent::default();
        lent.on_asked(&Input::LentTold {
            request,
            terms: vec![LentTerms {
                depot,
                windows: "20-06".parse().unwrap_or_default(),
                load_max_permille: Some(500),
            }],
        });
        assert!(lent.on_send(hour(21), request, depot).is_ok());
        assert!(lent.on_send(hour(12), request, depot).is_err());
        assert!(lent.on_send(hour(12), RequestId::new(2), depot).is_ok());
        let loaded = |load| Input::LoadTold {
            depot,
            load_permille: Some(load),
        };
        lent.on_asked(&loaded(500));
        assert!(lent.on_send(hour(21), request, depot).is_err());
        lent.on_asked(&loaded(499));
        assert!(lent.on_send(hour(21), request, depot).is_ok());
        lent.on_asked(&Input::LoadBounded {
            depot,
            load_max_permille: Some(400),
        });
        assert!(lent.on_send(hour(21), RequestId::new(2), depot).is_err());
    }
}
