use posthaste_types::{ChunkIndex, DepotId, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "delivered is whole at every destination";

/// Checks that a request reported as delivered is whole at every destination.
pub(crate) fn on_delivered(
    request: RequestId,
    lacking: Option<(DepotId, ChunkIndex)>,
) -> Result<(), Found> {
    ensure(NAME, lacking.is_none(), || {
        let (depot, chunk) = lacking.unwrap_or_default();
        format!("{request} is called delivered and {depot} lacks {chunk}")
    })
}

/// Checks that a depot may remove its data. The data must be unwanted, or whole at every
/// destination and reported so. Until then the promise of its code holds.
pub(crate) fn on_forget(
    request: RequestId,
    (is_unwanted, is_said): (bool, bool),
    lacking: Option<(DepotId, ChunkIndex)>,
) -> Result<(), Found> {
    ensure(NAME, is_unwanted || is_said, || {
        format!("depots are to remove {request}, which is not called delivered")
    })?;
    let lacking = lacking.filter(|_| !is_unwanted);
    ensure(NAME, lacking.is_none(), || {
        let (depot, chunk) = lacking.unwrap_or_default();
        format!("depots are to remove {request} and {depot} lacks {chunk}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_a_chunk_is_not_delivered() {
        let request = RequestId::new(1);
        assert!(on_delivered(request, None).is_ok());
        let lacking = (DepotId::new(2), ChunkIndex::new(3));
        assert!(on_delivered(request, Some(lacking)).is_err());
    }

    #[test]
    fn what_a_destination_lacks_no_depot_removes() {
        let request = RequestId::new(1);
        let lacking = (DepotId::new(2), ChunkIndex::new(3));
        assert!(on_forget(request, (false, true), None).is_ok());
        assert!(on_forget(request, (false, true), Some(lacking)).is_err());
        assert!(
            on_forget(request, (true, false), Some(lacking)).is_ok(),
            "cancelled"
        );
        assert!(
            on_forget(request, (false, false), None).is_err(),
            "safe so far"
        );
    }
}
