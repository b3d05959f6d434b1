//! What a store has to do to be an endpoint.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

use super::Segments;
use crate::{
    Capabilities, Checksum, Condition, Errand, Error, Pass, Result,
    endpoint::{Entry, FileSpec, Kind, Listing, Reader, Whole, unsupported},
    limits::Limits,
};

/// One bucket of a store: what can be done with its objects, each called by its key.
pub(crate) trait RawStore: Send + Sync + Sized + 'static {
    /// What the store says of an object without its bytes.
    type Head: Send;
    /// How its keys are listed.
    type Listing: KeysListing<Store = Self>;
    /// How large objects are written.
    type Segments: Segments<Store = Self>;

    fn capabilities(&self) -> Capabilities;
    /// The address of `key` for people.
    fn show(&self, key: &str) -> String;
    fn round_trip(&self) -> Option<Duration>;
    /// As [`Endpoint::realm`].
    fn realm(&self) -> String;
    /// Its name in the realm.
    fn bucket(&self) -> &str;
    /// Its address, which names it in records of unfinished uploads.
    fn place(&self) -> String;

    /// Refuses keys it can't keep as they are: why not.
    fn refuses(&self, key: &str) -> Option<&'static str>;

    /// Asks what it says of an object; `None` when there is no such object.
    fn head(
        &self,
        key: &str,
        operation: &'static str,
    ) -> impl Future<Output = Result<Option<Self::Head>>> + Send;

    /// The entry of what stands for a `kind`.
    fn entry(head: &Self::Head, kind: Kind) -> Entry;

    /// Whether any key begins with `prefix`. Unlike a head, a refusal says why.
    fn has_below(&self, prefix: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Whether a refusal of [`RawStore::has_below`] may be about listing alone.
    fn is_about_listing(_refusal: &Error) -> bool {
        false
    }

    /// Reads an object whole, if it still is what `entry` says, and compares it with what the store
    /// keeps of it.
    fn get(
        &self,
        key: &str,
        entry: &Entry,
        operation: &'static str,
    ) -> impl Future<Output = Result<Whole>> + Send;

    /// Reads ranges of what `head` tells of.
    fn reader(self: &Arc<Self>, key: String, head: &Self::Head) -> Arc<dyn Reader>;

    /// Stores an object in one request; the store refuses it unless the checksum is right, and with
    /// [`ErrorKind::Changed`] or [`ErrorKind::Conflict`] where the condition does not hold.
    fn put(
        &self,
        key: &str,
        what: (&FileSpec, Kind),
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Removes an object.
    fn delete(&self, key: &str) -> impl Future<Output = Result<()>> + Send;

    /// As [`Endpoint::pass`].
    fn pass(
        &self,
        key: &str,
        _errand: &Errand,
        _lifetime: Duration,
    ) -> impl Future<Output = Result<Pass>> + Send {
        let refused = unsupported("hand out", self.show(key));
        async move { Err(refused) }
    }

    /// Copies what another of the realm has [`Endpoint::locate`]d.
    fn copy(
        self: &Arc<Self>,
        from: &str,
        key: &str,
        spec: &FileSpec,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// A listing of a store's keys, which holds its requests to the caps by itself: it makes several at
/// once.
pub(crate) trait KeysListing: Listing + Sized + 'static {
    type Store: RawStore;

    /// Lists what is directly below a prefix (`flat`), or all of it.
    fn new(store: Arc<Self::Store>, prefix: String, flat: bool) -> Self;

    /// Goes on where a mark was left.
    fn resumed(store: Arc<Self::Store>, prefix: String, mark: &[u8]) -> Result<Self>;

    /// Holds each request to these caps.
    fn held_to(self, limits: Option<Limits>) -> Self;
}
