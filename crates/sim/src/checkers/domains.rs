use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{Event, Happening, Reason};
use posthaste_types::{ChunkIndex, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "what is safe survives the loss of any failure domain";

/// Excuses for fragments that lie closer together than the parity covers.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    /// Most fragments that may lie together, if only such depots were reported to have room.
    crowded: BTreeMap<RequestId, u32>,
    /// Requests that lost depots, or may have. The remaining depots take what has no other place,
    /// and a returning depot may hold one fragment too many.
    loose: BTreeSet<RequestId>,
}

impl Domains {
    /// Records that a request may have fewer depots than at its start, or too few for its whole
    /// code.
    pub(crate) fn on_loose(&mut self, request: RequestId) {
        self.loose.insert(request);
    }

    pub(crate) fn on_event(&mut self, event: &Event) {
        if let (Happening::Crowded, Reason::OnlyKinHaveRoom { most, .. }, Some(request)) =
            (&event.happening, &event.reason, event.request)
        {
            let said = self.crowded.entry(request).or_default();
            *said = (*said).max(*most);
        }
    }

    /// Returns whether the limit on each failure domain applies to the request.
    pub(crate) fn is_bound(&self, request: RequestId) -> bool {
        !self.loose.contains(&request)
    }

    /// Checks a claim that a request survives `losses`. `left` is its weakest chunk with the number
    /// of fragments outside the failure domain, of which `data` rebuild it.
    pub(crate) fn on_claim(
        &self,
        (request, losses, data): (RequestId, u8, u8),
        domain: &str,
        left: Option<(ChunkIndex, u32)>,
    ) -> Result<(), Found> {
        let crowded = self.crowded.get(&request).copied().unwrap_or(0);
        let beyond = crowded.saturating_sub(losses.into());
        let needed = u32::from(data).saturating_sub(beyond);
        let lacking = left.filter(|(_, left)| *left < needed);
        ensure(NAME, lacking.is_none(), || {
            let (chunk, left) = lacking.unwrap_or_default();
            format!(
                "{request} is safe, they say, and without {domain} {left} of {needed} fragments of {chunk} are left"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Timestamp;

    #[test]
    fn a_domain_without_which_too_little_is_left_is_caught_unless_it_was_said() {
        let request = RequestId::new(1);
        let mut domains = Domains::default();
        let left = |count| Some((ChunkIndex::new(0), count));
        let claim = |domains: &Domains, left| domains.on_claim((request, 1, 2), "aws", left);
        assert!(claim(&domains, left(2)).is_ok());
        assert!(claim(&domains, left(1)).is_err());
        assert!(claim(&domains, None).is_ok());
        domains.on_event(&Event {
            at: Timestamp::default(),
            request: Some(request),
            depot: None,
            happening: Happening::Crowded,
            reason: Reason::OnlyKinHaveRoom {
                most: 2,
                code: "2+1".parse().unwrap(),
            },
        });
        assert!(claim(&domains, left(1)).is_ok());
        assert!(claim(&domains, left(0)).is_err());
        assert!(domains.is_bound(request));
        domains.on_loose(request);
        assert!(!domains.is_bound(request));
    }
}
