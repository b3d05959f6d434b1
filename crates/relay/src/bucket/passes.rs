//! Objects on their way into the store: a presigned URL for each, and space set aside until it is
//! there.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use posthaste_endpoint::{
    BodySum, Checksum, Errand, ErrorKind, Pass,
    relay::{
        DatasetId,
        wire::{OBJECT_BYTES_MAX, Object, PROBE_BYTES_MAX, PassAnswer, PassBody},
    },
};
use posthaste_types::Digest;
use tokio::time::Instant;

use super::{Bucket, Checks};
use crate::{
    order,
    reception::{Reception, blocking},
    store::{Refusal, Store, Stored, Upload, other_digest},
};

/// Maximum of a request's bytes: it says what is to be stored.
const BODY_BYTES_MAX: usize = 4096;
/// Maximum of objects on their way: each has a file open here.
const UNDER_WAY_MAX: usize = 512;
/// Time for which space is set aside: 256 MiB take less at 80 kB/s.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Maximum of probes under way: several measure each other.
const PROBES_MAX: usize = 2;
/// Time limit of a probe, which takes less.
const PROBE_PATIENCE: Duration = Duration::from_secs(60);

/// Dataset and object to which an upload belongs.
type Name = (DatasetId, Object);

struct UnderWay {
    upload: Upload,
    stored: Stored,
    until: Instant,
}

/// Presigned URLs handed out, by what they are for.
pub(crate) struct Passes {
    bucket: Bucket,
    store: Arc<Store>,
    under_way: Mutex<BTreeMap<Name, UnderWay>>,
    /// Probes and their time limits.
    probes: Mutex<Vec<(Digest, Instant)>>,
}

impl Passes {
    pub(super) fn new(bucket: Bucket, store: Arc<Store>) -> Self {
        Self {
            bucket,
            store,
            under_way: Mutex::default(),
            probes: Mutex::default(),
        }
    }

    fn under_way(&self) -> MutexGuard<'_, BTreeMap<Name, UnderWay>> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up all uploads of a dataset. Returns whether any was on its way.
    pub(crate) fn give_up(&self, dataset: &DatasetId) -> bool {
        let mut under_way = self.under_way();
        let before = under_way.len();
        under_way.retain(|(of, _), _| of != dataset);
        under_way.len() < before
    }

    /// Gives up uploads that did not arrive.
    pub(crate) fn give_up_late(&self) {
        let now = Instant::now();
        self.under_way().retain(|_, upload| upload.until > now);
    }

    /// Hands out a presigned URL, or checks whether the object of an earlier one is there.
    pub(crate) async fn answer(
        &self,
        dataset: DatasetId,
        object: Object,
        body: Reception,
    ) -> Result<PassAnswer, Refusal> {
        let asked = read(body).await?;
        let stored = Stored {
            digest: order::digest(&asked.digest, "the digest is none")?,
            size: asked.size,
        };
        if stored.size > OBJECT_BYTES_MAX {
            return Err(order::invalid("it is larger than one object may be"));
        }
        order::check_expiry(asked.expires_unix_s)?;
        let store = Arc::clone(&self.store);
        if blocking(move || Ok(store.is_doomed(&dataset))).await? {
            let what = "what the dataset had here is being removed";
            return Err(Refusal::new(ErrorKind::Busy, what));
        }
        if let Some(there) = self.store.find(&dataset, object) {
            if there.digest != stored.digest {
                return Err(other_digest());
            }
            let (store, expires_s) = (Arc::clone(&self.store), asked.expires_unix_s);
            blocking(move || store.extend(&dataset, expires_s)).await?;
            return Ok(PassAnswer::Stored);
        }
        match asked.is_sent {
            true => self.count(dataset, object, stored, &asked).await,
            false => self.let_through(dataset, object, stored, &asked).await,
        }
    }

    /// Hands out a presigned URL for a probe, or removes its object.
    pub(crate) async fn probe(&self, body: Reception) -> Result<PassAnswer, Refusal> {
        let asked = read(body).await?;
        let digest = order::digest(&asked.digest, "the digest is none")?;
        if asked.size > PROBE_BYTES_MAX {
            return Err(order::invalid("it is larger than one probe may be"));
        }
        if asked.is_sent {
            let removed = self.bucket.remove_probe(digest).await;
            removed.map_err(|error| refusal_of(&error))?;
            self.probes().retain(|(known, _)| *known != digest);
            return Ok(PassAnswer::Stored);
        }
        let Some(sum) = self.sum(&asked)? else {
            return Ok(PassAnswer::NeedsMd5);
        };
        {
            let mut probes = self.probes();
            if probes.len() >= PROBES_MAX {
                return Err(Refusal::new(ErrorKind::Busy, "other probes are under way"));
            }
            probes.push((digest, Instant::now() + PROBE_PATIENCE));
        }
        let pass = self.bucket.probing(digest, &Errand::Write(sum)).await;
        Ok(sending(pass.map_err(|error| refusal_of(&error))?))
    }

    fn probes(&self) -> MutexGuard<'_, Vec<(Digest, Instant)>> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes probes that nobody said any more of.
    pub(crate) async fn end_probes(&self) {
        let now = Instant::now();
        let late = |probe: &&(Digest, Instant)| probe.1 <= now;
        let late: Vec<_> = self.probes().iter().filter(late).copied().collect();
        for (digest, _) in late {
            match self.bucket.remove_probe(digest).await {
                Ok(()) => self.probes().retain(|(known, _)| *known != digest),
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    /// Returns the checksum by which the store will verify it; `None` if the request names none.
    fn sum(&self, asked: &PassBody) -> Result<Option<BodySum>, Refusal> {
        let sum = match self.bucket.checks {
            Checks::Crc64 => Checksum::from_base64(&asked.crc64nvme).map(BodySum::Crc64),
            Checks::Md5 => match &asked.md5 {
                None => return Ok(None),
                Some(md5) => BodySum::md5_from_base64(md5),
            },
        };
        sum.map(Some)
            .ok_or_else(|| order::invalid("the checksum is none"))
    }

    async fn let_through(
        &self,
        dataset: DatasetId,
        object: Object,
        stored: Stored,
        asked: &PassBody,
    ) -> Result<PassAnswer, Refusal> {
        let Some(sum) = self.sum(asked)? else {
            return Ok(PassAnswer::NeedsMd5);
        };
        let upload = self.set_aside(dataset, object, stored, asked).await?;
        // Known from now on: what the store gets and nobody counts goes when the dataset does.
        let (store, expires_s) = (Arc::clone(&self.store), asked.expires_unix_s);
        blocking(move || store.keep(&dataset, expires_s)).await?;
        let errand = Errand::Write(sum);
        let pass = self.bucket.pass(&dataset, object, &stored, &errand).await;
        let pass = pass.map_err(|error| refusal_of(&error))?;
        let until = Instant::now() + PATIENCE;
        let under_way = UnderWay {
            upload,
            stored,
            until,
        };
        // An earlier request for it is given up: its sender comes again.
        self.under_way().insert((dataset, object), under_way);
        Ok(sending(pass))
    }

    async fn set_aside(
        &self,
        dataset: DatasetId,
        object: Object,
        stored: Stored,
        asked: &PassBody,
    ) -> Result<Upload, Refusal> {
        let before = {
            let mut under_way = self.under_way();
            let before = under_way.remove(&(dataset, object));
            if before.is_none() && under_way.len() >= UNDER_WAY_MAX {
                let what = "as many objects are on their way as ever at once";
                return Err(Refusal::new(ErrorKind::Busy, what));
            }
            before
        };
        if let Some(before) = before.filter(|before| before.stored == stored) {
            return Ok(before.upload);
        }
        let (store, expires_s) = (Arc::clone(&self.store), asked.expires_unix_s);
        let begin = move || Upload::begin(store, dataset, object, stored, expires_s);
        blocking(begin).await
    }

    /// Counts an object that the store has.
    async fn count(
        &self,
        dataset: DatasetId,
        object: Object,
        stored: Stored,
        asked: &PassBody,
    ) -> Result<PassAnswer, Refusal> {
        let has = self.bucket.has(&dataset, object, &stored).await;
        if !has.map_err(|error| refusal_of(&error))? {
            let what = "the store does not have it";
            return Err(Refusal::new(ErrorKind::Corrupt, what).hint("send it again"));
        }
        let upload = self.set_aside(dataset, object, stored, asked).await?;
        blocking(move || upload.vouch()).await?;
        Ok(PassAnswer::Stored)
    }
}

async fn read(body: Reception) -> Result<PassBody, Refusal> {
    let body = body.read(BODY_BYTES_MAX).await?;
    order::read(&body, "the body says not what is to be stored")
}

fn sending(pass: Pass) -> PassAnswer {
    let text = |value: &http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = pass.headers.iter();
    let headers = headers.map(|(name, value)| (name.as_str().to_owned(), text(value)));
    PassAnswer::Send {
        headers: headers.collect(),
        url: pass.url,
    }
}

/// Returns the refusal for what the store does not do for the relay. The store's address may be
/// private and is not reported.
pub(super) fn refusal_of(error: &posthaste_endpoint::Error) -> Refusal {
    tracing::warn!("{error}");
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; the rest is alike"
    )]
    let kind = match error.kind() {
        ErrorKind::Full => ErrorKind::Full,
        ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Busy,
    };
    Refusal::new(kind, "the relay's store does not do what it should")
}
