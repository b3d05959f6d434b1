use posthaste_types::{ChunkIndex, DepotId, RequestId};

use super::{Found, ensure};

pub(super) const NAME: &str = "delivered is whole at every destination";

/// What is called delivered lies whole at every destination.
pub(crate) fn on_delivered(
    request: RequestId,
    lacking: Option<(DepotId, ChunkIndex)>,
) -> Result<(), Found> {
    ensure(NAME, lacking.is_none(), || {
        let (depot, chunk) = lacking.unwrap_or_default();
        format!("{request} is called delivered and {depot} lacks {chunk}")
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
}
