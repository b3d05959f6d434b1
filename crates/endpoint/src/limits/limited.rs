//! Endpoints under caps.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Excuse, Limits,
    file::{LimitedListing, LimitedReader, LimitedWriter, paced},
};
use crate::{
    Capabilities, Checksum, Errand, Error, Pass, Result,
    endpoint::{
        Boxed, ByteStream, Condition, Endpoint, Entry, FileSpec, LentSegment, Listing, Parcel,
        Reader, Whole, Writer,
    },
    unkept::Unkept,
};

/// Endpoint whose requests and payload keep to [`Limits`].
pub struct Limited {
    inner: Arc<dyn Endpoint>,
    limits: Limits,
}

impl Limited {
    /// Applies `limits` to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Endpoint>, limits: Limits) -> Self {
        limits.state.ends.fetch_add(1, Relaxed);
        Self { inner, limits }
    }

    /// Returns whether several files travel in one request.
    fn bundles(&self) -> bool {
        self.inner.capabilities().bundle_bytes_max > 0
    }

    async fn pay(&self, bytes: u64) {
        self.limits.pay(bytes, &Excuse::current()).await;
    }

    fn listing(&self, inner: Box<dyn Listing>) -> Box<dyn Listing> {
        let limits = self.limits.clone();
        Box::new(LimitedListing { inner, limits })
    }

    fn writer(&self, inner: Arc<dyn Writer>) -> Arc<dyn Writer> {
        let limits = self.limits.clone();
        Arc::new(LimitedWriter { inner, limits })
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.limits.state.ends.fetch_sub(1, Relaxed);
    }
}

fn bytes_of(data: &[Bytes]) -> u64 {
    data.iter().map(|piece| piece.len() as u64).sum()
}

impl Endpoint for Limited {
    fn capabilities(&self) -> Capabilities {
        let can = self.inner.capabilities();
        Capabilities {
            segments_held: can.segments_held || self.limits.takes_bodies_whole(),
            ..can
        }
    }

    fn show(&self, path: &[u8]) -> String {
        self.inner.show(path)
    }

    fn limits(&self) -> Option<&Limits> {
        Some(&self.limits)
    }

    fn stat<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Option<Entry>>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.stat(path, follow).await
        })
    }

    fn list<'a>(&'a self, path: &'a [u8], follow: bool) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            let listing = self.inner.list(path, follow).await?;
            Ok(self.listing(listing))
        })
    }

    fn get<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Whole>> {
        Box::pin(async {
            self.pay(entry.size).await;
            let _place = self.limits.enter().await;
            self.inner.get(path, entry).await
        })
    }

    fn open<'a>(&'a self, path: &'a [u8], entry: &'a Entry) -> Boxed<'a, Result<Arc<dyn Reader>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            let reader = LimitedReader {
                inner: self.inner.open(path, entry).await?,
                limits: self.limits.clone(),
                ranges: self.inner.capabilities().ranges,
            };
            let reader: Arc<dyn Reader> = Arc::new(reader);
            Ok(reader)
        })
    }

    fn read_link<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.read_link(path).await
        })
    }

    fn refuses_damage(&self) -> Boxed<'_, bool> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.refuses_damage().await
        })
    }

    fn put<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            self.pay(bytes_of(&data)).await;
            let _place = self.limits.enter().await;
            self.inner.put(path, spec, data, sum).await
        })
    }

    fn create<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            let writer = self.inner.create(path, spec).await?;
            Ok(self.writer(writer))
        })
    }

    fn create_open_ended<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<Arc<dyn Writer>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            let writer = self.inner.create_open_ended(path, spec).await?;
            Ok(self.writer(writer))
        })
    }

    fn write_lent<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        segment: &'a LentSegment,
        body: ByteStream,
    ) -> Boxed<'a, Result<(Checksum, String)>> {
        Box::pin(async move {
            let bytes = segment.range.end.saturating_sub(segment.range.start);
            let (_place, body) = self.limits.enter_with(body, bytes).await?;
            let body = paced(body, self.limits.clone(), (None, false), bytes);
            self.inner.write_lent(path, spec, segment, body).await
        })
    }

    fn adopt<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        note: &'a str,
    ) -> Boxed<'a, Result<()>> {
        self.inner.adopt(path, spec, note)
    }

    fn make_link<'a>(
        &'a self,
        path: &'a [u8],
        target: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.make_link(path, target, spec).await
        })
    }

    fn read_only(&self, path: &[u8]) -> Error {
        self.inner.read_only(path)
    }

    fn make_parents(&self) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.make_parents().await
        })
    }

    fn make_directory<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<bool>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.make_directory(path).await
        })
    }

    fn seal_directory<'a>(
        &'a self,
        path: &'a [u8],
        entry: &'a Entry,
        empty: bool,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.seal_directory(path, entry, empty).await
        })
    }

    fn seal_directories<'a>(
        &'a self,
        wanted: &'a [(Vec<u8>, Entry, bool)],
    ) -> Boxed<'a, Vec<Result<()>>> {
        Box::pin(async move {
            if self.bundles() {
                let _place = self.limits.enter().await;
                return self.inner.seal_directories(wanted).await;
            }
            let mut sealed = Vec::with_capacity(wanted.len());
            for (path, entry, empty) in wanted {
                sealed.push(self.seal_directory(path, entry, *empty).await);
            }
            sealed
        })
    }

    fn list_tree<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<Box<dyn Listing>>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            let listing = self.inner.list_tree(path).await?;
            Ok(listing.map(|listing| self.listing(listing)))
        })
    }

    fn list_on<'a>(
        &'a self,
        path: &'a [u8],
        mark: &'a [u8],
    ) -> Boxed<'a, Result<Box<dyn Listing>>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            let listing = self.inner.list_on(path, mark).await?;
            Ok(self.listing(listing))
        })
    }

    fn get_all<'a>(&'a self, wanted: &'a [(Vec<u8>, Entry)]) -> Boxed<'a, Vec<Result<Whole>>> {
        Box::pin(async move {
            if self.bundles() {
                self.pay(wanted.iter().map(|(_, entry)| entry.size).sum())
                    .await;
                let _place = self.limits.enter().await;
                return self.inner.get_all(wanted).await;
            }
            let mut found = Vec::with_capacity(wanted.len());
            for (path, entry) in wanted {
                found.push(self.get(path, entry).await);
            }
            found
        })
    }

    fn put_all(&self, parcels: Vec<Parcel>) -> Boxed<'_, Vec<Result<()>>> {
        Box::pin(async move {
            if self.bundles() {
                let bytes = parcels.iter().map(|parcel| bytes_of(&parcel.data));
                self.pay(bytes.sum()).await;
                let _place = self.limits.enter().await;
                return self.inner.put_all(parcels).await;
            }
            let mut stored = Vec::with_capacity(parcels.len());
            for parcel in parcels {
                let Parcel {
                    path,
                    spec,
                    data,
                    sum,
                } = parcel;
                stored.push(self.put(&path, &spec, data, sum).await);
            }
            stored
        })
    }

    fn put_if<'a>(
        &'a self,
        path: &'a [u8],
        spec: &'a FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
        condition: &'a Condition,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            self.pay(bytes_of(&data)).await;
            let _place = self.limits.enter().await;
            self.inner.put_if(path, spec, data, sum, condition).await
        })
    }

    fn remove<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<()>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.remove(path).await
        })
    }

    // The presigned URL is signed here: the store is not asked, and others' use of it is theirs.
    fn pass<'a>(
        &'a self,
        path: &'a [u8],
        errand: &'a Errand,
        lifetime: Duration,
    ) -> Boxed<'a, Result<Pass>> {
        self.inner.pass(path, errand, lifetime)
    }

    fn namesake(&self) -> Option<Error> {
        self.inner.namesake()
    }

    fn unkept(&self) -> Unkept {
        self.inner.unkept()
    }

    fn round_trip(&self) -> Option<Duration> {
        self.inner.round_trip()
    }

    fn system(&self) -> Option<String> {
        self.inner.system()
    }

    fn real_path<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Vec<u8>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.real_path(path).await
        })
    }

    fn keep_private<'a>(&'a self, path: &'a [u8], mode: u32) -> Boxed<'a, ()> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.keep_private(path, mode).await;
        })
    }

    fn learn_time_step_ns<'a>(&'a self, path: &'a [u8]) -> Boxed<'a, Result<Option<u32>>> {
        Box::pin(async {
            let _place = self.limits.enter().await;
            self.inner.learn_time_step_ns(path).await
        })
    }

    fn forget_unfinished<'a>(&'a self, path: &'a [u8], origin: &'a str) -> Boxed<'a, ()> {
        self.inner.forget_unfinished(path, origin)
    }

    fn realm(&self) -> Option<String> {
        self.inner.realm()
    }

    fn locate(&self, path: &[u8]) -> Vec<u8> {
        self.inner.locate(path)
    }

    fn copy_within<'a>(
        &'a self,
        from: &'a [u8],
        path: &'a [u8],
        spec: &'a FileSpec,
    ) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            let _place = self.limits.enter().await;
            self.inner.copy_within(from, path, spec).await
        })
    }
}
