//! Operations that a store must implement to be an endpoint.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

use super::Segments;
use crate::{
    Capabilities, Checksum, Condition, Errand, Error, Pass, Result,
    endpoint::{Entry, FileSpec, Kind, Listing, Reader, Whole, unsupported},
    limits::Limits,
};

/// Bucket of a store: operations on its objects, each addressed by its key.
pub(crate) trait RawStore: Send + Sync + Sized + 'static {
    /// Facts about an object without its bytes.
    type Head: Send;
    /// Listing of its keys.
    type Listing: KeysListing<Store = Self>;
    /// Writer of large objects.
    type Segments: Segments<Store = Self>;

    fn capabilities(&self) -> Capabilities;
    /// Returns the address of `key` for messages.
    fn show(&self, key: &str) -> String;
    fn round_trip(&self) -> Option<Duration>;
    /// Returns the realm, like [`Endpoint::realm`].
    fn realm(&self) -> String;
    /// Returns its name in the realm.
    fn bucket(&self) -> &str;
    /// Returns its address, which identifies it in records of unfinished uploads.
    fn place(&self) -> String;

    /// Returns the reason for rejecting a key that it can't keep unchanged.
    fn refuses(&self, key: &str) -> Option<&'static str>;

    /// Requests the facts about an object; `None` if there is no such object.
    fn head(
        &self,
        key: &str,
        operation: &'static str,
    ) -> impl Future<Output = Result<Option<Self::Head>>> + Send;

    /// Returns the entry of an object that stands for a `kind`.
    fn entry(head: &Self::Head, kind: Kind) -> Entry;

    /// Returns whether any key begins with `prefix`. Unlike a head request, a refusal gives a
    /// reason.
    fn has_below(&self, prefix: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Returns whether a refusal of [`RawStore::has_below`] may concern only listing.
    fn is_about_listing(_refusal: &Error) -> bool {
        false
    }

    /// Reads a whole object, if it still matches `entry`, and compares it with the store's
    /// checksum.
    fn get(
        &self,
        key: &str,
        entry: &Entry,
        operation: &'static str,
    ) -> impl Future<Output = Result<Whole>> + Send;

    /// Returns a reader of ranges of the object of `head`.
    fn reader(self: &Arc<Self>, key: String, head: &Self::Head) -> Arc<dyn Reader>;

    /// Stores an object in one request. The store refuses it unless the checksum is right, and with
    /// [`ErrorKind::Changed`] or [`ErrorKind::Conflict`] if the condition does not hold.
    fn put(
        &self,
        key: &str,
        what: (&FileSpec, Kind),
        content: (Vec<Bytes>, Checksum),
        condition: Option<&Condition>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Sends a small object with the checksum of other bytes.
    fn put_damaged(&self, key: &str) -> impl Future<Output = Result<()>> + Send {
        let unknown = unsupported("compare", self.show(key));
        async move { Err(unknown) }
    }

    /// Removes an object.
    fn delete(&self, key: &str) -> impl Future<Output = Result<()>> + Send;

    /// Presigns a URL, like [`Endpoint::pass`].
    fn pass(
        &self,
        key: &str,
        _errand: &Errand,
        _lifetime: Duration,
    ) -> impl Future<Output = Result<Pass>> + Send {
        let refused = unsupported("hand out", self.show(key));
        async move { Err(refused) }
    }

    /// Copies an object that another endpoint of the realm has [`Endpoint::locate`]d.
    fn copy(
        self: &Arc<Self>,
        from: &str,
        key: &str,
        spec: &FileSpec,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Listing of a store's keys. It applies the caps to its requests itself, since it makes several at
/// once.
pub(crate) trait KeysListing: Listing + Sized + 'static {
    type Store: RawStore;

    /// Lists the keys directly below a prefix (`flat`), or all of them.
    fn new(store: Arc<Self::Store>, prefix: String, flat: bool) -> Self;

    /// Continues at a mark.
    fn resumed(store: Arc<Self::Store>, prefix: String, mark: &[u8]) -> Result<Self>;

    /// Applies these caps to each request.
    fn held_to(self, limits: Option<Limits>) -> Self;
}
