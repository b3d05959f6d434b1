//! Report of a lost stream, in a line.

use std::time::Duration;

use posthaste_endpoint::{Error, Locus, Status};
use posthaste_types::Bytes as Size;
use tokio::time::timeout;

use super::{Pouring, Target};

/// Wait for a failed destination to discard what it has.
const DISCARD_WITHIN: Duration = Duration::from_secs(10);

impl Pouring {
    /// Discards what can't be completed any more, and reports it.
    pub(super) async fn lost(&mut self, error: Error) -> Error {
        self.flying.shutdown().await;
        let read = Size::new(self.spout.read_so_far());
        if self.is_parking() {
            let parked = Size::new(self.parked.bytes());
            return Error::new(error.kind(), "park", "the stream")
                .cause(format!(
                    "{error}; of {read} that were read {} are at the destination and {parked} parked, the rest is lost",
                    Size::new(self.confirmed.bytes())
                ))
                .hint(format!("`posthaste parked drop {} --force` removes both", self.id))
                .at(Locus::Destination);
        }
        if let Target::File(writer) = &self.target {
            let _ = timeout(DISCARD_WITHIN, writer.discard()).await;
        }
        self.clear().await;
        if error.locus() == Locus::Source {
            return error;
        }
        let status = if error.is_temporary() {
            Status::Temporary
        } else {
            Status::Permanent
        };
        Error::new(error.kind(), "copy the stream to", self.moving.name())
            .cause(format!(
                "{error}; {read} that were read are lost, and can't be read again"
            ))
            .hint("with --park URL they would have been kept there, for `posthaste parked resume`")
            .status_is(status)
            .at(Locus::Destination)
    }
}
