//! Removes from the store what datasets had there that are gone here.
//!
//! Each doomed dataset has a file in `doomed/`, made before anything else of its removal, so the
//! next run of the relay continues an interrupted removal.

use std::{
    fs, io,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use posthaste_endpoint::{Endpoint, Kind, Result, join, relay::DatasetId};
use tokio::{
    sync::{Mutex, Notify},
    time::Instant,
};

use super::{CHECKS, PROBES};
use crate::{
    reception::blocking,
    store::{Refusal, Store, dataset_name},
};

/// Objects removed at once.
const REMOVALS_MAX: usize = 16;

/// Maximum of datasets that are removed a second time.
const LATE_MAX: usize = 10_000;
/// Time after which no object can still arrive: a presigned URL lasts a quarter of an hour, and an
/// object that has begun by then takes less than this.
const STRAGGLES: Duration = Duration::from_secs(75 * 60);

/// Cleaner of the bucket.
pub(crate) struct Cleaner {
    bucket: Arc<dyn Endpoint>,
    store: Arc<Store>,
    one: Mutex<()>,
    wanted: Notify,
    /// A killed relay may have left something.
    has_leftovers: AtomicBool,
    /// Datasets with uploads under way when they were removed, and until when those may still
    /// arrive.
    late: std::sync::Mutex<Vec<(DatasetId, Instant)>>,
}

impl Cleaner {
    pub(super) fn new(bucket: Arc<dyn Endpoint>, store: Arc<Store>) -> Self {
        Self {
            bucket,
            store,
            one: Mutex::default(),
            wanted: Notify::new(),
            has_leftovers: AtomicBool::new(true),
            late: std::sync::Mutex::default(),
        }
    }

    /// Dooms a dataset, known here or not: an interrupted upload leaves objects that nobody counts.
    pub(crate) async fn doom(&self, dataset: DatasetId) -> Result<(), Refusal> {
        let store = Arc::clone(&self.store);
        blocking(move || {
            store.doom(&dataset)?;
            store.remove(&dataset)
        })
        .await?;
        self.wanted.notify_one();
        Ok(())
    }

    /// Dooms a dataset once more when none of the uploads permitted before its removal can still
    /// arrive.
    pub(crate) fn doom_again(&self, dataset: DatasetId) {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        if late.len() < LATE_MAX {
            late.push((dataset, Instant::now() + STRAGGLES));
        }
    }

    /// Dooms what is due again, unless it came back meanwhile.
    async fn doom_late(&self) {
        let now = Instant::now();
        let due: Vec<DatasetId> = {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            let due = late.iter().filter(|(_, until)| *until <= now);
            let due = due.map(|(dataset, _)| *dataset).collect();
            late.retain(|(_, until)| *until > now);
            due
        };
        for dataset in due.into_iter().filter(|dataset| !self.store.knows(dataset)) {
            let store = Arc::clone(&self.store);
            let _ = blocking(move || Ok(store.doom(&dataset)?)).await;
        }
    }

    /// Waits until a removal is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Removes everything doomed. What can't be removed now is retried in the next turn.
    pub(crate) async fn clean(&self) {
        let _one = self.one.lock().await;
        self.doom_late().await;
        let store = Arc::clone(&self.store);
        let Ok(doomed) = blocking(move || store.doomed().map_err(Refusal::from)).await else {
            return;
        };
        if self.has_leftovers.load(Relaxed) {
            let mut is_clean = true;
            for below in [PROBES, CHECKS] {
                is_clean &= self.clean_below(below.as_bytes()).await.is_ok();
            }
            self.has_leftovers.store(!is_clean, Relaxed);
        }
        for dataset in doomed {
            match self.clean_below(dataset_name(&dataset).as_bytes()).await {
                Ok(()) => {
                    let store = Arc::clone(&self.store);
                    let _ = blocking(move || Ok(store.cleaned(&dataset)?)).await;
                }
                Err(error) => tracing::warn!("{error}"),
            }
        }
    }

    async fn clean_below(&self, root: &[u8]) -> Result<()> {
        let Some(mut listing) = self.bucket.list_tree(root).await? else {
            return Ok(());
        };
        loop {
            let page = listing.next_page().await?;
            if page.is_empty() {
                return Ok(());
            }
            let files = page.into_iter().filter(|entry| entry.kind == Kind::File);
            let paths = files.map(|entry| join(root, &entry.name));
            let removals = stream::iter(paths).map(|path| async move {
                let bucket = &self.bucket;
                bucket.remove(&path).await
            });
            let mut removals = removals.buffer_unordered(REMOVALS_MAX);
            while let Some(removed) = removals.next().await {
                removed?;
            }
        }
    }
}

impl Store {
    /// Notes that the store's content of a dataset is to be removed. Blocking.
    pub(crate) fn doom(&self, dataset: &DatasetId) -> io::Result<()> {
        let directory = self.doomed_dir();
        match fs::create_dir(&directory) {
            Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => return Err(cause),
            _ => {}
        }
        fs::File::create(directory.join(dataset.to_string()))?;
        self.flush_dir(&directory)
    }

    /// Returns whether the store's content of a dataset is still being removed. Blocking.
    pub(crate) fn is_doomed(&self, dataset: &DatasetId) -> bool {
        self.doomed_dir().join(dataset.to_string()).exists()
    }

    fn doomed(&self) -> io::Result<Vec<DatasetId>> {
        let items = match fs::read_dir(self.doomed_dir()) {
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            items => items?,
        };
        let mut doomed = Vec::new();
        for item in items {
            let name = item?.file_name();
            doomed.extend(
                name.to_str()
                    .and_then(|name| name.parse::<DatasetId>().ok()),
            );
        }
        Ok(doomed)
    }

    fn cleaned(&self, dataset: &DatasetId) -> io::Result<()> {
        fs::remove_file(self.doomed_dir().join(dataset.to_string()))
    }
}
