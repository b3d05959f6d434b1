use std::collections::BTreeSet;

use posthaste_core::contract::{RequestState, RequestView};
use posthaste_types::{ChunkIndex, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "nothing released before it is safe";

/// Checker that the source stays on scratch until the dataset is safe in the world.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    asked: BTreeSet<RequestId>,
    safe: BTreeSet<RequestId>,
}

impl Releases {
    /// Records that the user of this request asked for its release.
    pub(crate) fn on_asked(&mut self, request: RequestId) {
        self.asked.insert(request);
    }

    /// Checks that the mind leaves each file out only once, and none after the request was safe.
    pub(crate) fn on_left_out(&mut self, request: RequestId, is_new: bool) -> Result<(), Found> {
        ensure(NAME, is_new && !self.safe.contains(&request), || {
            format!("a file of {request} is left out twice, or when it was safe")
        })
    }

    /// Records that the request was safe.
    pub(crate) fn on_safe(&mut self, request: RequestId) {
        self.safe.insert(request);
    }

    /// Checks a report of safety, or a release command. `weakest` is a chunk that is not safe, by
    /// the depots' actual contents.
    pub(crate) fn on_claim(
        &self,
        request: RequestId,
        is_release: bool,
        weakest: Option<ChunkIndex>,
    ) -> Result<(), Found> {
        ensure(NAME, !is_release || self.asked.contains(&request), || {
            format!("{request} is released and nobody asked for it")
        })?;
        ensure(NAME, weakest.is_none(), || {
            let chunk = weakest.map_or_else(String::new, |chunk| format!("{chunk}"));
            format!("{request} is called safe, and {chunk} is not")
        })
    }
}

/// Checks that the mind knows a request as safe whose source was released as safe.
pub(crate) fn on_released(request: RequestId, view: Option<&RequestView>) -> Result<(), Found> {
    let lacking = view.map_or(0, |view| match view.state {
        RequestState::Delivered => 0,
        RequestState::Refused
        | RequestState::Moving
        | RequestState::Safe
        | RequestState::Released
        | RequestState::Cancelled
        | RequestState::Failed => view.spec.chunks() - view.chunks_safe,
    });
    ensure(NAME, lacking == 0, || {
        format!("{request} is released as safe, and {lacking} of its chunks are known not to be")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_of_something_unsafe_or_unasked_is_caught() {
        let mut releases = Releases::default();
        let request = RequestId::new(1);
        assert!(releases.on_claim(request, true, None).is_err());
        releases.on_asked(request);
        assert!(releases.on_claim(request, true, None).is_ok());
        assert!(
            releases
                .on_claim(request, true, Some(ChunkIndex::new(3)))
                .is_err()
        );
        assert!(
            releases
                .on_claim(request, false, Some(ChunkIndex::new(3)))
                .is_err()
        );
    }
}
