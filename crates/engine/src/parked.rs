//! Streams that could not reach their destination and can't be read twice: parked elsewhere, and
//! completed from there without their source.
//!
//! A parking place is a folder of any endpoint with the rights to write, list and remove. It holds
//! a record of each stream, the note of the destination's writer, and the pieces that the
//! destination had not accepted (`lot`). `plan` decides what is sent where when a stream is
//! completed, and touches nothing. `docs/reference/parking.md` has the rules.

mod lot;
mod plan;
mod record;
mod resume;
mod runs;

use std::sync::Arc;

use posthaste_endpoint::{Endpoint, Result};

pub(crate) use lot::Lot;
pub use plan::{Known, Plan, plan};
pub use record::{ParkId, Piece, Record};
pub use resume::{Dropped, Resumed, drop_stream, resume};
pub use runs::Runs;

/// Parked stream in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Record of the stream.
    pub record: Record,
    /// Bytes at the parking place.
    pub bytes: u64,
}

/// Lists the streams at a parking place, in the order of their ids.
///
/// # Errors
/// Errors of the place; [`posthaste_endpoint::ErrorKind::Corrupt`] for a record that can't be read.
pub async fn list(place: &Arc<dyn Endpoint>) -> Result<Vec<Parked>> {
    let mut found = Vec::new();
    for id in lot::ids(&**place).await? {
        found.push(find(place, &id).await?);
    }
    Ok(found)
}

/// Finds one stream at a parking place.
///
/// # Errors
/// Errors of [`list`]; [`posthaste_endpoint::ErrorKind::NotFound`].
pub async fn find(place: &Arc<dyn Endpoint>, id: &ParkId) -> Result<Parked> {
    let lot = Lot::new(Arc::clone(place), id.clone());
    let record = lot.record().await?;
    let content = lot.content().await?;
    Ok(Parked {
        record,
        bytes: content.pieces.iter().map(|piece| piece.len).sum(),
    })
}
