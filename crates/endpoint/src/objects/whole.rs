//! Objects stored in one request, and the detection of a name taken by another writer.

use bytes::Bytes;

use super::{Doubt, RawStore, is_kept_as, store::Objects, upload::Upload};
use crate::{
    Checksum, Condition, Error, ErrorKind, Locus, Result,
    endpoint::{FileSpec, Kind},
};

impl<S: RawStore> Objects<S> {
    pub(super) async fn write(
        &self,
        path: &[u8],
        spec: &FileSpec,
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> Result<()> {
        let key = self.file_key(path)?;
        self.write_one(&key, spec, content, condition).await?;
        Doubt::of(&*self.store, &key).clear();
        // An earlier run may have begun it as a large one.
        Upload::<S::Segments>::forget(&self.store, &key, &spec.origin).await;
        Ok(())
    }

    async fn write_one(
        &self,
        key: &str,
        spec: &FileSpec,
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> Result<()> {
        let (what, sum) = ((spec, Kind::File), content.1);
        if condition.is_none() && !self.rules.replaces {
            return self.write_new(key, spec, content).await;
        }
        let Err(error) = self.store.put(key, what, content, condition).await else {
            return Ok(());
        };
        // The answer may be lost although the write succeeded. A conditional repetition would only
        // show that an object exists, not that it is ours.
        if error.is_temporary() && self.is_kept(key, spec, sum).await {
            return Ok(());
        }
        if condition.is_none() || !is_refused(&error) {
            return Err(error);
        }
        Err(overtaken(self.store.show(key)))
    }

    /// Stores an object if there is none. An existing one with these bytes and attributes counts:
    /// an answer may have been lost.
    async fn write_new(
        &self,
        key: &str,
        spec: &FileSpec,
        content: (Vec<Bytes>, Checksum),
    ) -> Result<()> {
        let (what, sum) = ((spec, Kind::File), content.1);
        let asked = self
            .store
            .put(key, what, content.clone(), Some(&Condition::Absent));
        let Err(error) = asked.await else {
            return Ok(());
        };
        if (error.is_temporary() || is_refused(&error)) && self.is_kept(key, spec, sum).await {
            return Ok(());
        }
        if error.kind() == ErrorKind::Unsupported {
            // A store without conditional writes is asked first.
            return match self.store.head(key, "look at").await? {
                None => self.store.put(key, what, content, None).await,
                Some(_) => Err(overtaken(self.store.show(key))),
            };
        }
        Err(if is_refused(&error) {
            overtaken(self.store.show(key))
        } else {
            error
        })
    }

    /// Returns whether an object has this checksum and keeps the attributes of `spec`.
    async fn is_kept(&self, key: &str, spec: &FileSpec, sum: Checksum) -> bool {
        let Ok(Some(head)) = self.store.head(key, "look at").await else {
            return false;
        };
        let entry = S::entry(&head, Kind::File);
        let has_sum = async || {
            let whole = self.store.get(key, &entry, "look at").await;
            whole.is_ok_and(|whole| whole.checksum == sum)
        };
        is_kept_as(&entry, spec, spec.size) && has_sum().await
    }
}

/// Returns whether a store refuses to write because another object has the name.
pub(super) fn is_refused(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Changed | ErrorKind::Conflict)
}

/// Returns the error for a name that another writer took.
pub(super) fn overtaken(shown: String) -> Error {
    Error::new(ErrorKind::Conflict, "write", shown)
        .cause("somebody else wrote it meanwhile")
        .at(Locus::Destination)
}
