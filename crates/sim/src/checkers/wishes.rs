//! What users wished is kept: nothing goes where it may not.

use std::collections::BTreeMap;

use posthaste_core::contract::Wishes;
use posthaste_types::{DepotId, RequestId};

use super::{Found, ensure};

pub(crate) const NAME: &str = "wishes kept";

/// What each request may not.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    forbidden: BTreeMap<RequestId, Vec<DepotId>>,
}

impl Kept {
    pub(crate) fn on_asked(&mut self, request: RequestId, wishes: &Wishes) {
        if !wishes.forbidden.is_empty() {
            self.forbidden.insert(request, wishes.forbidden.clone());
        }
    }

    pub(crate) fn on_send(&self, request: RequestId, depot: DepotId) -> Result<(), Found> {
        let forbidden = self.forbidden.get(&request);
        let is_meant = forbidden.is_none_or(|forbidden| !forbidden.contains(&depot));
        ensure(NAME, is_meant, || {
            format!("{request} is sent to {depot}, where it may not be")
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
        kept.on_asked(RequestId::new(1), &wishes);
        let is_fine = |request, depot| {
            kept.on_send(RequestId::new(request), DepotId::new(depot))
                .is_ok()
        };
        assert!(is_fine(1, 1) && is_fine(2, 2) && !is_fine(1, 2));
    }
}
