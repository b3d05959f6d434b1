//! Proof of a large file by its source's checksum, where the bytes could not be summed as they
//! passed.

use futures_util::StreamExt;
use posthaste_endpoint::{
    Checksum, Error, ErrorKind, FileSpec, Locus, Reader, Result, StoredSum, Summer, Writer,
};

/// Returns whether the source tells a checksum that nothing was compared with: some bytes came in an
/// earlier run, or in an order in which they could not be summed.
pub(super) fn is_lacking(reader: &dyn Reader) -> bool {
    let is_told = reader.stored_sum().is_some() && reader.checksum().is_none();
    is_told && !reader.is_compared()
}

/// Checksum that the source tells, to be compared with what is read once more.
pub(super) struct Proof<'a> {
    reader: &'a dyn Reader,
    writer: &'a dyn Writer,
    spec: &'a FileSpec,
    told: StoredSum,
    locus: Locus,
}

impl<'a> Proof<'a> {
    /// Returns the proof that a file needs: what was written is read back or, where that is far
    /// away, the source once more. None if its checksum was compared. What others carried between
    /// two distant ends is not compared: it would come through here all the same.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it differs from `whole` by the source's checksum.
    pub(super) fn of(
        (reader, writer): (&'a dyn Reader, &'a dyn Writer),
        spec: &'a FileSpec,
        whole: Checksum,
        was_helped: bool,
    ) -> Result<Option<Self>> {
        let Some(told) = reader.stored_sum().filter(|_| is_lacking(reader)) else {
            return Ok(None);
        };
        if let StoredSum::Crc64(_) = told {
            told.expect(StoredSum::Crc64(whole), &spec.origin)?;
            return Ok(None);
        }
        let locus = match writer.read_back(0..spec.size) {
            Some(_) => Locus::Destination,
            None if was_helped => return Ok(None),
            None => Locus::Source,
        };
        Ok(Some(Self {
            reader,
            writer,
            spec,
            told,
            locus,
        }))
    }

    /// Reads it. Returns our checksum and that of the source's kind.
    ///
    /// # Errors
    /// Errors of reading.
    pub(super) async fn read(&self) -> Result<(Checksum, StoredSum)> {
        let mut body = match self.writer.read_back(0..self.spec.size) {
            Some(body) => body,
            None => self.reader.read(0..self.spec.size).await?,
        };
        let (mut summer, mut theirs) = (Summer::default(), self.told.summer());
        while let Some(bytes) = body.next().await {
            let bytes = bytes?;
            summer.add(&bytes);
            theirs.add(&bytes);
        }
        Ok((summer.sum(), theirs.sum()))
    }

    /// Compares what was read.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it differs from the source's checksum, [`ErrorKind::Changed`] if it
    /// is not what was written.
    pub(super) fn judge(
        &self,
        (sum, theirs): (Checksum, StoredSum),
        whole: Checksum,
    ) -> Result<()> {
        if sum != whole {
            let error = Error::new(ErrorKind::Changed, "copy", &*self.spec.origin);
            let error = error.cause("what was written is not what is read back");
            return Err(error.at(self.locus));
        }
        self.told.expect(theirs, &self.spec.origin)
    }
}
