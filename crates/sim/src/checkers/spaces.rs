//! Checks that space is reserved only where that is possible, at most for the dataset's size, and
//! that it is returned.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use posthaste_core::contract::RequestSpec;
use posthaste_types::{Bytes, DepotId, RequestId, Timestamp};

use super::{Found, ensure};

pub(super) const NAME: &str = "space is reserved for those who need it";

/// Longest time until unused space is returned. A depot believed lost is asked again within five
/// minutes, and an unanswered caller repeats after two.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(600);

/// Space kept for requests that send nothing, and since when.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    idle: BTreeMap<(DepotId, RequestId), Timestamp>,
}

impl Spaces {
    /// Checks a command to reserve space.
    pub(crate) fn on_reserve(
        &self,
        can_reserve: bool,
        bytes: Bytes,
        is_to_come: bool,
        spec: Option<&RequestSpec>,
    ) -> Result<(), Found> {
        ensure(NAME, can_reserve && is_to_come, || {
            String::from("space is asked of a depot that keeps none, or for a time that is over")
        })?;
        let most = spec.map_or(Bytes::ZERO, |spec| {
            let chunk = spec.chunk_size;
            let piece = spec.code.fragment_size(chunk).max(chunk);
            piece.times(u64::from(spec.chunks()))
        });
        ensure(NAME, bytes > Bytes::ZERO && bytes <= most, || {
            format!("{bytes} are asked for, of a dataset of {most}")
        })
    }

    /// Checks the space that is kept now though its requests send nothing.
    pub(crate) fn on_idle(
        &mut self,
        now: Timestamp,
        idle: &[(DepotId, RequestId)],
    ) -> Result<(), Found> {
        let all: BTreeSet<_> = idle.iter().copied().collect();
        self.idle.retain(|one, _| all.contains(one));
        for one in all {
            let since = *self.idle.entry(one).or_insert(now);
            let (depot, request) = one;
            ensure(NAME, now.since(since) <= GIVEN_BACK_WITHIN, || {
                format!("{depot} still keeps space for {request}, which sends nothing")
            })?;
        }
        Ok(())
    }

    /// Forgets idle space, because no driver is running that could return it.
    pub(crate) fn on_crash(&mut self) {
        self.idle.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_that_is_never_given_back_is_caught() {
        let (mut spaces, start) = (Spaces::default(), Timestamp::from_secs(1000));
        let one = (DepotId::new(1), RequestId::new(1));
        let late = start + GIVEN_BACK_WITHIN + Duration::from_secs(1);
        assert!(spaces.on_idle(start, &[one]).is_ok());
        assert!(spaces.on_idle(late, &[one]).is_err());
        assert!(spaces.on_idle(late, &[]).is_ok());
        assert!(spaces.on_idle(late, &[one]).is_ok());
        assert!(spaces.on_reserve(false, Bytes::ZERO, true, None).is_err());
        assert!(spaces.on_reserve(true, Bytes::mebi(1), true, None).is_err());
    }
}
