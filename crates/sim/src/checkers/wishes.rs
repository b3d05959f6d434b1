//! What users wished is kept: nothing goes where it may not, or faster than it may.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use posthaste_core::contract::{RequestSpec, Wishes};
use posthaste_types::{ByteRate, Bytes, DepotId, RequestId, Timestamp};

use super::{Found, ensure};

pub(crate) const NAME: &str = "wishes kept";

/// Over any span of this length nothing is sent faster than it may be, but for a chunk.
const SPAN: Duration = Duration::from_secs(10);

/// What was sent for a request whose rate is limited.
#[derive(Debug)]
struct Limited {
    rate: ByteRate,
    chunk: Bytes,
    /// Within the last span.
    sent: VecDeque<(Timestamp, Bytes)>,
}

/// What each request may not.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    forbidden: BTreeMap<RequestId, Vec<DepotId>>,
    limited: BTreeMap<RequestId, Limited>,
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
        if !wishes.forbidden.is_empty() {
            self.forbidden.insert(request, wishes.forbidden.clone());
        }
    }

    pub(crate) fn on_send(
        &mut self,
        now: Timestamp,
        request: RequestId,
        depot: DepotId,
        bytes: Bytes,
    ) -> Result<(), Found> {
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

    fn spec() -> RequestSpec {
        RequestSpec {
            bytes: Bytes::new(1000),
            files: 1,
            chunk_size: Bytes::new(100),
            deadline: Timestamp::from_secs(100),
            code: "1+1".parse().unwrap(),
            via: Vec::new(),
            destination: None,
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
}
