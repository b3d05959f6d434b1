//! Keys and envelopes of encrypted datasets.
//!
//! The service needs a dataset's key as long as chunks may have to be encrypted: the first time,
//! and again after a crash or for a repair, also of what a destination lost after delivery. So the
//! key has a file of its own, beside the journal and never in it. It is removed when the request
//! has ended and is not sent again. By then the envelope exists, which is all that a pull needs,
//! and which only the recipients can open.

use std::{collections::HashMap, fs, io, path::PathBuf, sync::PoisonError};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::{
    envelope::{
        self, Cipher, DatasetKey,
        age::{self, Recipient},
    },
    sealed::Encryption,
};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{RequestId, Timestamp};

use super::{Store, sync_parent};
use crate::secrets;

/// End of a request that may be sent again.
const DELIVERED: &str = "delivered";

/// Directory of keys in the state directory.
pub(super) const KEYS: &str = "keys";

/// Remains of an encrypted dataset after its request's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remains {
    /// Envelope: it can be pulled.
    Envelope,
    /// Envelope and key, until the dataset expires: its source may be sent again.
    Source,
    /// Nothing remains.
    Nothing,
}

impl Store {
    fn key_path(&self, dataset: &str) -> PathBuf {
        self.directory.join(KEYS).join(dataset)
    }

    fn wrapped_path(&self, dataset: &str) -> PathBuf {
        let name = format!("{dataset}.age");
        self.directory.join("datasets").join(name)
    }

    fn envelope_path(&self, dataset: &str) -> PathBuf {
        let name = format!("{dataset}.envelope");
        self.directory.join("datasets").join(name)
    }

    /// Makes the key of a dataset to be encrypted, and wraps it for its recipients. Both are
    /// durable when this returns, so that all encrypted data can be opened.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for unusable recipients; the operating system's.
    pub(crate) fn make_key(&self, record: &RequestRecord) -> Result<()> {
        if record.recipients.is_empty() {
            return Ok(());
        }
        let key = DatasetKey::random()?;
        let recipients = record.recipients.iter().map(|text| text.parse());
        let recipients: Result<Vec<Recipient>, _> = recipients.collect();
        let wrapped = recipients
            .and_then(|recipients| age::wrap(&recipients, key.to_secret_text().as_bytes()));
        let wrapped = wrapped.map_err(|cause| {
            Error::new(ErrorKind::Invalid, "encrypt for", "these recipients").cause(cause)
        })?;
        self.keep(&self.wrapped_path(&record.dataset), &wrapped)?;
        let path = self.key_path(&record.dataset);
        secrets::write_private(&path, &key.to_secret_text())?;
        sync_parent(&path)
    }

    /// Returns how the chunks of a request's dataset are encrypted.
    ///
    /// # Errors
    /// At [`Locus::Source`]: [`ErrorKind::PermissionDenied`] if others can read the key,
    /// [`ErrorKind::Corrupt`] if it is invalid.
    pub(super) fn encryption(&self, record: &RequestRecord) -> Result<Encryption> {
        if record.recipients.is_empty() {
            return Ok(Encryption::None);
        }
        Ok(self
            .cipher(record)?
            .map_or(Encryption::Over, Encryption::With))
    }

    /// Returns the cipher of an encrypted dataset, unless its key was removed.
    pub(super) fn cipher(&self, record: &RequestRecord) -> Result<Option<Cipher>> {
        Ok(self.key(record)?.map(|key| Cipher::new(&key)))
    }

    /// Returns the key of an encrypted dataset, unless it was removed.
    ///
    /// # Errors
    /// Errors of [`Self::encryption`].
    pub(crate) fn key(&self, record: &RequestRecord) -> Result<Option<DatasetKey>> {
        let path = self.key_path(&record.dataset);
        if !path.exists() {
            return Ok(None);
        }
        let text = secrets::read_private(&path).map_err(|error| error.at(Locus::Source))?;
        let key = DatasetKey::from_secret_text(&text).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "use", path.display().to_string())
                .at(Locus::Source)
                .cause("it holds no key")
        })?;
        Ok(Some(key))
    }

    /// Returns the manifest as depots store it and a pull gets it: for an encrypted dataset, its
    /// envelope.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] while some chunk has not been read yet; [`ErrorKind::NotFound`] if the
    /// request ended without an envelope.
    pub(crate) fn manifest_bytes(&self, request: RequestId) -> Result<Vec<u8>> {
        let record = self.request(request)?;
        if record.recipients.is_empty() {
            return Ok(self.manifest(&record, None)?.to_bytes());
        }
        let _one_at_a_time = self
            .envelopes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let path = self.envelope_path(&record.dataset);
        match fs::read(&path) {
            Ok(bytes) => return Ok(bytes),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(Error::io("read", path.display().to_string(), cause)),
        }
        let cipher = self.cipher(&record)?.ok_or_else(|| {
            let subject = format!("the manifest of {request}");
            Error::new(ErrorKind::NotFound, "make", subject).cause("the key of its dataset is gone")
        })?;
        let manifest = self.manifest(&record, Some(cipher.clone()))?;
        let wrapped = self.wrapped_path(&record.dataset);
        let wrapped = fs::read(&wrapped)
            .map_err(|cause| Error::io("read", wrapped.display().to_string(), cause))?;
        let bytes = envelope::close(&wrapped, &cipher, manifest.to_bytes());
        self.keep(&path, &bytes)?;
        Ok(bytes)
    }

    /// Removes an envelope that was made before its dataset changed again; a new one is made when
    /// needed.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn forget_envelope(&self, record: &RequestRecord) -> Result<()> {
        let _one_at_a_time = self
            .envelopes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match record.recipients.is_empty() {
            true => Ok(()),
            false => remove(self.envelope_path(&record.dataset)),
        }
    }

    /// Removes the key of an ended request, after making the envelope if that remains.
    ///
    /// # Errors
    /// Errors of [`Self::manifest_bytes`], and then the key stays.
    pub(crate) fn retire_key(&self, request: RequestId, remains: Remains) -> Result<()> {
        let record = self.request(request)?;
        if record.recipients.is_empty() {
            return Ok(());
        }
        match remains {
            Remains::Envelope | Remains::Source if self.key_path(&record.dataset).exists() => {
                self.manifest_bytes(request)?;
            }
            Remains::Envelope | Remains::Source => {}
            Remains::Nothing => remove(self.wrapped_path(&record.dataset))?,
        }
        if remains == Remains::Source {
            return Ok(());
        }
        remove(self.key_path(&record.dataset))
    }

    /// Removes keys that a crash left of ended or never created requests. No request may be created
    /// meanwhile. The key of a delivered dataset stays until `now` is after its expiry.
    ///
    /// # Errors
    /// The journal's and the operating system's.
    pub(crate) fn retire_keys(&self, now: Timestamp) -> Result<()> {
        let directory = self.directory.join(KEYS);
        let failed = |cause| Error::io("list", directory.display().to_string(), cause);
        let records = self.journal(|journal| journal.encrypted_requests())?;
        let records: HashMap<&str, &RequestRecord> = records
            .iter()
            .map(|record| (record.dataset.as_str(), record))
            .collect();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_string_lossy();
            let Some(record) = records.get(&*name) else {
                remove(self.wrapped_path(&name))?;
                remove(self.key_path(&name))?;
                continue;
            };
            // How long what was delivered may be sent again the mind knows, which is not there yet.
            if record.ended.as_deref() != Some(DELIVERED) {
                self.retire_ended(record, now);
            }
        }
        Ok(())
    }

    fn retire_ended(&self, record: &RequestRecord, now: Timestamp) {
        let retired = remains_of(record, now).map(|remains| self.retire_key(record.id, remains));
        if let Some(Err(error)) = retired {
            tracing::warn!(request = %record.id, "{error}");
        }
    }

    /// Removes the keys of requests that were delivered and that nobody keeps any more. How long they are kept may have been moved
    /// since they were submitted, and is what `kept_until` says.
    ///
    /// # Errors
    /// The journal's.
    pub(crate) fn retire_expired(
        &self,
        now: Timestamp,
        kept_until: impl Fn(RequestId) -> Option<Timestamp>,
    ) -> Result<()> {
        for record in self.journal(|journal| journal.encrypted_requests())? {
            let is_over = record.ended.as_deref() == Some(DELIVERED) && record.expires <= now;
            let is_over = is_over && kept_until(record.id).is_none_or(|until| until <= now);
            if is_over && self.key_path(&record.dataset).exists() {
                self.retire_ended(&record, now);
            }
        }
        Ok(())
    }
}

/// Returns what remains of an ended request.
fn remains_of(record: &RequestRecord, now: Timestamp) -> Option<Remains> {
    if matches!(record.scan, Some(Scan::Failed { .. })) {
        return Some(Remains::Nothing);
    }
    match record.ended.as_deref()? {
        DELIVERED if now < record.expires => Some(Remains::Source),
        "released" | DELIVERED => Some(Remains::Envelope),
        _ => Some(Remains::Nothing),
    }
}

fn remove(path: PathBuf) -> Result<()> {
    match fs::remove_file(&path) {
        Ok(()) => sync_parent(&path),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(Error::io("remove", path.display().to_string(), cause)),
    }
}
