//! Shares of the capacity: their owners, sizes and ends.
//!
//! A dataset uses its stored bytes and uploads under way until it expires. While space is reserved
//! for it, it uses that or the reservation, whichever is more. Files use theirs for good. As long
//! as nothing is reserved the sum can only fall, so what fits now fits later; otherwise the
//! calendar is checked for every later moment.

mod spaces;

use std::{collections::BTreeMap, ops::Bound};

use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId,
        wire::{SpaceBody, SpaceGrant, SpaceHeld},
    },
};
use posthaste_plan::Curve;
use posthaste_types::{ByteRate, Timestamp};

use super::Refusal;
pub(super) use spaces::{KeptSpaces, Spaces};

/// Use of the store, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) capacity: u64,
    pub(crate) used: u64,
    /// Reserved now, and not filled.
    pub(crate) reserved: u64,
    pub(crate) free: u64,
}

/// Account of a dataset's room.
#[derive(Debug, Default)]
struct Account {
    stored: u64,
    /// Expiry of the stored bytes, in seconds since the Unix epoch.
    expires_s: u64,
    /// Number and bytes of uploads under way, by requested expiry.
    under_way: BTreeMap<u64, (u32, u64)>,
}

impl Account {
    fn under_way_bytes(&self) -> u64 {
        self.under_way.values().map(|(_, bytes)| bytes).sum()
    }

    fn bytes(&self) -> u64 {
        self.stored + self.under_way_bytes()
    }

    fn is_empty(&self) -> bool {
        self.stored == 0 && self.expires_s == 0 && self.under_way.is_empty()
    }

    /// Returns the end of the room: stored data is kept for as long as any upload of it asks.
    fn end_s(&self) -> u64 {
        let last = self.under_way.keys().next_back().copied();
        last.unwrap_or_default().max(self.expires_s)
    }

    /// Ends an upload.
    fn end(&mut self, bytes: u64, expires_s: u64) {
        if let Some((uploads, taken)) = self.under_way.get_mut(&expires_s) {
            *uploads -= 1;
            *taken -= bytes;
            if *uploads == 0 {
                self.under_way.remove(&expires_s);
            }
        }
    }
}

/// Capacity and its users. Moments are seconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct Room {
    capacity: u64,
    /// Bytes of files, finished or not.
    files: u64,
    stored: u64,
    under_way: u64,
    accounts: BTreeMap<DatasetId, Account>,
    /// Bytes of all accounts, by their ends.
    ends: BTreeMap<u64, u64>,
    spaces: Spaces,
    /// Unfilled bytes of the reservations of now.
    unfilled: u64,
    /// Span in which that is so, except for what is stored.
    counted: (u64, u64),
}

impl Room {
    pub(super) fn new(capacity: u64, files: u64) -> Self {
        Self {
            capacity,
            files,
            stored: 0,
            under_way: 0,
            accounts: BTreeMap::new(),
            ends: BTreeMap::new(),
            spaces: Spaces::new(capacity),
            unfilled: 0,
            counted: (0, 0),
        }
    }

    /// Returns the bytes that are there, or will be when uploads end.
    fn taken(&self) -> u64 {
        let taken = self.stored.saturating_add(self.under_way);
        taken.saturating_add(self.files)
    }

    /// Brings the counts to this moment.
    fn advance(&mut self, now_s: u64) {
        if !(self.counted.0..self.counted.1).contains(&now_s) {
            self.spaces.expire(now_s);
            self.count(now_s);
        }
    }

    fn count(&mut self, now_s: u64) {
        self.counted = (now_s, self.spaces.next_change(now_s));
        let spaces = self.spaces.iter();
        let unfilled = |(dataset, grant): (&DatasetId, &SpaceGrant)| {
            unfilled(grant, self.bytes(dataset), now_s)
        };
        self.unfilled = spaces.map(unfilled).sum();
    }

    fn bytes(&self, dataset: &DatasetId) -> u64 {
        self.accounts.get(dataset).map_or(0, Account::bytes)
    }

    pub(super) fn usage(&mut self, now_s: u64) -> Usage {
        self.advance(now_s);
        Usage {
            capacity: self.capacity,
            used: self.stored + self.files,
            reserved: self.unfilled,
            free: self.free(),
        }
    }

    /// Returns the bytes that anybody may use now.
    fn free(&self) -> u64 {
        let taken = self.taken().saturating_add(self.unfilled);
        self.capacity.saturating_sub(taken)
    }

    /// Changes an account, and all counts that depend on it.
    fn change(&mut self, dataset: &DatasetId, what: impl FnOnce(&mut Account)) {
        let mut account = self.accounts.remove(dataset).unwrap_or_default();
        let grant = self.spaces.get(dataset).copied();
        let unfilled = |bytes| grant.map_or(0, |grant| unfilled(&grant, bytes, self.counted.0));
        let bytes = account.bytes();
        self.stored -= account.stored;
        self.under_way -= account.under_way_bytes();
        self.unfilled -= unfilled(bytes);
        if let Some(ending) = self.ends.get_mut(&account.end_s()) {
            *ending -= bytes;
            if *ending == 0 {
                self.ends.remove(&account.end_s());
            }
        }
        what(&mut account);
        let bytes = account.bytes();
        self.stored += account.stored;
        self.under_way += account.under_way_bytes();
        self.unfilled += unfilled(bytes);
        if bytes > 0 {
            *self.ends.entry(account.end_s()).or_default() += bytes;
        }
        if !account.is_empty() {
            self.accounts.insert(*dataset, account);
        }
    }

    /// Counts what is stored already.
    pub(super) fn load(&mut self, dataset: &DatasetId, bytes: u64, expires_s: u64) {
        self.change(dataset, |account| {
            account.stored = bytes;
            account.expires_s = expires_s;
        });
    }

    /// Takes room for an upload of `bytes` that wants to be kept until `expires_s`, and with it all
    /// of the dataset.
    ///
    /// # Errors
    /// [`ErrorKind::Full`].
    pub(super) fn begin(
        &mut self,
        dataset: &DatasetId,
        bytes: u64,
        expires_s: u64,
        now_s: u64,
    ) -> Result<(), Refusal> {
        self.advance(now_s);
        self.check_upload(dataset, bytes, expires_s, now_s)?;
        self.change(dataset, |account| {
            let (uploads, taken) = account.under_way.entry(expires_s).or_default();
            *uploads += 1;
            *taken += bytes;
        });
        Ok(())
    }

    /// Releases the room of an upload.
    pub(super) fn end(&mut self, dataset: &DatasetId, bytes: u64, expires_s: u64) {
        self.change(dataset, |account| account.end(bytes, expires_s));
    }

    /// Counts the bytes of an upload as stored from now on.
    pub(super) fn store(&mut self, dataset: &DatasetId, bytes: u64, expires_s: u64) {
        self.change(dataset, |account| {
            account.end(bytes, expires_s);
            account.stored += bytes;
        });
    }

    /// Counts lost bytes as no longer stored.
    pub(super) fn lose(&mut self, dataset: &DatasetId, bytes: u64) {
        self.change(dataset, |account| account.stored -= bytes);
    }

    /// Keeps the stored bytes until this moment.
    pub(super) fn keep(&mut self, dataset: &DatasetId, expires_s: u64) {
        self.change(dataset, |account| account.expires_s = expires_s);
    }

    /// Counts a dataset as removed.
    pub(super) fn remove(&mut self, dataset: &DatasetId) {
        self.load(dataset, 0, 0);
    }

    /// Returns whether anything stored has expired.
    pub(super) fn has_expired(&self, now_s: u64) -> bool {
        let first = self.ends.first_key_value();
        first.is_some_and(|(end_s, _)| *end_s <= now_s)
    }

    /// Takes room for a file of `wanted` bytes in place of one of `had`.
    ///
    /// # Errors
    /// [`ErrorKind::Full`].
    pub(super) fn change_files(
        &mut self,
        had: u64,
        wanted: u64,
        now_s: u64,
    ) -> Result<(), Refusal> {
        self.advance(now_s);
        let more = wanted.saturating_sub(had);
        if more > 0 && !self.fits_anyway(more) {
            let is_there = self.taken().saturating_add(more) <= self.capacity;
            let outside = self.outside(None, now_s);
            let lacks = self.spaces.lacks(outside, &[(now_s, u64::MAX, more)]);
            if !is_there || lacks.is_some() {
                return Err(self.no_room(more));
            }
        }
        self.files = self.files.saturating_sub(had).saturating_add(wanted);
        Ok(())
    }

    /// Returns whether `more` would fit if everything stayed for ever and all reservations were of
    /// the same moment.
    fn fits_anyway(&self, more: u64) -> bool {
        let taken = self.taken().saturating_add(self.spaces.promised());
        taken.saturating_add(more) <= self.capacity
    }

    fn check_upload(
        &mut self,
        dataset: &DatasetId,
        more: u64,
        expires_s: u64,
        now_s: u64,
    ) -> Result<(), Refusal> {
        let account = self.accounts.get(dataset);
        let had = account.map_or(0, Account::bytes);
        let ended_s = account.map_or(0, Account::end_s);
        let (bytes, end_s) = (had.saturating_add(more), ended_s.max(expires_s));
        if (more == 0 && end_s == ended_s) || self.fits_anyway(more) {
            return Ok(());
        }
        if more > 0 && self.taken().saturating_add(more) > self.capacity {
            return Err(self.no_room(more));
        }
        if self.spaces.is_empty() {
            return Ok(());
        }
        let end_s = end_s.max(now_s + 1);
        let own = self.spaces.get(dataset).copied();
        if own.is_some_and(|own| {
            let is_within = bytes <= own.bytes && end_s <= own.until_unix_s;
            own.from_unix_s <= now_s && is_within
        }) {
            return Ok(());
        }
        let beyond = beyond(own.as_ref(), bytes, (now_s, end_s));
        let outside = self.outside(Some(dataset), now_s);
        match self.spaces.lacks(outside, &beyond) {
            None => Ok(()),
            Some(moment) if moment <= now_s => Err(self.no_room(more)),
            Some(moment) => {
                let message = format!(
                    "the dataset could be kept until {moment} (Unix time), not until {end_s}: the space is reserved"
                );
                let hint = "ask for less time, or use another depot";
                Err(Refusal::new(ErrorKind::Full, message).hint(hint))
            }
        }
    }

    fn no_room(&self, needed: u64) -> Refusal {
        let (free, capacity) = (self.free(), self.capacity);
        let message = format!("{free} of {capacity} bytes are free, {needed} are needed");
        Refusal::new(ErrorKind::Full, message)
            .hint("delete datasets, wait for some to expire, or lend more with --capacity")
    }

    /// Returns the bytes used beyond reservations from a moment on, by all datasets but one. The
    /// curve has values at that moment and whenever a reservation begins or ends: in between use
    /// only falls, so no span has less room than that.
    fn outside(&self, except: Option<&DatasetId>, from_s: u64) -> Curve {
        let edges = self.spaces.iter();
        let edges = edges.flat_map(|(_, grant)| [grant.from_unix_s, grant.until_unix_s]);
        let mut changes: BTreeMap<u64, i128> = edges
            .filter(|edge| *edge > from_s)
            .map(|edge| (edge, 0))
            .collect();
        changes.insert(from_s, self.files.into());
        let mut before = Bound::Unbounded;
        let mut left = i128::from(self.stored) + i128::from(self.under_way);
        let mut added = 0;
        for (edge, change) in &mut changes {
            let ended = self.ends.range((before, Bound::Included(*edge)));
            left -= i128::from(ended.map(|(_, bytes)| bytes).sum::<u64>());
            *change += left - added;
            (added, before) = (left, Bound::Excluded(*edge));
        }
        let mut takes = |begin_s: u64, end_s: u64, bytes: i128| {
            if begin_s < end_s && end_s > from_s {
                for (moment, bytes) in [(begin_s.max(from_s), bytes), (end_s, -bytes)] {
                    if let Some((_, change)) = changes.range_mut(moment..).next() {
                        *change += bytes;
                    }
                }
            }
        };
        for (dataset, grant) in self.spaces.iter() {
            let account = self.accounts.get(dataset);
            if let Some(account) = account.filter(|_| Some(dataset) != except) {
                let within = i128::from(account.bytes().min(grant.bytes));
                let end_s = grant.until_unix_s.min(account.end_s());
                takes(grant.from_unix_s, end_s, -within);
            }
        }
        if let Some(account) = except.and_then(|except| self.accounts.get(except)) {
            takes(0, account.end_s(), -i128::from(account.bytes()));
        }
        let mut taken = 0;
        Curve::of_steps(changes.into_iter().map(|(moment, change)| {
            taken += change;
            let taken = u64::try_from(taken.max(0)).unwrap_or(u64::MAX);
            (Timestamp::from_secs(moment), ByteRate::new(taken))
        }))
    }

    /// Makes or changes the reservation of a dataset. Also returns whether there was none.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; [`ErrorKind::Full`]: then nothing changes.
    pub(super) fn reserve(
        &mut self,
        dataset: &DatasetId,
        wanted: SpaceBody,
        now_s: u64,
    ) -> Result<(bool, SpaceGrant), Refusal> {
        self.advance(now_s);
        let from_s = wanted.from_unix_s.unwrap_or(now_s).max(now_s);
        let outside = self.outside(Some(dataset), from_s);
        let reserved = self.spaces.reserve(dataset, wanted, outside, now_s);
        self.count(now_s);
        reserved
    }

    /// Releases the reservation of a dataset; returns whether there was one.
    pub(super) fn release(&mut self, dataset: &DatasetId, now_s: u64) -> bool {
        let was = self.spaces.release(dataset);
        self.count(now_s);
        was
    }

    /// Returns all reservations.
    pub(super) fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// Restores earlier reservations.
    pub(super) fn put_back(&mut self, spaces: Spaces, now_s: u64) {
        self.spaces = spaces;
        self.spaces.expire(now_s);
        self.count(now_s);
    }

    /// Returns the reservations, and how much of each is filled.
    pub(super) fn held(&mut self, now_s: u64) -> Vec<SpaceHeld> {
        self.advance(now_s);
        let held = |(dataset, grant): (&DatasetId, &SpaceGrant)| SpaceHeld {
            dataset: *dataset,
            stored_bytes: self.bytes(dataset),
            grant: *grant,
        };
        self.spaces.iter().map(held).collect()
    }
}

/// Returns the bytes of a reservation that `bytes` do not fill at a moment.
fn unfilled(grant: &SpaceGrant, bytes: u64, now_s: u64) -> u64 {
    let is_now = (grant.from_unix_s..grant.until_unix_s).contains(&now_s);
    if is_now {
        grant.bytes.saturating_sub(bytes)
    } else {
        0
    }
}

/// Returns the use of `bytes` over a span beyond their reservation: from when, until when, how
/// much.
fn beyond(
    own: Option<&SpaceGrant>,
    bytes: u64,
    (from_s, to_s): (u64, u64),
) -> Vec<(u64, u64, u64)> {
    let Some(own) = own else {
        return vec![(from_s, to_s, bytes)];
    };
    let (begin_s, end_s) = (own.from_unix_s.max(from_s), own.until_unix_s.min(to_s));
    vec![
        (from_s, begin_s.min(to_s), bytes),
        (begin_s, end_s, bytes.saturating_sub(own.bytes)),
        (end_s.max(from_s), to_s, bytes),
    ]
}

#[cfg(test)]
mod tests;
