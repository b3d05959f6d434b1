//! Proof of a large file by its source's checksum, where the bytes could not be summed as they
//! passed.

use futures_util::StreamExt;
use posthaste_endpoint::{
    Checksum, Error, ErrorKind, FileSpec, Locus, Reader, Result, StoredSum, Summer, Writer,
};

use super::{lane::Shared, retry::retried};

/// Returns whether the source tells a checksum that nothing was compared with: some bytes came in an
/// earlier run, or in an order in which they could not be summed.
pub(super) fn is_lacking(reader: &dyn Reader) -> bool {
    let is_told = reader.stored_sum().is_some() && reader.checksum().is_none();
    is_told && !reader.is_compared()
}

/// Compares what arrived with the checksum that the source tells: reads back what was written or,
/// where that is far away, reads the source once more. What others carried between two distant ends
/// is not compared: it would come through here all the same.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it differs; errors of reading.
pub(super) async fn give(
    shared: &Shared,
    (reader, writer): (&dyn Reader, &dyn Writer),
    spec: &FileSpec,
    whole: Checksum,
    was_helped: bool,
) -> Result<()> {
    let Some(told) = reader.stored_sum().filter(|_| is_lacking(reader)) else {
        return Ok(());
    };
    if let StoredSum::Crc64(_) = told {
        return told.expect(StoredSum::Crc64(whole), &spec.origin);
    }
    let read_back = || writer.read_back(0..spec.size);
    let locus = match read_back() {
        Some(_) => Locus::Destination,
        None if was_helped => return Ok(()),
        None => Locus::Source,
    };
    let found = retried(shared, || async {
        let mut body = match read_back() {
            Some(body) => body,
            None => reader.read(0..spec.size).await?,
        };
        let (mut summer, mut theirs) = (Summer::default(), told.summer());
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            theirs.add(&bytes);
        }
        Ok((summer.sum(), theirs.sum()))
    });
    let (sum, theirs) = found.await?;
    if sum != whole {
        let error = Error::new(ErrorKind::Changed, "copy", &*spec.origin);
        let error = error.cause("what was written is not what is read back");
        return Err(error.at(locus));
    }
    told.expect(theirs, &spec.origin)
}
