use std::collections::{BTreeMap, BTreeSet};

use posthaste_core::contract::{Event, Happening, Reason};
use posthaste_types::{ChunkIndex, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "what is safe survives the loss of any failure domain";

/// What excuses fragments that lie closer together than the parity covers.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    /// The most that may lie together, where it was said that only such depots have room.
    crowded: BTreeMap<RequestId, u32>,
    /// Requests that lost depots, or may: those that are left take what has no place elsewhere, and who comes back with
    /// what it held may hold one too many.
    loose: BTreeSet<RequestId>,
}

impl Domains {
    /// The request may have to do with fewer depots than it began with, or began with too few for all of its code.
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

    /// Whether no domain may hold too much of the request.
    pub(crate) fn is_bound(&self, request: RequestId) -> bool {
        !self.loose.contains(&request)
    }

    /// A request is said to survive `losses`, and without a domain so many fragments of its weakest chunk are left, of which
    /// `data` rebuild it.
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
