//! Sealed datasets from which chunks are read.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use posthaste_api as api;
use posthaste_endpoint::{Actor, Error, ErrorKind, Result};
use posthaste_engine::{
    dataset::FileList,
    envelope::{Cipher, DatasetKey},
    sealed::{Encryption, Seal, Sealed},
};
use posthaste_types::{Bytes, Timestamp};
use tokio::sync::OnceCell;

use crate::{actors::Actors, monotonic, service::ServiceClient};

/// Time without a read after which a dataset is closed.
const IDLE_FOR: Duration = Duration::from_secs(60);

type Cell = Arc<OnceCell<Arc<Sealed>>>;

/// Open datasets, by request and number of files left out, each with the time of its last use.
#[derive(Default)]
pub(crate) struct Datasets {
    open: Mutex<HashMap<(String, usize), (Cell, Instant)>>,
}

impl Datasets {
    fn books(&self) -> MutexGuard<'_, HashMap<(String, usize), (Cell, Instant)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the dataset of a request without the files left out, fetching it from the service at
    /// its first use.
    ///
    /// # Errors
    /// Errors of the service, and [`ErrorKind::Corrupt`] for a dataset that can't be read.
    pub(crate) async fn open(
        &self,
        service: &ServiceClient,
        actors: &Actors,
        request: &str,
        left_out: usize,
    ) -> Result<Arc<Sealed>> {
        let cell = {
            let (now, mut books) = (monotonic(), self.books());
            let key = (request.to_owned(), left_out);
            books.retain(|name, (_, used)| *name == key || now.duration_since(*used) < IDLE_FOR);
            let (cell, used) = books.entry(key).or_insert_with(|| (Cell::default(), now));
            *used = now;
            Arc::clone(cell)
        };
        let opened = cell.get_or_try_init(|| async {
            let about = service.dataset(request).await?;
            let actor = actors.of(about.owner.as_deref()).await?;
            let files = service.files(request).await?;
            let opened = tokio::task::spawn_blocking(move || seal(&about, &files, actor)).await;
            opened.map_err(|cause| {
                Error::new(ErrorKind::Cancelled, "open", "a dataset").cause(cause.to_string())
            })?
        });
        opened.await.cloned()
    }
}

fn seal(about: &api::SealedDataset, files: &[u8], actor: Actor) -> Result<Arc<Sealed>> {
    let corrupt =
        |what: &str| Error::new(ErrorKind::Corrupt, "read", format!("{what} of a dataset"));
    let encryption = match &about.key {
        None => Encryption::None,
        Some(text) => {
            let key =
                DatasetKey::from_secret_text(text.trim()).ok_or_else(|| corrupt("the key"))?;
            Encryption::With(Cipher::new(&key))
        }
    };
    let seal = Seal {
        dataset: about.dataset.parse().map_err(|_| corrupt("the name"))?,
        root: PathBuf::from(&about.root),
        code: about.code.parse().map_err(|_| corrupt("the code"))?,
        chunk_size: Bytes::new(about.chunk_bytes),
        expires: Timestamp::from_micros(about.expires_us),
        encryption,
        actor,
    };
    let list = FileList::from_bytes(files)?;
    Ok(Arc::new(Sealed::new(seal, Arc::new(list), [])))
}
